"""Balls in a box, under gravity."""

import equinox as eqx

from carom.systems.boxed_balls import AbstractBoxedBalls, grid_positions
from carom.types import Scalar, State


class BallBox(AbstractBoxedBalls):
    """Balls that fall along the last axis of a box and hit its walls, its floor and each other.

    The box has as many dimensions as `size` has numbers, from 0 up. `ball_masses` are all 1 by default.

    Example:
        >>> import numpy as np
        >>> heap = BallBox(size=(1.0, 2.0), restitution=0.5, friction=0.3)
        >>> motion = heap.exact(heap.random_start(seed=0, speed=0.0), np.linspace(0, 5, 51))
        >>> bool(np.abs(motion.velocity[-1]).max() < 1e-6)     # at rest
        True
    """

    size: tuple[float, ...] = eqx.field(default=(2.0, 5.0), static=True)
    radii: tuple[float, ...] = eqx.field(default=(0.1,) * 3, static=True)
    ball_masses: tuple[float, ...] = ()
    gravity: float = 9.81
    restitution: float = 1.0
    friction: float = 0.0
    damping: float = 0.0

    @property
    def field(self) -> tuple[Scalar, ...]:
        return (0.0,) * (len(self.size) - 1) + (-self.gravity,)

    @property
    def start(self) -> State:
        """Balls on a grid in the upper part of the box, all but at rest."""
        return grid_positions(self.radii, self.size, speed=0.05, lowest=0.7)
