"""The units of a recording make no difference: everything is relative to its own length and time."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.data import Recording, Run

STEPS = 200


def in_units(recording: Recording, length: float, time: float) -> Recording:
    """The same motion, measured in other units."""
    runs = tuple(Run(run.time * time, run.position * length, None) for run in recording.runs)
    walls = tuple(replace(wall, offset=wall.offset * length) for wall in recording.scene.candidates)
    return Recording(runs, recording.step_size * time, replace(recording.scene, candidates=walls))


def fitted(length: float, time: float) -> np.ndarray:
    """Dimensionless estimates and errors of a ball, and an error of its forecast."""
    ball = carom.systems.BouncingBall(restitution=0.9)
    recording = carom.simulate(ball, steps=STEPS, step_size=0.02, noise=0.02, seed=1)
    learn = ("restitution", "surfaces", "gravity")
    # By one scheme and in one stage: fewer programs to compile.
    settings = carom.Settings(learn=learn, potential="none", stepper="constraint_exact", horizons=())
    fit = carom.fit(in_units(recording, length, time), settings=settings, seed=0)
    units = {"restitution": 1.0, "surfaces": length, "gravity": length / time**2}
    values = [(one.value / units[one.key], one.standard_error / units[one.key]) for one in fit.parameters]
    start = carom.State(jnp.array([[10.0 * length]]), jnp.array([[0.5 * length / time]]))
    path = carom.forecast(fit.model, start, STEPS).position[:: STEPS // 4, 0, 0] / length
    assert not fit.failed
    assert not fit.diagnostics.messages
    return np.concatenate([np.ravel(values), [fit.noise[0] / length], path])


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    return fitted(1.0, 1.0)


@pytest.mark.parametrize(("length", "time"), [(1e-9, 1.0), (1e9, 1.0), (1.0, 1e-9), (1.0, 1e9)])
def test_numbers_without_a_unit_stay_the_same(reference, length, time):
    found = fitted(length, time)
    np.testing.assert_allclose(found[:7], reference[:7], rtol=1e-6, atol=1e-6)
    # Forecasts are in single precision.
    np.testing.assert_allclose(found[7:], reference[7:], atol=1e-3)
