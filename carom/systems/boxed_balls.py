"""Balls in a box of one to three dimensions: what billiards and the box under gravity share."""

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
        """Balls at random positions, with velocities whose root mean square is `speed`."""
        return random_positions(self.radii, self.size, seed=seed, speed=speed)


def box(size: tuple[float, ...]) -> tuple[Solid, ...]:
    """The walls of a box from 0 to `size` along every axis, floor and ceiling last."""

    def wall(axis: int, sign: float, offset: float) -> Solid:
        return ((tuple(sign if a == axis else 0.0 for a in range(len(size))), offset),)

    ends = [(wall(axis, 1.0, 0.0), wall(axis, -1.0, -extent)) for axis, extent in enumerate(size)]
    return tuple(solid for both in ends for solid in both)


def fitting_radius(count: int, size: tuple[float, ...], *, most: float, share: float = 0.15) -> float:
    """The radius of equal balls that take a share of a box, but not more than `most`.

    Example:
        >>> fitting_radius(16, (1.0, 1.0), most=0.1)
        0.0546
    """
    dimension = len(size)
    unit_ball = math.pi ** (dimension / 2) / math.gamma(dimension / 2 + 1)
    return min(most, float(f"{(share * math.prod(size) / (count * unit_ball)) ** (1 / dimension):.3g}"))


def random_positions(radii: tuple[float, ...], size: tuple[float, ...], *, seed: int, speed: float) -> State:
    """Balls at random positions in a box, apart from each other, whose root mean square velocity is `speed`.

    Larger balls are placed first. A box that is too full for that is refused.
    """
    random = np.random.default_rng(seed)
    extent, radius = np.asarray(size), np.asarray(radii)
    position = np.zeros((len(radii), len(size)))
    placed: list[int] = []
    for body in np.argsort(-radius):
        for _ in range(10_000):
            place = random.uniform(radius[body], extent - radius[body])
            distance = np.linalg.norm(position[placed] - place, axis=1)
            if (distance > radius[placed] + radius[body]).all():
                break
        else:
            raise InputError(f"{len(radii)} balls of these radii do not fit at random into a box of {size}.")
        position[body] = place
        placed.append(int(body))
    if len(size) == 1:
        position = -np.sort(-position, axis=0)
    velocity = random.normal(size=position.shape) * speed / np.sqrt(len(size))
    return State(jnp.asarray(position), jnp.asarray(velocity))


def grid_positions(
    radii: tuple[float, ...], size: tuple[float, ...], *, speed: float, lowest: float = 0.0
) -> State:
    """Balls on a grid over the box, above a share `lowest` of its last axis, moving in all directions."""
    dimension, count, radius = len(size), len(radii), np.asarray(radii)
    rows = int(np.ceil(count ** (1 / dimension)))
    points = np.stack(np.meshgrid(*[(np.arange(rows) + 0.5) / rows] * dimension, indexing="ij"), axis=-1)
    points = points.reshape(-1, dimension)[:: max(rows**dimension // count, 1)][:count]
    points[:, -1] = lowest + (1 - lowest) * points[:, -1]
    position = points * np.asarray(size)
    if dimension == 1:
        position = -np.sort(-position, axis=0)
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1) + 2 * max(size) * np.eye(count)
    if (distance < radius[:, None] + radius[None]).any() or (position < radius[:, None]).any():
        raise InputError("Balls of these radii do not fit on a grid over the box; give a start of their own.")
    # Directions that do not repeat: the golden angle in the plane, and so on in the other dimensions.
    phase = np.arange(count)[:, None] * np.pi * (3 - np.sqrt(5)) - np.arange(dimension)[None] * np.pi / 2
    return State(jnp.asarray(position), jnp.asarray(speed * np.cos(phase)))
