"""The pendulum against Jacobi's elliptic functions and, damped, against the linear closed form."""

from dataclasses import replace

import numpy as np
import pytest

from carom.systems import Pendulum
from tests.systems.closed_forms import damped_oscillation, pendulum_from_rest, start_state

TIMES = np.arange(401) * 0.02


@pytest.mark.parametrize(("amplitude", "length", "mass"), [(1.0, 1.0, 1.0), (3.0, 0.5, 2.0), (0.1, 2.0, 0.3)])
def test_exact_is_elliptic(amplitude, length, mass):
    swing = Pendulum(length=length, mass=mass)
    motion = swing.exact(start_state([amplitude], [0.0]), TIMES)
    angle, speed = pendulum_from_rest(amplitude, np.sqrt(9.81 / length), TIMES)
    np.testing.assert_allclose(motion.position[:, 0, 0], angle, atol=1e-9)
    np.testing.assert_allclose(motion.velocity[:, 0, 0], speed, atol=1e-8)
    assert not motion.contact.any()
    # The library's energy is the one that this motion keeps: m g l (1 − cos amplitude).
    energy = mass * 9.81 * length * (1 - np.cos(amplitude))
    np.testing.assert_allclose(swing.energies(motion), energy, rtol=1e-9)


def test_small_damped_oscillation():
    """At θ ~ 10⁻⁴ the cubic term of the sine is 10⁻¹². The damping is a torque, so 2γ = c/(m l²)."""
    swing = Pendulum(damping=0.8, mass=0.5, length=0.7)
    motion = swing.exact(start_state([1e-4], [0.0]), TIMES)
    angle, speed = damped_oscillation(1e-4, np.sqrt(9.81 / 0.7), 0.5 * 0.8 / (0.5 * 0.7**2), TIMES)
    np.testing.assert_allclose(motion.position[:, 0, 0], angle, atol=2e-11)
    np.testing.assert_allclose(motion.velocity[:, 0, 0], speed, atol=5e-11)


@pytest.mark.parametrize("velocity_grid", ["sample", "half"])
def test_scheme_follows_with_and_without_damping(velocity_grid):
    """Measured at h = 0.01, position and velocity together: 0.016 and 1.5e-3 without damping, 0.028 and 0.023
    with it. The scheme takes the damping at the half step before, which is first order on either grid.
    """
    bounds = {("sample", 0.0): 0.03, ("half", 0.0): 3e-3, ("sample", 0.8): 0.05, ("half", 0.8): 0.04}
    for damping in (0.0, 0.8):
        swing, start = Pendulum(damping=damping), start_state([1.0], [0.0])
        exact = swing.exact(start, np.arange(401) * 0.01)
        scheme = swing.scheme(start, steps=400, step_size=0.01, velocity_grid=velocity_grid)
        error = (
            np.abs(scheme.position - exact.position).max() + np.abs(scheme.velocity - exact.velocity).max()
        )
        assert error < bounds[velocity_grid, damping]
        np.testing.assert_allclose(scheme.time, exact.time, rtol=1e-15)


def test_damping_only_takes_energy():
    swing = Pendulum(damping=0.8)
    energy = swing.energies(swing.exact(start_state([1.0], [0.0]), TIMES))
    assert (np.diff(energy) <= 1e-12).all()
    assert replace(swing, damping=0.0).damping == 0


def test_constraint_exact_is_velocity_verlet_here():
    swing = Pendulum()
    start = start_state([1.0], [0.0])
    verlet = swing.constraint_exact(start, steps=200, step_size=0.02)
    half = swing.scheme(start, steps=200, step_size=0.02)
    np.testing.assert_allclose(verlet.position, half.position, atol=1e-12)
    np.testing.assert_allclose(verlet.velocity, half.velocity, atol=1e-12)
