"""Walls from velocity jumps: planes that no data lie behind, at which a body closed and then opened.

The evidence of a plane is how many nats its impacts are likelier than jumps of unknown cause, which are
anywhere and in any direction. Most walls are aligned with the axes; others must be that much likelier. The
direction of a single impulse, which friction turns, only starts the search: the positions of several impacts
determine the plane, by least squares.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from carom.estimation.detection.events import TOLERANCE
from carom.estimation.detection.switching_filter import Motion

ALIGNED = 0.9
"""Least cosine of the angle between two directions that are taken to be the same."""
BEHIND, CLEARLY = 0.002, 5.0
"""Greatest fraction of the samples that may lie behind a wall, and by how many standard deviations."""
STRICT, LOOSE = 0.01, 0.1
"""Depth behind a wall at which no data lie, relative to the range of the motion, as contacts that last press
bodies into it; and where its direction is not yet known well."""
UNEVEN = 2e-3
"""Scatter of the positions of impacts at one wall, relative to the range of the motion: lenses bend walls."""
SLOPE = 2.0
"""Nats by which impacts at a wall must be likelier, per angle, for it not to be aligned with the axes."""
EVIDENT = 3.0
"""Least nats by which the impacts at a wall must be likelier than jumps of unknown cause."""
TILT, STEEPEST = 0.25, 0.7
"""Typical and greatest tangent of the angle of impulses to the normal, due to friction."""
DIRECTIONS = 64
"""Greatest number of directions of jumps that are tried as the normal of a wall."""


class Hits(NamedTuple):
    """Velocity jumps of one body as arrays."""

    position: Float[np.ndarray, "hits dimension"]
    before: Float[np.ndarray, "hits dimension"]
    after: Float[np.ndarray, "hits dimension"]
    error: Float[np.ndarray, "hits"]
    rate_error: Float[np.ndarray, "hits"]

    def some(self, rows: np.ndarray) -> "Hits":
        return Hits(*(part[rows] for part in self))


class Plane(NamedTuple):
    """A hypothetical wall."""

    normal: Float[np.ndarray, "dimension"]
    offset: float
    members: Bool[np.ndarray, "hits"]
    evidence: float
    """Nats by which its impacts are likelier than jumps of unknown cause, of which each may determine the
    offset."""


def best_plane(
    hits: Hits, free: np.ndarray, track: np.ndarray, motion: Motion, walls: Sequence[np.ndarray]
) -> Plane | None:
    """The most evident plane that no data lie behind."""
    dimension = track.shape[1]
    axes = [sign * axis for axis in np.eye(dimension) for sign in (1.0, -1.0)]
    directions: list[np.ndarray] = []
    if dimension > 1:
        change = (hits.after - hits.before)[free]
        fastest = np.argsort(-np.sum(change**2, axis=1))[:DIRECTIONS]
        directions = list(change[fastest] / np.linalg.norm(change[fastest], axis=1, keepdims=True))
    best = None
    for number, normal in enumerate([*axes, *directions]):
        aligned = number < len(axes)
        turned = normal
        for _ in range(0 if aligned else 2):
            # The direction of one impulse is not exact: far from the impact data may seem to lie behind.
            plane = _plane(hits, free, track, motion, turned, LOOSE)
            turned = turned if plane is None else _turned(hits, plane, motion)
        plane = _plane(hits, free, track, motion, turned, STRICT)
        if plane is None or any(plane.normal @ wall > ALIGNED for wall in walls):
            continue
        plane = plane if aligned else plane._replace(evidence=plane.evidence - SLOPE * (dimension - 1))
        if best is None or plane.evidence > best.evidence:
            best = plane
    return best


def _plane(
    hits: Hits,
    free: np.ndarray,
    track: np.ndarray,
    motion: Motion,
    normal: Float[np.ndarray, "dimension"],
    tolerance: float,
) -> Plane | None:
    """The plane with this normal at which most impacts are, if no data lie behind it.

    Arguments:
        tolerance: how far data may lie behind, relative to the range of the motion; noise adds to it.
    """
    closing, opening = hits.before @ normal, hits.after @ normal
    slack = 2 * TOLERANCE * np.abs(closing) + 2 * hits.rate_error
    height = hits.position @ normal
    # The highest that a plane may be: a few samples may be lost tracks.
    few = max(2, int(BEHIND * len(track)))
    lowest = float(np.partition(track @ normal, few)[few]) if len(track) > few else np.inf
    limit = lowest + CLEARLY * motion.noise[0] + tolerance * motion.length
    possible = free & (closing < 0) & (opening >= -slack) & (opening <= -closing + slack) & (height < limit)
    along = opening - closing
    across = np.linalg.norm(hits.after - hits.before - along[:, None] * normal, axis=1)
    across = np.maximum(across - 2 * hits.rate_error, 0)
    rows = np.flatnonzero(possible & (across < STEEPEST * along))
    if not len(rows):
        return None
    spread = np.hypot(hits.error, UNEVEN * motion.length)[rows]
    apart = (height[rows, None] - height[None, rows]) / spread[:, None]
    alone = np.log(motion.length / (np.sqrt(2 * np.pi) * spread))
    gain = np.maximum(alone[:, None] - 0.5 * np.minimum(apart**2, 100.0), 0)
    centre = int(np.argmax(gain.sum(axis=0)))
    near = gain[:, centre] > 0
    weight = 1 / spread[near] ** 2
    offset = float(weight @ height[rows[near]] / weight.sum())
    members = np.zeros(len(free), bool)
    members[rows[near]] = True
    # The first impact determines the offset. Friction turns the impulses of all alike.
    residual = (height[rows[near]] - offset) * np.sqrt(weight)
    turn = float(np.median(across[members] / along[members])) / TILT
    evidence = float((alone[near] - 0.5 * residual**2).sum() - alone.max()) - 0.5 * turn**2
    # Among many jumps some lie in a plane by chance: each of them might have determined the offset.
    evidence -= float(np.log(free.sum()))
    return Plane(normal, offset, members, evidence)


def _turned(hits: Hits, plane: Plane, motion: Motion) -> Float[np.ndarray, "dimension"]:
    """The normal of a plane through the positions of its impacts, near the direction of their impulses."""
    own = hits.some(plane.members)
    change = own.after - own.before
    normal = change.sum(axis=0)
    normal = normal / np.linalg.norm(normal)
    tangents = np.linalg.svd(normal[None])[2][1:]
    spread = np.hypot(own.error, UNEVEN * motion.length)
    weight = 1 / spread**2
    from_centre = own.position - weight @ own.position / weight.sum()
    height, along = from_centre @ normal, from_centre @ tangents.T
    matrix = (weight[:, None] * along).T @ along + np.eye(len(tangents)) / TILT**2
    normal = normal - np.linalg.solve(matrix, along.T @ (weight * height)) @ tangents
    return normal / np.linalg.norm(normal)
