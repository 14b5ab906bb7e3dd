"""Forecasts for other balls, boxes and steps are exact where field and laws are."""

import equinox as eqx
import jax.numpy as jnp
import pytest

from carom.forces import UniformGravity
from carom.models import Mechanism, in_scene
from carom.reproduction.bodies.configuration import FIVE, TRANSFERS, Setting
from carom.reproduction.bodies.run import forecast_errors


def true_model(setting: Setting) -> Mechanism:
    """Gravity of 2 m/s² and the restitution of the system."""
    gravity = UniformGravity(jnp.array([0.0, -2.0]))
    return Mechanism.of(setting.system.scene(), setting.step_size, forces=[gravity])


@pytest.mark.campaign
@pytest.mark.parametrize("name", TRANSFERS)
def test_a_true_model_stays_true_elsewhere(name):
    """All impacts are found, several in one step too; what is left is single precision."""
    there, here = TRANSFERS[name]
    model = in_scene(true_model(there), here.system.scene(), step_size=here.step_size)
    errors = forecast_errors(model, here, seed=100)
    assert max(error["position_rmse"] for error in errors) < 1e-4
    assert max(error["paper_rmse"] for error in errors) < 1e-2


def test_a_wrong_restitution_is_seen():
    model = true_model(FIVE)
    wrong = eqx.tree_at(lambda m: m.restitution.value, model, 0.9 * model.restitution.value)
    right, off = (
        sorted(error["position_rmse"] for error in forecast_errors(each, FIVE, seed=100))
        for each in (model, wrong)
    )
    assert off[10] > 100 * right[10]
