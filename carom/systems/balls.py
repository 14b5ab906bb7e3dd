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
from carom.systems.base import AbstractSystem, float64_state, trajectory
from carom.types import Coordinates, Scalar, State, Trajectory, Values

Solid = tuple[Plane, ...]
"""The planes behind all of which a ball cannot be; the first is the wall, the others end it."""
NEIGHBOUR_LISTS = 48
"""With more bodies than this each is compared with its neighbours only."""
PADDING = 256
"""Motions are computed with a multiple of this number of intervals."""
BATCH = 64
"""Scenes that are computed together on a processor: their state fits into the cache of a core."""
MAX_IMPACTS = 1000
"""Impacts of a ball within a sample: more than one with e = 0.98 makes before it rests. By then those of an
inelastic collapse are slow, and their contacts last. Several times as many are refused."""


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
        # Traced parameters are not checked: only numbers can be compared here.
        def wrong(values, valid) -> bool:
            return any(isinstance(x, float) and not valid(x) for x in values)

        if self.damping != 0:
            raise InputError("Balls among planes move without damping.")
        if not self.radii or len(self.masses) != len(self.radii):
            raise InputError(f"{len(self.radii)} radii were given for {len(self.masses)} masses.")
        for name, values in (("radius", self.radii), ("friction", (self.friction,))):
            if wrong(values, lambda x: 0 <= x < np.inf):
                raise InputError(f"A {name} must be at least 0, but one is {min(values):g}.")
        if wrong(self.masses, lambda x: 0 < x < np.inf):
            raise InputError(f"Masses must be positive, but they are {self.masses}.")
        if wrong((self.restitution,), lambda x: 0 <= x <= 1):
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
        walls = tuple(_wall(body, self.radii[body], solid) for body in range(count) for solid in self.solids)
        # On a line only neighbours can meet.
        pairs = pairwise(range(count)) if self.dimension == 1 else combinations(range(count), 2)
        touching = tuple(Pair(i, j, self.radii[i] + self.radii[j]) for i, j in pairs)
        return ContactGeometry(count, self.dimension, walls + touching)

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        if self.field is None:
            return jnp.zeros((), position.dtype)
        masses, field = (jnp.asarray(x, position.dtype) for x in (self.masses, self.field))
        return -jnp.sum(masses[:, None] * field[None] * position)

    def balls(self) -> Balls:
        """The same as arrays."""
        planes = [plane for solid in self.solids for plane in solid]
        return Balls(
            masses=jnp.asarray(self.masses, float),
            radii=jnp.asarray(self.radii, float),
            normals=jnp.asarray([normal for normal, _ in planes], float),
            offsets=jnp.asarray([offset for _, offset in planes], float),
            restitution=jnp.asarray(self.restitution, float),
            friction=jnp.asarray(self.friction, float),
            gravity=None if self.field is None else jnp.asarray(self.field, float),
            solids=self._planes_of_solids(),
        )

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        times = np.asarray(times, float)
        with jax.enable_x64(True):
            first = jax.tree.map(lambda part: jnp.asarray(np.asarray(part, float)[None]), start)
            self._require_apart(first.position)
            # Padded by intervals of no length, so that motions of about the same length share a program.
            count = max(len(times) - 1, 0)
            intervals = np.pad(np.diff(times), (0, -count % PADDING))
            samples, report = _motion(self.balls(), first, intervals, "contacts")
        samples, report = jax.tree.map(lambda part: np.asarray(part)[:count], (samples, report))
        _require_resolved(report, times)
        states = jax.tree.map(lambda one, later: np.concatenate([one, later[:, 0]]), first, samples)
        return trajectory(times, states, self._contacts(report.contact[:, 0]))

    def motions(self, starts: State, *, steps: int, step_size: float) -> Motions:
        """The exact motions of many scenes at once, without their contacts; several times faster so.

        Arguments:
            starts: states with a leading axis of scenes. On a processor they are taken in batches, on all of
                its cores.
        """
        with jax.enable_x64(True):
            first = float64_state(starts)
            self._require_apart(first.position)
            balls, intervals = self.balls(), np.full(steps, float(step_size))
        # In NumPy, so that slices of a batch are not compiled.
        parts = np.asarray(first.position), np.asarray(first.velocity)
        scenes = len(parts[0])
        size = min(scenes, BATCH) if jax.default_backend() == "cpu" else scenes
        result = Motions(*(np.empty((steps + 1, *part.shape)) for part in parts))

        def fill(begin: int) -> None:
            # The last ones are taken with some before them, so that all batches have one shape.
            here = slice(min(begin, scenes - size), min(begin, scenes - size) + size)
            with jax.enable_x64(True):
                start = State(*(jnp.asarray(part[here]) for part in parts))
                samples, _ = _motion(balls, start, intervals, "none")
            result.position[0, here], result.position[1:, here] = start.position, samples.position
            result.velocity[0, here], result.velocity[1:, here] = start.velocity, samples.velocity

        if scenes:
            fill(0)  # compiled once, before all others
            # XLA releases the interpreter lock, so threads are enough.
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(fill, range(size, scenes, size)))
        return result

    def _planes_of_solids(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the planes of every solid."""
        ends = np.cumsum([0, *(len(solid) for solid in self.solids)]).tolist()
        return tuple(tuple(range(*bounds)) for bounds in pairwise(ends))

    def _contacts(self, touched: np.ndarray) -> np.ndarray:
        """Which candidates carried an impulse, from what each ball touched: balls, then planes."""
        count = len(self.radii)
        walls = [count + np.array(planes) for planes in self._planes_of_solids()]
        columns = [touched[:, body, planes].any(axis=1) for body in range(count) for planes in walls]
        columns += [touched[:, pair.first, pair.second] for pair in self.geometry.pairs]
        return np.stack(columns, axis=1)

    def _require_apart(self, position: Float[Values, "scenes ..."]) -> None:
        if position.shape[1:] != (len(self.radii), self.dimension):
            raise InputError(
                f"A start needs positions of {len(self.radii)} balls in {self.dimension} dimensions, not of "
                f"shape {position.shape[1:]}."
            )
        # Balls may start in contact, to the rounding of their positions.
        if np.min(self.geometry.gap(np.asarray(position)), initial=0.0) < -1e-9:
            raise InputError("At the start some balls overlap or lie inside a wall; move them apart.")


def _wall(body: int, radius: float, solid: Solid) -> Wall:
    """A wall with its edges, where the centre of a ball stops."""
    (normal, offset), *edges = ((normal, offset + radius) for normal, offset in solid)
    return Wall(body, normal, offset, tuple(edges))


def _require_resolved(report: EventReport, times: np.ndarray) -> None:
    """Refuse a motion in which impacts were left out, as it would be wrong and might overlap."""
    crowded = "a ball may meet more others than can be followed"
    problems = (report.truncated, "there are too many impacts"), (report.crowded, crowded)
    for flags, problem in problems:
        for step in np.flatnonzero(np.asarray(flags)[:, 0])[:1]:
            span = f"Between t = {times[step]:g} s and {times[step + 1]:g} s"
            raise InputError(f"{span} {problem}; choose a smaller step size.")


@eqx.filter_jit
@full_precision()
def _motion(balls: Balls, start: State, intervals, report: ReportKind) -> tuple[State, EventReport]:
    # Around a ball there is room for 6 in the plane and 12 in space; the rest is for their distance.
    most = min(balls.bodies - 1, 16 if balls.normals.shape[1] == 2 else 40)
    neighbours = most if balls.bodies > NEIGHBOUR_LISTS else None
    return event_driven_motion(
        balls, start, intervals, max_impacts=MAX_IMPACTS, report=report, neighbours=neighbours
    )
