"""Störmer–Verlet: the two-step scheme on positions alone."""

from carom.integrators.base import ConservativeForce
from carom.mechanics import AbstractInertia
from carom.types import Coordinates, Scalar


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
