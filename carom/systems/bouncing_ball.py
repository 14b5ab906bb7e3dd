"""A ball on a floor."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.errors import InputError
from carom.mechanics import ContactGeometry, Wall
from carom.systems.base import AbstractSystem
from carom.systems.exact import floor_trajectory
from carom.types import Coordinates, Scalar, State, Trajectory


class BouncingBall(AbstractSystem):
    """U(q) = m g q over a floor at height 0; the coordinate is the ball's centre, its lowest value `radius`.

    Example:
        >>> import numpy as np
        >>> ball = BouncingBall(restitution=0.5)
        >>> motion = ball.exact(ball.start, np.linspace(0, 10, 101))
        >>> bool(motion.position[-1, 0, 0] == 0)     # at rest after √(2·10/g) (1 + e)/(1 − e) = 4.3 s
        True
    """

    gravity: float = 9.81
    mass: float = 1.0
    restitution: float = 1.0
    radius: float = eqx.field(default=0.0, static=True)
    damping: float = 0.0

    def __check_init__(self):
        if self.damping != 0:
            raise InputError("The exact ball has no damping.")

    @property
    def geometry(self) -> ContactGeometry:
        return ContactGeometry(1, 1, (Wall(body=0, normal=(1.0,), offset=self.radius),))

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return (self.mass,)

    @property
    def start(self) -> State:
        return State(jnp.full((1, 1), 10.0), jnp.zeros((1, 1)))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        return self.mass * self.gravity * jnp.sum(position)

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return floor_trajectory(
            -self.gravity, restitution=self.restitution, surface=self.radius, start=start, times=times
        )
