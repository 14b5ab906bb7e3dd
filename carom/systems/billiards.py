"""Balls on a free table, or in a box without gravity."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from carom.errors import InputError
from carom.systems.balls import AbstractBalls, Solid, box, scattered
from carom.types import Scalar, State


class Billiards(AbstractBalls):
    """Balls that move straight on between impacts with each other and with the walls of a box.

    The table has as many dimensions as `size` has numbers; by default five balls of radius 0.1 lie on a
    square of 1 m. `ball_masses` are all 1 unless given.

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
    def masses(self) -> tuple[Scalar, ...]:
        return self.ball_masses or (1.0,) * len(self.radii)

    @property
    def solids(self) -> tuple[Solid, ...]:
        return box(self.size)

    @property
    def field(self) -> None:
        return None

    @property
    def start(self) -> State:
        """Balls on a grid, slow enough that nothing happens in the first second of the default table."""
        return grid_start(self.radii, self.size, speed=0.05)

    def random_start(self, seed: int, *, speed: float = 1.0) -> State:
        """Balls at random places, with velocities of mean square `speed`²."""
        return scattered(self.radii, self.size, seed=seed, speed=speed)


def grid_start(radii: tuple[float, ...], size: tuple[float, ...], *, speed: float, low: float = 0.0) -> State:
    """Balls on the points of a grid over the box, above a share `low` of its last axis, going all ways."""
    dimension, count = len(size), len(radii)
    rows = int(np.ceil(count ** (1 / dimension)))
    points = np.stack(np.meshgrid(*[(np.arange(rows) + 0.5) / rows] * dimension, indexing="ij"), axis=-1)
    points = points.reshape(-1, dimension)[:: max(rows**dimension // count, 1)][:count]
    points[:, -1] = low + (1 - low) * points[:, -1]
    position = points * np.asarray(size)
    if dimension == 1:
        position = -np.sort(-position, axis=0)
    # Directions that do not repeat: the golden angle in the plane, its like in the other dimensions.
    phase = np.arange(count)[:, None] * np.pi * (3 - np.sqrt(5)) - np.arange(dimension)[None] * np.pi / 2
    state = State(jnp.asarray(position), jnp.asarray(speed * np.cos(phase)))
    apart = np.linalg.norm(position[:, None] - position[None], axis=-1) + 2 * max(size) * np.eye(count)
    margin = np.asarray(radii)
    if (apart < margin[:, None] + margin[None]).any() or (position < margin[:, None]).any():
        raise InputError("Balls of these radii do not fit on a grid over the box; give a start of their own.")
    return state
