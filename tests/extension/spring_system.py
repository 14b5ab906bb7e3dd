"""A system of one's own: a bead on a spring between two stops."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.mechanics import ContactGeometry, Wall
from carom.systems.base import AbstractSystem
from carom.types import Coordinates, Scalar, State, Trajectory


class SpringBead(AbstractSystem):
    """U = ½ k q² with stops at −1 and 1."""

    stiffness: float = 4.0
    restitution: float = 0.9
    damping: float = 0.0

    @property
    def geometry(self) -> ContactGeometry:
        return ContactGeometry(1, 1, (Wall(0, (1.0,), -1.0), Wall(0, (-1.0,), -1.0)))

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return (1.0,)

    @property
    def start(self) -> State:
        return State(jnp.zeros((1, 1)), jnp.full((1, 1), 4.0))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        return 0.5 * self.stiffness * jnp.sum(position**2)

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return self.constraint_exact(start, steps=len(times) - 1, step_size=float(times[1] - times[0]))
