"""Schemes that are one another: CD-Lagrange without contacts, velocity Verlet and Störmer–Verlet."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from carom.integrators import stormer_verlet_step
from carom.mechanics import InertiaMatrix
from tests.integrators.mechanical_problems import compiled_motion, coupled_force

STEPS, H = 40, 0.1


def random_start(seed):
    random = np.random.default_rng(seed)
    factor = np.array([[random.uniform(0.7, 2), 0], [random.uniform(-0.5, 0.5), random.uniform(0.7, 2)]])
    q, v = random.normal(size=(2, 2, 1))
    return q, v, factor


def acceleration(q, factor):
    force = np.array([-np.sin(q[0]) - (q[0] - q[1]), q[0] - q[1] - q[1] ** 3])
    return np.linalg.solve(factor @ factor.T, force)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_half_grid_is_velocity_verlet(seed):
    q, v, factor = random_start(seed)
    expected_q, expected_v = q, v
    for _ in range(STEPS):
        here = acceleration(expected_q, factor)
        expected_q = expected_q + H * expected_v + 0.5 * H**2 * here
        expected_v = expected_v + 0.5 * H * (here + acceleration(expected_q, factor))
    for grid in ("half", "verlet"):
        position, velocity = compiled_motion(q, v, H, STEPS, factor, force=coupled_force, grid=grid)
        np.testing.assert_allclose(position, expected_q, atol=1e-10)
        np.testing.assert_allclose(velocity, expected_v, atol=1e-10)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_sample_grid_is_symplectic_euler(seed):
    """Positions first, then velocities with the force at the new position."""
    q, v, factor = random_start(seed)
    expected_q, expected_v = q, v
    for _ in range(STEPS):
        expected_q = expected_q + H * expected_v
        expected_v = expected_v + H * acceleration(expected_q, factor)
    position, velocity = compiled_motion(q, v, H, STEPS, factor, force=coupled_force, grid="sample")
    np.testing.assert_allclose(position, expected_q, atol=1e-10)
    np.testing.assert_allclose(velocity, expected_v, atol=1e-10)


@jax.jit
def stormer_positions(first, second, factor):
    def advance(pair, _):
        following = stormer_verlet_step(*pair, H, inertia=InertiaMatrix(factor), force=coupled_force)
        return (pair[1], following), following

    return jax.lax.scan(advance, (first, second), length=STEPS - 1)[1]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_stormer_verlet_has_the_positions_of_velocity_verlet(seed):
    q, v, factor = random_start(seed)
    second = q + H * v + 0.5 * H**2 * acceleration(q, factor)
    positions = stormer_positions(jnp.asarray(q), jnp.asarray(second), factor)
    expected, _ = compiled_motion(q, v, H, STEPS, factor, force=coupled_force, grid="verlet")
    np.testing.assert_allclose(positions[-1], expected, atol=1e-10)
