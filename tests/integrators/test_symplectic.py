"""Without contacts and damping the step is symplectic, reversible, and keeps energy up to a wobble."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from carom.integrators import to_half_grid
from carom.mechanics import Masses
from carom.types import State
from tests.integrators.mechanical_problems import (
    FREQUENCY,
    compiled_motion,
    coupled_force,
    free_motion,
    free_step,
    pendulum_force,
)

GRIDS = ["sample", "half", "verlet"]


def random_inertia(random):
    """L of M = L Lᵀ for two coordinates."""
    return np.array([[random.uniform(0.7, 2), 0], [random.uniform(-0.5, 0.5), random.uniform(0.7, 2)]])


@jax.jit
def phase_flow_derivatives(coordinates, factor):
    """∂(q', p')/∂(q, p) of one step on every grid, with momenta p = M v."""

    def flow(coordinates, grid):
        matrix = factor @ factor.T
        q, p = coordinates[:2, None], coordinates[2:]
        v = jnp.linalg.solve(matrix, p)[:, None]
        q, v = free_motion(q, v, 0.3, 1, factor, force=coupled_force, grid=grid)
        return jnp.concatenate([q[:, 0], matrix @ v[:, 0]])

    return [jax.jacfwd(flow)(coordinates, grid) for grid in GRIDS]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_symplectic(seed):
    """JᵀΩJ = Ω, at a step size where the error of the step itself is large."""
    random = np.random.default_rng(seed)
    omega = np.block([[np.zeros((2, 2)), np.eye(2)], [-np.eye(2), np.zeros((2, 2))]])
    for derivative in phase_flow_derivatives(random.normal(size=4), random_inertia(random)):
        derivative = np.asarray(derivative)
        np.testing.assert_allclose(derivative.T @ omega @ derivative, omega, atol=1e-12)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1))
def test_time_reversible(seed):
    """Forward, velocities reversed, forward again: back at the start, to rounding."""
    random = np.random.default_rng(seed)
    q, v = random.normal(size=(2, 2, 1))
    factor = random_inertia(random)
    for grid in ("half", "verlet"):
        far, speed = compiled_motion(q, v, 0.1, 50, factor, force=coupled_force, grid=grid)
        back, reversed_speed = compiled_motion(far, -speed, 0.1, 50, factor, force=coupled_force, grid=grid)
        np.testing.assert_allclose(back, q, atol=1e-9)
        np.testing.assert_allclose(-np.asarray(reversed_speed), v, atol=1e-9)


def test_the_sample_grid_is_reversible_on_its_own_staggered_states():
    """(Q_{n+1}, −V_{n+1/2}) retraces the path: the pair as CD-Lagrange means it."""
    step = jax.jit(lambda state: free_step(state, 0.1, inertia=Masses(jnp.ones(2)), force=coupled_force))
    path = [State(jnp.array([[0.4], [-0.2]]), jnp.array([[0.3], [0.9]]))]
    for _ in range(30):
        path.append(step(path[-1]))
    state = State(path[-1].position, -path[-2].velocity)
    for reached in path[-2::-1]:
        state = step(state)
        np.testing.assert_allclose(state.position, reached.position, atol=1e-12)


@jax.jit
def pendulum_energies(h):
    """Energy of the pendulum at amplitude 2 over 10⁵ half-grid steps, velocities read at the samples."""
    inertia = Masses(jnp.ones(1))

    def advance(state, _):
        kick = 0.5 * h * pendulum_force(state.position)
        v = state.velocity - kick
        energy = 0.5 * jnp.sum(v**2) + FREQUENCY**2 * jnp.sum(1 - jnp.cos(state.position))
        return free_step(state, h, inertia=inertia, force=pendulum_force), energy

    start = State(jnp.full((1, 1), 2.0), jnp.zeros((1, 1)))
    start = to_half_grid(start, h, inertia=inertia, force=lambda q, v: pendulum_force(q))
    return lax.scan(advance, start, length=100_000)[1]


@pytest.mark.parametrize("h", [0.1, 0.05])
def test_energy_error_stays_bounded(h):
    """Over 10⁵ steps the wobble neither grows nor drifts, and it is of second order.

    Measured: the wobble is 0.274 at h = 0.1 and 0.068 at h = 0.05, of an energy of 13.9.
    """
    energy = np.asarray(pendulum_energies(h))
    early, late = energy[:10_000], energy[-10_000:]
    np.testing.assert_allclose(np.ptp(late), np.ptp(early), rtol=0.01)
    assert abs(late.mean() - early.mean()) < 0.01 * np.ptp(early)
    assert np.ptp(energy) < 30 * h**2
