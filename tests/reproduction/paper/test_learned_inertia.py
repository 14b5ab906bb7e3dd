"""What the recording of a cradle determines about a learned inertia, and what it leaves open."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.integrators.cd_lagrange import cd_lagrange_step
from carom.mechanics import project_overlap, restitution_impulse
from carom.mechanics.inertia import InertiaMatrix
from carom.reproduction.paper.data import motion_of
from carom.reproduction.paper.experiments import EXPERIMENTS
from carom.types import State


def coupled_potential(q, coupling: float, gravity: float = 9.81):
    """U with ∂U/∂q = M g sin q wherever one of the balls hangs at 0, for M = [[1, c], [c, 1]]."""
    (a, b), g = q[:, 0], gravity
    return g * (2 - jnp.cos(a) - jnp.cos(b) + coupling * (b * jnp.sin(a) + a * jnp.sin(b) - a * b))


def swing(masses: tuple[float, float], coupling: float) -> np.ndarray:
    """Positions with the recorded impacts prescribed, as a model with touch has them."""
    one = EXPERIMENTS["cradle"]
    truth = motion_of(one, "published", one.system, one.start)
    geometry = one.system.geometry
    matrix = jnp.diag(jnp.asarray(masses)) + coupling * (1 - jnp.eye(2))
    inertia = InertiaMatrix(jnp.linalg.cholesky(matrix))
    potential = partial(coupled_potential, coupling=coupling)

    def impulse(jacobian, inertia, before, smooth, touching):
        law = jnp.ones(1, before.dtype)
        active = touching.astype(before.dtype)
        return restitution_impulse(
            jacobian, inertia, before, smooth, restitution=law, active=active
        ), jnp.array(True)

    def step(state, touching):
        after, _ = cd_lagrange_step(
            state,
            one.step_size,
            inertia=inertia,
            force=lambda q, v: -jnp.asarray(masses)[:, None] * jax.grad(potential)(q),
            geometry=geometry,
            detect=lambda q, v: touching,
            impulse=impulse,
            project=lambda q, touching: project_overlap(
                "reference_point", geometry, inertia, q, touching, reference=jnp.zeros((2, 1))
            ),
        )
        return after, after.position

    start = State(jnp.asarray(one.start.position, float), jnp.asarray(one.start.velocity, float))
    return np.asarray(jax.lax.scan(step, start, jnp.asarray(truth.contact[1:]))[1])


@pytest.mark.parametrize("coupling", [-0.3, 0.07, 0.3])
def test_a_coupling_of_equal_masses_changes_nothing_that_is_recorded(coupling: float):
    """At an impact M⁻¹Gᵀ keeps the direction (1, −1), and in between a potential compensates it."""
    with jax.enable_x64(True):
        plain, coupled = swing((1.0, 1.0), 0.0), swing((1.0, 1.0), coupling)
    assert np.abs(plain).max() > 0.6
    np.testing.assert_allclose(coupled, plain, atol=1e-9)


def test_a_wrong_ratio_of_masses_changes_the_impacts():
    with jax.enable_x64(True):
        plain, wrong = swing((1.0, 1.0), 0.0), swing((1.0, 2.0), 0.0)
    assert np.abs(plain - wrong).max() > 0.1
