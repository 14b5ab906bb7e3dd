"""What holds for every registered system; a new one is tested here without a further line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import simulate
from carom.systems import SYSTEMS
from tests.campaign import shortened

STEPS = 80
"""Of every motion, so that all tests of a system share its compiled programs."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_exact_motion_keeps_the_energy_and_starts_at_the_start(name):
    system = SYSTEMS[name]()
    motion = system.exact(system.start, np.linspace(0, 3, STEPS + 1))
    np.testing.assert_allclose(motion.position[0], system.start.position)
    np.testing.assert_allclose(motion.velocity[0], system.start.velocity)
    energies = system.energies(motion)
    np.testing.assert_allclose(energies, energies[0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", shortened(SYSTEMS, ["stairs", "box", "billiards"]))
def test_schemes_approach_the_exact_motion(name):
    """Before the first impact the error of the half grid falls fourfold when the step is halved."""
    system = SYSTEMS[name]()
    errors = []
    for step_size in (0.01, 0.005):
        exact = system.exact(system.start, np.arange(STEPS + 1) * step_size)
        assert not exact.contact.any()
        scheme = system.scheme(system.start, steps=STEPS, step_size=step_size)
        constrained = system.constraint_exact(system.start, steps=STEPS, step_size=step_size)
        np.testing.assert_allclose(scheme.position, constrained.position, atol=1e-12)
        until = round(0.4 / step_size) + 1
        errors.append(np.abs(scheme.position - exact.position)[:until].max())
    assert errors[1] < 0.27 * errors[0] or errors[0] < 1e-12


@pytest.mark.parametrize("name", shortened(SYSTEMS, ["stairs", "box"]))
@pytest.mark.parametrize("truth", ["exact", "scheme"])
def test_recordings_carry_touch_and_a_scene(name, truth):
    system = SYSTEMS[name]()
    recording = simulate(system, steps=STEPS, step_size=0.05, truth=truth)
    assert recording.scene == system.scene()
    run = recording.runs[0]
    assert run.touch.shape == (STEPS + 1, recording.bodies)
    gaps = np.asarray(jax.vmap(system.geometry.gap)(jnp.asarray(run.position, float)))
    near = 2 * recording.step_size * np.abs(run.velocity).max()
    assert (gaps[run.touch.any(axis=1)].min(axis=1, initial=np.inf) < near).all()
    assert gaps.min() > -near
