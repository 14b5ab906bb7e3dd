"""Balls in a box of one to three dimensions: billiards, and a box under gravity."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from carom.errors import InputError
from carom.systems.balls import AbstractBalls, Solid
from carom.types import Scalar, State


class AbstractBoxedBalls(AbstractBalls):
    """Balls in a box from 0 to `size`, which has as many dimensions as that has numbers."""

    size: eqx.AbstractVar[tuple[float, ...]]
    ball_masses: eqx.AbstractVar[tuple[float, ...]]
    """All 1 where it is empty."""

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return self.ball_masses or (1.0,) * len(self.radii)

    @property
    def solids(self) -> tuple[Solid, ...]:
        return box(self.size)

    def random_start(self, seed: int, *, speed: float = 1.0) -> State:
        """Balls at random positions, apart from each other, whose root mean square velocity is `speed`.

        Larger balls are placed first, as they find room only where little is taken. A box that is too full
        is refused.
        """
        random = np.random.default_rng(seed)
        extent, radius = np.asarray(self.size), np.asarray(self.radii)
        position = np.zeros((len(self.radii), len(self.size)))
        placed: list[int] = []
        # Rejection sampling keeps the positions uniform; pushing balls apart would not.
        for body in np.argsort(-radius):
            for _ in range(10_000):
                place = random.uniform(radius[body], extent - radius[body])
                distance = np.linalg.norm(position[placed] - place, axis=1)
                if (distance > radius[placed] + radius[body]).all():
                    break
            else:
                raise InputError(
                    f"{len(radius)} balls of these radii do not fit at random into a box of {self.size}."
                )
            position[body] = place
            placed.append(int(body))
        if len(self.size) == 1:
            position = -np.sort(-position, axis=0)
        velocity = random.normal(size=position.shape) * speed / np.sqrt(len(self.size))
        return State(jnp.asarray(position), jnp.asarray(velocity))


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


def box(size: tuple[float, ...]) -> tuple[Solid, ...]:
    """The walls of a box from 0 to `size` along every axis, floor and ceiling last."""
    return tuple(
        ((tuple(sign if a == axis else 0.0 for a in range(len(size))), offset),)
        for axis, extent in enumerate(size)
        for sign, offset in ((1.0, 0.0), (-1.0, -extent))
    )


def fitting_radius(count: int, size: tuple[float, ...], *, most: float, share: float = 0.15) -> float:
    """The radius of equal balls that take a share of a box, but not more than `most`.

    Example:
        >>> fitting_radius(16, (1.0, 1.0), most=0.1)
        0.0546
    """
    dimension = len(size)
    # The volume of the unit ball in any dimension: 2, π, 4π/3.
    unit_ball = math.pi ** (dimension / 2) / math.gamma(dimension / 2 + 1)
    return min(most, float(f"{(share * math.prod(size) / (count * unit_ball)) ** (1 / dimension):.3g}"))


def grid_positions(
    radii: tuple[float, ...], size: tuple[float, ...], *, speed: float, lowest: float = 0.0
) -> State:
    """Balls on a grid over the box, above a share `lowest` of its last axis, moving in all directions."""
    dimension, count, radius = len(size), len(radii), np.asarray(radii)
    rows = int(np.ceil(count ** (1 / dimension)))
    points = np.stack(np.meshgrid(*[(np.arange(rows) + 0.5) / rows] * dimension, indexing="ij"), axis=-1)
    # Where the grid has more points than there are balls, they are spread over all of it.
    points = points.reshape(-1, dimension)[:: max(rows**dimension // count, 1)][:count]
    points[:, -1] = lowest + (1 - lowest) * points[:, -1]
    position = points * np.asarray(size)
    # On a line the first ball is the one with the greatest coordinate.
    if dimension == 1:
        position = -np.sort(-position, axis=0)
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1) + 2 * max(size) * np.eye(count)
    if (distance < radius[:, None] + radius[None]).any() or (position < radius[:, None]).any():
        raise InputError("Balls of these radii do not fit on a grid over the box; give a start of their own.")
    # Directions that do not repeat: the golden angle in the plane, and so on in the other dimensions.
    phase = np.arange(count)[:, None] * np.pi * (3 - np.sqrt(5)) - np.arange(dimension)[None] * np.pi / 2
    return State(jnp.asarray(position), jnp.asarray(speed * np.cos(phase)))
