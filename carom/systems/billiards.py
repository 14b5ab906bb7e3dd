"""Balls on a free table, or in a box without gravity."""

import equinox as eqx

from carom.systems.boxed_balls import AbstractBoxedBalls, grid_positions
from carom.types import State


class Billiards(AbstractBoxedBalls):
    """Balls that move straight on between impacts with each other and with the walls of a box.

    The table has as many dimensions as `size` has numbers; by default five balls of radius 0.1 lie on a
    square of 1 m. `ball_masses` are all 1 by default.

    Example:
        >>> import numpy as np
        >>> table = Billiards(restitution=0.9)
        >>> start = table.random_start(seed=1)
        >>> energies = table.energies(table.exact(start, np.linspace(0, 2, 201)))
        >>> bool(np.all(np.diff(energies) < 1e-12))
        True
    """

    size: tuple[float, ...] = eqx.field(default=(1.0, 1.0), static=True)
    radii: tuple[float, ...] = eqx.field(default=(0.1,) * 5, static=True)
    ball_masses: tuple[float, ...] = ()
    restitution: float = 1.0
    friction: float = 0.0
    damping: float = 0.0

    @property
    def field(self) -> None:
        return None

    @property
    def start(self) -> State:
        """Balls on a grid, slow enough that there is no impact in the first second on the default table."""
        return grid_positions(self.radii, self.size, speed=0.05)
