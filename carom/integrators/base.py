"""What integrators take: functions of positions and velocities, never systems or models."""

from collections.abc import Callable

from jaxtyping import Array, Bool

from carom.mechanics import AbstractInertia
from carom.types import Coordinates, Jacobian, PerContact

Force = Callable[[Coordinates, Coordinates], Coordinates]
"""F(Q, V), conservative force plus damping."""
ConservativeForce = Callable[[Coordinates], Coordinates]
"""F(Q) = −∂U/∂Q."""
Detect = Callable[[Coordinates, Coordinates], PerContact]
"""Which candidates touch at (Q_{n+1}, V_{n+1/2}): booleans, or gates in [0, 1]."""
Impulse = Callable[
    [Jacobian, AbstractInertia, Coordinates, Coordinates, PerContact], tuple[PerContact, Bool[Array, ""]]
]
"""λ from G, M, V_{n+1/2}, V^S and the touching candidates, and whether it solves the contact problem."""
Project = Callable[[Coordinates, PerContact], Coordinates]
"""Positions with the overlap of touching candidates removed."""
Friction = Callable[[Jacobian, Coordinates, PerContact], Coordinates]
"""Velocities after friction, from G, the velocities before it and the impulses λ."""
