"""Many forecasts at once are those made one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.models import CDLagrangeNetwork, ResNet, forecast, forecast_many
from carom.systems import BouncingBall, NewtonsCradle
from carom.types import State

SCENES = {
    "ball": BouncingBall(restitution=0.8).scene(velocity_grid="half"),
    "cradle": NewtonsCradle(balls=3).scene(velocity_grid="sample"),
}


@pytest.mark.parametrize("network", [CDLagrangeNetwork, ResNet])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_many_forecasts_are_those_made_one_by_one(network, scene):
    model = network(scene, 0.02, hidden=8, key=jax.random.key(0))
    shape = 2, 3, scene.bodies, scene.dimension
    many = State(*map(jnp.asarray, np.random.default_rng(3).standard_normal(shape)))
    together = forecast_many(model, many, 5)
    for index in range(3):
        one = forecast(model, jax.tree.map(lambda x: x[index], many), 5)  # noqa: B023
        for part, alone in zip(together, one, strict=True):
            np.testing.assert_allclose(part[index], alone, atol=1e-6)
