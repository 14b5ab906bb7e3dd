"""Restitution that is constant at low speeds and falls at high ones, from rebounds at a wall."""

import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.data import Recording, Run
from carom.estimation.terms import choose_terms
from carom.fits import load_model, save_model
from carom.mechanics import Scene, Wall

SPEEDS = np.geomspace(0.1, 3.0, 24)
NOISE = 2e-4


def truth(speed):
    """Constant up to 0.5, and linear in the logarithm beyond."""
    return 0.85 - 0.2 * np.log(np.maximum(speed, 0.5) / 0.5)


@pytest.fixture(scope="module")
def recording() -> Recording:
    time, generator = np.arange(100) / 200, np.random.default_rng(3)
    runs = []
    for speed, instant in zip(SPEEDS, generator.uniform(0.2, 0.3, len(SPEEDS)), strict=True):
        away = np.where(time < instant, speed, truth(speed) * speed) * np.abs(time - instant)
        runs.append(Run(time, (away + NOISE * generator.standard_normal(len(time)))[:, None, None]))
    return Recording(tuple(runs), 1 / 200, Scene(1, 1, (Wall(0, (1.0,)),)))


def test_it_is_chosen_and_learned_with_its_error(recording, tmp_path):
    assert "restitution-spline" in choose_terms(recording, carom.Settings(learn=("auto",))).learn
    learn = ("restitution-spline", "surfaces", "scatter")
    settings = carom.Settings(learn=learn, potential="none", stepper="constraint_exact", horizons=())
    fit = carom.fit(recording, settings=settings)
    law = fit.model.restitution
    speeds = np.geomspace(0.12, 2.8, 40)
    found = np.array([law.coefficient(jnp.array([-speed]))[0] for speed in speeds])
    basis = np.concatenate([law.basis(jnp.array([speed])) for speed in speeds])
    error = np.sqrt(np.einsum("sp,pq,sq->s", basis, fit.covariance_of("restitution-spline"), basis))
    # A spline with three knots rounds the bend off, by 0.02 at the most.
    assert np.all(np.abs(found - truth(speeds)) < 0.02 + 3 * error)
    assert np.median(error) < 0.01
    save_model(fit.model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors").restitution
    np.testing.assert_array_equal(again.basis(jnp.array([0.3])), law.basis(jnp.array([0.3])))
