"""A ball on a floor, in uniform gravity or in another field."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.errors import InputError
from carom.mechanics import ContactGeometry, Wall
from carom.systems.base import AbstractSystem
from carom.systems.exact import floor_trajectory
from carom.types import Coordinates, Scalar, State, Trajectory


class AbstractFloorBall(AbstractSystem):
    """One point over a floor, without damping."""

    mass: eqx.AbstractVar[float]

    def __check_init__(self):
        if self.damping != 0:
            raise InputError("The exact ball has no damping.")

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return (self.mass,)


class BouncingBall(AbstractFloorBall):
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

    @property
    def geometry(self) -> ContactGeometry:
        return ContactGeometry(1, 1, (Wall(body=0, normal=(1.0,), offset=self.radius),))

    @property
    def start(self) -> State:
        return State(jnp.full((1, 1), 10.0), jnp.zeros((1, 1)))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        return self.mass * self.gravity * jnp.sum(position)

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return floor_trajectory(
            -self.gravity, restitution=self.restitution, surface=self.radius, start=start, times=times
        )


class BentBall(AbstractFloorBall):
    """U(q) = m (g q + ½ k q² + a sin 2q) over a floor at height 0: nothing that a flat force could explain.

    Example:
        >>> import numpy as np
        >>> ball = BentBall()
        >>> motion = ball.exact(ball.start, np.linspace(0, 5, 101))
        >>> bool(np.ptp(ball.energies(motion)) < 1e-8)
        True
    """

    gravity: float = 9.81
    stiffness: float = 1.0
    wave: float = 1.5
    mass: float = 1.0
    restitution: float = 1.0
    damping: float = 0.0

    @property
    def geometry(self) -> ContactGeometry:
        return ContactGeometry(1, 1, (Wall(body=0, normal=(1.0,)),))

    @property
    def start(self) -> State:
        return State(jnp.full((1, 1), 5.0), jnp.zeros((1, 1)))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        q = jnp.sum(position)
        return self.mass * (self.gravity * q + 0.5 * self.stiffness * q**2 + self.wave * jnp.sin(2 * q))

    def acceleration(self, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """−U′/m, whatever the velocity."""
        return -(self.gravity + self.stiffness * position + 2 * self.wave * np.cos(2 * position))

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return floor_trajectory(
            self.acceleration, restitution=self.restitution, surface=0.0, start=start, times=times
        )
