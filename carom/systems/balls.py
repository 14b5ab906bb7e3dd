"""Balls among planes in a uniform field: what their systems have in common, exact motion included."""

import os
from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.compilation import full_precision
from carom.errors import InputError
from carom.integrators import EventReport, ReportKind, event_driven_motion
from carom.integrators.event_driven.balls import Balls
from carom.mechanics import ContactGeometry, Pair, Plane, Wall
from carom.systems.base import AbstractSystem, float64_state
from carom.types import Coordinates, Scalar, State, Trajectory

Solid = tuple[Plane, ...]
"""The planes behind all of which a ball cannot be; the first is the wall, the others end it."""
LISTED = 48
"""With more bodies than so each is compared with its neighbours only."""
TOGETHER = 64
"""Scenes that are computed together: their state fits into the cache of a core."""
MAX_IMPACTS = 1000
"""Impacts of a ball within a sample before it is brought to rest: more than a ball with e = 0.98 makes."""


class Motions(NamedTuple):
    """Motions of many scenes of one system, in float64."""

    position: Float[np.ndarray, "samples scenes bodies dimension"]
    velocity: Float[np.ndarray, "samples scenes bodies dimension"]


class AbstractBalls(AbstractSystem):
    """Balls that fly on parabolas and hit each other and solids bounded by planes.

    In one dimension the balls are listed from the greatest coordinate to the least. Damping is refused, and
    so are parameters that make no sense.
    """

    radii: eqx.AbstractVar[tuple[float, ...]]
    friction: eqx.AbstractVar[float]

    def __check_init__(self):
        if self.damping != 0:
            raise InputError("Balls among planes move without damping.")
        if not self.radii or len(self.masses) != len(self.radii):
            raise InputError(f"{len(self.radii)} radii were given for {len(self.masses)} masses.")
        for name, values, least in (("radius", self.radii, 0.0), ("friction", (self.friction,), 0.0)):
            if any(isinstance(x, float) and not least <= x < np.inf for x in values):
                raise InputError(f"A {name} must be at least {least:g}, but one is {min(values):g}.")
        if any(isinstance(x, float) and not 0 < x < np.inf for x in self.masses):
            raise InputError(f"Masses must be positive, but they are {self.masses}.")
        if isinstance(self.restitution, float) and not 0 <= self.restitution <= 1:
            raise InputError(f"Restitution must lie between 0 and 1, but it is {self.restitution}.")

    @property
    @abstractmethod
    def solids(self) -> tuple[Solid, ...]:
        """What the balls may hit besides each other."""

    @property
    @abstractmethod
    def field(self) -> tuple[Scalar, ...] | None:
        """The acceleration of a ball in flight; None on a free table."""

    @property
    def dimension(self) -> int:
        """Coordinates per ball."""
        return len(self.solids[0][0][0])

    @property
    def contact_friction(self) -> Scalar:
        return self.friction

    @property
    def geometry(self) -> ContactGeometry:
        count = len(self.radii)

        def wall(body: int, solid: Solid) -> Wall:
            (normal, offset), *edges = ((n, o + self.radii[body]) for n, o in solid)
            return Wall(body, normal, offset, tuple(edges))

        walls = tuple(wall(body, solid) for body in range(count) for solid in self.solids)
        # On a line only neighbours can meet.
        joined = pairwise(range(count))
        pairs = joined if self.dimension == 1 else combinations(range(count), 2)
        touching = tuple(Pair(i, j, self.radii[i] + self.radii[j]) for i, j in pairs)
        return ContactGeometry(count, self.dimension, walls + touching)

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        if self.field is None:
            return jnp.zeros((), position.dtype)
        weight = (
            jnp.asarray(self.masses, position.dtype)[:, None] * jnp.asarray(self.field, position.dtype)[None]
        )
        return -jnp.sum(weight * position)

    def balls(self) -> Balls:
        """The same as arrays."""
        planes = [plane for solid in self.solids for plane in solid]
        starts = np.cumsum([0, *(len(solid) for solid in self.solids)])
        return Balls(
            masses=jnp.asarray(self.masses, float),
            radii=jnp.asarray(self.radii, float),
            normals=jnp.asarray([normal for normal, _ in planes], float),
            offsets=jnp.asarray([offset for _, offset in planes], float),
            restitution=jnp.asarray(self.restitution, float),
            friction=jnp.asarray(self.friction, float),
            gravity=None if self.field is None else jnp.asarray(self.field, float),
            solids=tuple(tuple(range(a, b)) for a, b in pairwise(starts)),
        )

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        times = np.asarray(times, float)
        with jax.enable_x64(True):
            first = float64_state(start)
            batch = jax.tree.map(lambda x: x[None], first)
            self._require_apart(batch.position)
            samples, report = _motion(self.balls(), batch, jnp.diff(jnp.asarray(times)), "contacts")
        position, velocity = (
            np.concatenate([np.asarray(x)[None], np.asarray(xs)[:, 0]])
            for x, xs in zip(
                (first.position, first.velocity), (samples.position, samples.velocity), strict=True
            )
        )
        arrived = self._contacts(np.asarray(report.contact)[:, 0])
        contact = np.concatenate([np.zeros((1, arrived.shape[1]), bool), arrived])
        return Trajectory(times, position, velocity, contact)

    def motions(self, starts: State, *, steps: int, step_size: float) -> Motions:
        """The exact motions of many scenes at once, without their contacts; several times faster so.

        Arguments:
            starts: states with a leading axis of scenes. On a processor they are taken `TOGETHER` by
                `TOGETHER`, on all of its cores.
        """
        with jax.enable_x64(True):
            first = float64_state(starts)
            self._require_apart(first.position)
            balls, intervals = self.balls(), jnp.full((steps,), step_size)
        position, velocity = np.asarray(first.position), np.asarray(first.velocity)
        scenes = len(position)
        size = min(scenes, TOGETHER) if jax.default_backend() == "cpu" else scenes
        result = Motions(*(np.empty((steps + 1, *part.shape)) for part in (position, velocity)))

        def fill(begin: int) -> None:
            # The last ones are taken with some before them, so that all are of one shape.
            here = slice(min(begin, scenes - size), min(begin, scenes - size) + size)
            with jax.enable_x64(True):
                start = State(jnp.asarray(position[here]), jnp.asarray(velocity[here]))
                samples, _ = _motion(balls, start, intervals, "none")
            for whole, part, later in zip(
                result, (start.position, start.velocity), (samples.position, samples.velocity), strict=True
            ):
                whole[0, here], whole[1:, here] = part, later

        if not scenes:
            return result
        begins = range(0, scenes, size)
        if len(begins) > 1:
            fill(0)  # compiled once, before all others
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(fill, begins[1:]))
        else:
            fill(0)
        return result

    def _contacts(self, touched: np.ndarray) -> np.ndarray:
        """Which candidates carried an impulse, from what each ball touched."""
        count, columns = len(self.radii), []
        starts = count + np.cumsum([0, *(len(solid) for solid in self.solids)])
        for body in range(count):
            for first, last in pairwise(starts):
                columns.append(touched[:, body, first:last].any(axis=1))
        columns += [touched[:, pair.first, pair.second] for pair in self.geometry.pairs]
        return np.stack(columns, axis=1)

    def _require_apart(self, position: Float[Array, "scenes ..."]) -> None:
        if position.shape[1:] != (len(self.radii), self.dimension):
            raise InputError(
                f"A start needs positions of {len(self.radii)} balls in {self.dimension} dimensions, not of "
                f"shape {position.shape[1:]}."
            )
        if float(jnp.min(jax.vmap(self.geometry.gap)(position), initial=0.0)) < -1e-9:
            raise InputError("At the start some balls overlap or lie inside a wall; move them apart.")


@eqx.filter_jit
@full_precision()
def _motion(balls: Balls, start: State, intervals, report: ReportKind) -> tuple[State, EventReport]:
    many = balls.bodies > LISTED
    # Round as many balls fit around one ball: 6 in the plane, 12 in space; the rest is for their distance.
    neighbours = min(balls.bodies - 1, 16 if balls.normals.shape[1] == 2 else 40) if many else None
    return event_driven_motion(
        balls, start, intervals, max_impacts=MAX_IMPACTS, report=report, neighbours=neighbours
    )
