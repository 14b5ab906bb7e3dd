"""Newton's cradle: point balls on one pivot, described by their angles."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.errors import InputError
from carom.mechanics import ContactGeometry, chain
from carom.systems.base import AbstractSystem
from carom.systems.exact import chain_trajectory
from carom.types import Coordinates, Scalar, State, Trajectory


class NewtonsCradle(AbstractSystem):
    """`balls` ≥ 2 equal pendulums with a common pivot, q_1 ≥ q_2 ≥ …; neighbours touch at equal angles.

    U(q) = m g l Σ (1 − cos q_k). By default the first ball starts from the bottom at 2 rad/s.

    Example:
        >>> import numpy as np
        >>> cradle = NewtonsCradle(balls=3)
        >>> motion = cradle.exact(cradle.start, np.linspace(0, 1.5, 151))
        >>> np.abs(motion.velocity[-1, :, 0]) > 1e-6     # the last ball alone carries on
        array([False, False,  True])
    """

    balls: int = 2
    gravity: float = 9.81
    length: float = 1.0
    mass: float = 1.0
    restitution: float = 1.0
    damping: float = 0.0

    def __check_init__(self):
        if self.balls < 2:
            raise InputError(f"A cradle needs at least 2 balls, not {self.balls}.")
        if self.damping != 0:
            raise InputError("The exact cradle has no damping.")

    @property
    def geometry(self) -> ContactGeometry:
        # Only neighbours touch: angles keep their order.
        return ContactGeometry(self.balls, 1, chain(self.balls))

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return (self.mass * self.length**2,) * self.balls

    @property
    def start(self) -> State:
        return State(jnp.zeros((self.balls, 1)), jnp.zeros((self.balls, 1)).at[0, 0].set(2.0))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        return self.mass * self.gravity * self.length * jnp.sum(1 - jnp.cos(position))

    def acceleration(self, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Of the angles, whatever the velocity."""
        return -(self.gravity / self.length) * np.sin(position)

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return chain_trajectory(self.acceleration, np.array(self.masses), self.restitution, start, times)
