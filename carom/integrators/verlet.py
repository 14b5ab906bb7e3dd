"""Verlet schemes: second order and symplectic, with positions and velocities or with positions alone."""

from carom.integrators.base import ConservativeForce
from carom.mechanics import AbstractInertia
from carom.types import Coordinates, Scalar, State


def velocity_verlet_step(
    state: State, step_size: Scalar, *, inertia: AbstractInertia, force: ConservativeForce
) -> State:
    """q' = q + h v + ½h² M⁻¹F(q);  v' = v + ½h M⁻¹(F(q) + F(q'))."""
    h, q, v = step_size, state.position, state.velocity
    force_here = force(q)
    q_next = q + h * v + 0.5 * h**2 * inertia.solve(force_here)
    v_next = v + 0.5 * h * inertia.solve(force_here + force(q_next))
    return State(q_next, v_next)


def stormer_verlet_step(
    previous: Coordinates,
    current: Coordinates,
    step_size: Scalar,
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
) -> Coordinates:
    """q'' = 2q' − q + h² M⁻¹F(q')."""
    return 2 * current - previous + step_size**2 * inertia.solve(force(current))
