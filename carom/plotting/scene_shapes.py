"""What pictures of a scene show: the radii of its bodies, the solids around them, and how far to look."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from carom.mechanics import Plane, Scene

Solid = tuple[Plane, ...]
View = Float[np.ndarray, "dimension 2"]
MARGIN = 0.05
"""Room around what is shown, as a share of the widest extent."""


def body_radii(scene: Scene) -> Float[np.ndarray, "bodies"]:
    """The radii that the offsets of candidate contacts speak of, as small as they leave it open.

    A pair's offset is the sum of two radii, and two bodies at one wall differ in their offsets as in their
    radii. A single body may be of any size: it is a point, and its walls are where its centre stops.

    Example:
        >>> from carom.systems import Billiards
        >>> body_radii(Billiards(radii=(0.1, 0.2)).scene()).round(9).tolist()
        [0.1, 0.2]
    """
    rows, values = [], []
    for pair in scene.geometry.pairs:
        row = np.zeros(scene.bodies)
        row[[pair.first, pair.second]] = 1
        rows.append(row)
        values.append(pair.offset)
    seen: dict[tuple, tuple[int, float]] = {}
    for wall in scene.geometry.walls:
        # The same wall for another body has the same normals, and edges as far from it.
        shape = tuple(normal for normal, _ in wall.planes)
        turn = tuple(round(offset - wall.offset, 9) for _, offset in wall.planes)
        first = seen.setdefault((shape, turn), (wall.body, wall.offset))
        if first[0] != wall.body:
            row = np.zeros(scene.bodies)
            row[wall.body], row[first[0]] = 1, -1
            rows.append(row)
            values.append(wall.offset - first[1])
    if not rows:
        return np.zeros(scene.bodies)
    return np.maximum(np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0], 0)


def solids(scene: Scene, radii: Float[np.ndarray, "bodies"]) -> list[Solid]:
    """The walls as solids, each once: planes behind all of which no body can be."""
    found: dict[tuple, Solid] = {}
    for wall in scene.geometry.walls:
        planes = tuple((normal, offset - float(radii[wall.body])) for normal, offset in wall.planes)
        found.setdefault(tuple((normal, round(offset, 6)) for normal, offset in planes), planes)
    return list(found.values())


def view_of(
    position: Float[np.ndarray, "samples bodies dimension"],
    radii: Float[np.ndarray, "bodies"],
    around: Sequence[Solid],
) -> View:
    """The box that all bodies stay in, out to walls along its axes that are not far away."""
    low = np.nanmin(position - radii[None, :, None], axis=(0, 1))
    high = np.nanmax(position + radii[None, :, None], axis=(0, 1))
    reach = max(float((high - low).max()), 1e-9)
    for (normal, offset), *edges in around:
        axis = int(np.argmax(np.abs(normal)))
        if edges or abs(normal[axis]) < 1 - 1e-9:
            continue
        place = offset * normal[axis]
        if normal[axis] > 0 and low[axis] - reach < place < high[axis]:
            low[axis] = min(low[axis], place)
        elif normal[axis] < 0 and low[axis] < place < high[axis] + reach:
            high[axis] = max(high[axis], place)
    # A motion along one axis still has a picture.
    thin = np.maximum(0.1 * reach - (high - low), 0) / 2
    return np.stack([low - thin, high + thin], axis=1)


def widened(view: View) -> View:
    """The view with a margin around it."""
    margin = MARGIN * float((view[:, 1] - view[:, 0]).max())
    return view + np.array([-margin, margin])


def behind(solid: Solid, view: View) -> Float[np.ndarray, "corners 2"]:
    """The part of a plane view that a solid takes, as a polygon: the view cut at one plane after another."""
    (left, right), (bottom, top) = view
    corners = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    for normal, offset in solid:
        height = corners @ np.asarray(normal) - offset
        kept = []
        for index in range(len(corners)):
            here, there = index, (index + 1) % len(corners)
            if height[here] <= 0:
                kept.append(corners[here])
            if (height[here] <= 0) != (height[there] <= 0):
                share = height[here] / (height[here] - height[there])
                kept.append(corners[here] + share * (corners[there] - corners[here]))
        corners = np.array(kept).reshape(-1, 2)
        if not len(corners):
            break
    return corners


def section(plane: Plane, view: View) -> Float[np.ndarray, "corners 3"]:
    """Where a plane cuts a box, as a polygon; none where it does not."""
    normal, offset = np.asarray(plane[0]), plane[1]
    corners = np.array([[view[a, bit >> a & 1] for a in range(3)] for bit in range(8)])
    height = corners @ normal - offset
    tolerance = 1e-9 * float(np.ptp(view))
    found = [corner for corner, h in zip(corners, height, strict=True) if abs(h) <= tolerance]
    for first in range(8):
        for axis in range(3):
            second = first | 1 << axis
            if (
                second != first
                and min(height[first], height[second]) < -tolerance
                and (max(height[first], height[second]) > tolerance)
            ):
                share = height[first] / (height[first] - height[second])
                found.append(corners[first] + share * (corners[second] - corners[first]))
    if len(found) < 3:
        return np.zeros((0, 3))
    points = np.array(found)
    across = np.linalg.svd(np.asarray(normal)[None])[2][1:]
    flat = (points - points.mean(axis=0)) @ across.T
    return points[np.argsort(np.arctan2(flat[:, 1], flat[:, 0]))]
