"""Scenes as pictures: bodies and walls with the trails of a run, as a figure or as an animation."""

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import proj3d
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from PIL import Image

from carom.data import Run
from carom.mechanics import Plane, Scene
from carom.plotting.style import EDGE, PALETTE, SOLID, figure_style, save_figure
from carom.storage.atomic import atomic_write

Solid = tuple[Plane, ...]
View = Float[np.ndarray, "dimension 2"]
Show = Callable[[int, int], None]
"""Moves the bodies of a figure to a sample, with trails since another one."""

MARGIN = 0.05
"""Empty space around a scene, as a fraction of its largest extent."""
POINT = 0.012
"""The radius that a point body is drawn with, as a fraction of the largest extent."""
TRAIL = 0.06
"""The length of the trails of an animation, as a fraction of the run."""
SECONDS, FRAMES_PER_SECOND = 10.0, 20
"""The length of an animation at most, whatever the duration of the motion."""
NUMBERED = 20
"""Up to this many bodies are numbered: colours repeat, and are lost in grey."""
_NUMBER: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "zorder": 4}


class Shapes(NamedTuple):
    """What a picture of a scene shows besides the motion.

    Arguments:
        radii: of the bodies; 0 for points.
        solids: the walls, each as the planes that it lies behind.
        view: the box that is shown, without its margin.
    """

    radii: Float[np.ndarray, "bodies"]
    solids: Sequence[Solid]
    view: View


def write_run_picture(run: Run, scene: Scene, path: Path, *, title: str = "") -> None:
    """Write a run as a PNG file with an SVG file beside it or, by the suffix .gif, as an animation.

    The picture has the bodies at the end of the run and their trails; an animation lasts at most ten seconds.
    """
    animated, trail = path.suffix == ".gif", max(1, int(TRAIL * len(run)))
    with figure_style():
        figure, show = _panel(run, scene, dpi=80 if animated else 150)

        def show_frame(sample: int) -> None:
            show(sample, max(0, sample - trail))
            clock = f"t = {run.time[sample]:.2f} s"
            figure.axes[0].set_title(f"{title}, {clock}" if title else clock, parse_math=False)

        if animated:
            _write_animation(figure, show_frame, path, samples=len(run))
            return
        show(len(run) - 1, 0)
        figure.axes[0].set_title(title, parse_math=False)
        save_figure(figure, path.with_suffix(""))


def _write_animation(figure: Figure, show: Callable[[int], None], path: Path, *, samples: int) -> None:
    """A GIF file of evenly spaced samples."""
    canvas, frames = FigureCanvasAgg(figure), []
    count = min(samples, int(SECONDS * FRAMES_PER_SECOND))
    for sample in np.unique(np.linspace(0, samples - 1, count).astype(int)).tolist():
        show(sample)
        canvas.draw()
        # Computed once: recomputing the layout for every frame would take most of the time.
        figure.set_layout_engine("none")
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(64))
    duration = round(1000 / FRAMES_PER_SECOND)
    with atomic_write(path) as temporary:
        first, *others = frames
        first.save(temporary, format="GIF", save_all=True, append_images=others, duration=duration, loop=0)


def body_radii(scene: Scene) -> Float[np.ndarray, "bodies"]:
    """Radii of the bodies, the least-squares solution of smallest norm where the contacts leave them open.

    The offset of a pair is the sum of two radii, and the offsets of two bodies at one wall differ by the
    difference of their radii. A single body is a point, as nothing determines its radius.

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
    # Walls are stored per body, with the radius in the offset.
    first_at: dict[tuple, tuple[int, float]] = {}
    for wall in scene.geometry.walls:
        # The same wall for another body has the same normals, and edges at the same distances from it.
        normals = tuple(normal for normal, _ in wall.planes)
        distances = tuple(round(offset - wall.offset, 9) for _, offset in wall.planes)
        body, offset = first_at.setdefault((normals, distances), (wall.body, wall.offset))
        if body != wall.body:
            row = np.zeros(scene.bodies)
            row[wall.body], row[body] = 1, -1
            rows.append(row)
            values.append(wall.offset - offset)
    if not rows:
        return np.zeros(scene.bodies)
    return np.maximum(np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0], 0)


def solids(scene: Scene, radii: Float[np.ndarray, "bodies"]) -> list[Solid]:
    """The walls as solids, each once: a wall occupies what lies behind all of its planes."""
    found: dict[tuple, Solid] = {}
    for wall in scene.geometry.walls:
        planes = tuple((normal, offset - float(radii[wall.body])) for normal, offset in wall.planes)
        found.setdefault(tuple((normal, round(offset, 6)) for normal, offset in planes), planes)
    return list(found.values())


def view_of(
    position: Float[np.ndarray, "samples bodies dimension"],
    radii: Float[np.ndarray, "bodies"],
    walls: Sequence[Solid],
) -> View:
    """The bounding box of the motion, extended to axis-aligned walls within its own width."""
    low = np.nanmin(position - radii[None, :, None], axis=(0, 1))
    high = np.nanmax(position + radii[None, :, None], axis=(0, 1))
    # Walls further away than the motion is wide would only make it small.
    reach = max(float((high - low).max()), 1e-9)
    for (normal, offset), *edges in walls:
        axis = int(np.argmax(np.abs(normal)))
        if edges or abs(normal[axis]) < 1 - 1e-9:
            continue
        surface = offset * normal[axis]
        if normal[axis] > 0 and low[axis] - reach < surface < high[axis]:
            low[axis] = min(low[axis], surface)
        elif normal[axis] < 0 and low[axis] < surface < high[axis] + reach:
            high[axis] = max(high[axis], surface)
    # A motion along a single axis still needs an area to be drawn on.
    missing = np.maximum(0.1 * reach - (high - low), 0) / 2
    return np.stack([low - missing, high + missing], axis=1)


def widened(view: View) -> View:
    """The view with a margin around it."""
    margin = MARGIN * float((view[:, 1] - view[:, 0]).max())
    return view + np.array([-margin, margin])


def polygon(view: View, *, on: Solid = (), behind: Solid = ()) -> Float[np.ndarray, "corners dimension"]:
    """The corners, in their order, of the convex polygon on some planes, behind others and inside a box.

    It is the part of a plane view that a solid occupies, or what a plane cuts out of a view in space; empty
    where there is nothing.
    """
    dimension, tolerance = len(view), 1e-9 * float(np.ptp(view))
    sides = [
        (sign * axis, sign * bound)
        for axis, bounds in zip(np.eye(dimension), view, strict=True)
        for sign, bound in zip((-1, 1), bounds, strict=True)
    ]
    normals, offsets = (np.array(part) for part in zip(*behind, *sides, strict=True))
    found = []
    # Every corner is where two of the planes meet. There are few: clipping one by one would not be faster.
    for pair in combinations(range(len(offsets)), 2):
        matrix = np.array([*(normal for normal, _ in on), *normals[[*pair]]])
        if abs(np.linalg.det(matrix)) > 1e-9:
            corner = np.linalg.solve(matrix, [*(offset for _, offset in on), *offsets[[*pair]]])
            if (normals @ corner <= offsets + tolerance).all():
                found.append(corner)
    points = np.array(found).reshape(-1, dimension)
    # Sorted by angle within the polygon's plane, about its centre; where three planes meet, corners coincide.
    in_plane = np.linalg.svd(np.array([normal for normal, _ in on]))[2][1:] if on else np.eye(2)
    flat = (points - points.mean(axis=0, keepdims=True)) @ in_plane.T if len(points) else points
    points = points[np.argsort(np.arctan2(flat[:, 1], flat[:, 0]))]
    points = points[~np.isclose(points, np.roll(points, 1, axis=0), atol=tolerance).all(axis=1)]
    return points if len(points) > 2 else np.zeros((0, dimension))


def body_color(body: int) -> str:
    """The colour of a body; they repeat."""
    return list(PALETTE.values())[body % len(PALETTE)]


def _number_color(body: int) -> str:
    """Black or white, whichever can be read on the colour of the body."""
    red, green, blue = to_rgb(body_color(body))
    return "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.4 else "white"


def _panel(run: Run, scene: Scene, *, dpi: int) -> tuple[Figure, Show]:
    """A figure with the proportions of the motion, and what moves its bodies."""
    panels = {1: _line_panel, 2: _plane_panel, 3: _space_panel}
    radii = body_radii(scene)
    walls = solids(scene, radii)
    shapes = Shapes(radii, walls, view_of(run.position, radii, walls))
    size = (7.0, 4.0)
    if scene.dimension > 1:
        extent = np.ptp(shapes.view, axis=1) if scene.dimension == 2 else np.ones(2)
        width, height = 5.0 * extent / extent.max()
        size = (max(2.6, width + 0.8), max(2.2, height + 0.9))
    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    return figure, panels[scene.dimension](figure, run, shapes)


def _plane_panel(figure: Figure, run: Run, shapes: Shapes) -> Show:
    """Bodies in the plane at equal scales: from above, or from the side where there is gravity."""
    position, radii, view = run.position, shapes.radii, widened(shapes.view)
    axes = figure.subplots()
    axes.set(xlim=view[0], ylim=view[1], aspect="equal", xlabel="x / m", ylabel="y / m")
    axes.grid(visible=False)
    for solid in shapes.solids:
        axes.add_patch(Polygon(polygon(view, behind=solid), facecolor=SOLID, edgecolor=EDGE, linewidth=0.8))
    trails, circles, numbers = [], [], []
    least = POINT * float((view[:, 1] - view[:, 0]).max())
    for body, radius in enumerate(radii):
        color = body_color(body)
        trails.append(axes.plot([], [], color=color, linewidth=0.9, alpha=0.7, zorder=2)[0])
        circle = Circle((0, 0), max(radius, least), facecolor=color, edgecolor="black", zorder=3)
        circle.set_linewidth(0.8)
        circles.append(axes.add_patch(circle))
        # A number on a point would be all that is seen of it.
        if len(radii) <= NUMBERED and radius > least:
            numbers.append((body, axes.text(0, 0, str(body + 1), color=_number_color(body), **_NUMBER)))

    def show(sample: int, since: int) -> None:
        for body, (trail, circle) in enumerate(zip(trails, circles, strict=True)):
            trail.set_data(*position[since : sample + 1, body].T)
            circle.set_center(tuple(position[sample, body]))
        for body, number in numbers:
            number.set_position(tuple(position[sample, body]))

    return show


def _line_panel(figure: Figure, run: Run, shapes: Shapes) -> Show:
    """Positions on a line against time, as bands of the width of the bodies."""
    position, radii = run.position[:, :, 0], shapes.radii
    ((low, high),) = widened(shapes.view)
    axes = figure.subplots()
    axes.set(xlabel="time / s", ylabel="position", ylim=(low, high), xlim=(run.time[0], run.time[-1]))
    for (normal, offset), *_ in shapes.solids:
        end = low if normal[0] > 0 else high
        axes.axhspan(offset * normal[0], end, facecolor=SOLID, edgecolor=EDGE, linewidth=0.8)
    trails = []
    for body, radius in enumerate(radii):
        color, path = body_color(body), position[:, body]
        if radius > 0:
            axes.fill_between(run.time, path - radius, path + radius, color=color, alpha=0.25, linewidth=0)
        trails.append(axes.plot([], [], color=color, linewidth=1.3)[0])
        if len(radii) <= NUMBERED:
            end = (run.time[-1], path[-1])
            axes.annotate(
                str(body + 1), end, xytext=(3, 0), textcoords="offset points", va="center", fontsize=7
            )

    def show(sample: int, since: int) -> None:
        for trail, path in zip(trails, position.T, strict=True):
            trail.set_data(run.time[since : sample + 1], path[since : sample + 1])

    return show


def _space_panel(figure: Figure, run: Run, shapes: Shapes) -> Show:
    """Bodies in space from an elevated corner, in orthographic projection, where balls are circles."""
    position, view, bodies = run.position, shapes.view, len(shapes.radii)
    radii = np.maximum(shapes.radii, POINT * float(np.ptp(view)))
    axes: Any = figure.add_subplot(projection="3d", proj_type="ortho", computed_zorder=False)
    axes.view_init(elev=18, azim=-62)
    axes.set(xlim=view[0], ylim=view[1], zlim=view[2], xlabel="x / m", ylabel="y / m", zlabel="z / m")
    axes.set_box_aspect(view[:, 1] - view[:, 0], zoom=0.9)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.pane.fill = False
    axes.zaxis.labelpad = 12
    # Edges only: filled faces would hide what moves behind them.
    for plane, *_ in shapes.solids:
        shape = polygon(view, on=(plane,))
        if len(shape):
            axes.add_collection3d(Poly3DCollection([shape], facecolor="none", edgecolor=EDGE, linewidth=0.6))
    colors = [body_color(body) for body in range(bodies)]
    trails = [axes.plot([], [], [], color=color, linewidth=0.8, alpha=0.7)[0] for color in colors]
    figure.canvas.draw()  # the projection is known only after drawing
    balls = [axes.scatter([], [], [], depthshade=False)]
    numbers = [
        axes.text(0, 0, 0, str(body + 1), color=_number_color(body), **_NUMBER)
        for body in range(bodies if bodies <= NUMBERED else 0)
    ]

    def show(sample: int, since: int) -> None:
        for body, trail in enumerate(trails):
            trail.set_data_3d(*position[since : sample + 1, body].T)
        # The sizes of a 3D scatter plot cannot be changed in place.
        balls.pop().remove()
        size = (2 * radii * _points_per_unit(axes)) ** 2
        style = {"edgecolors": "black", "linewidths": 0.8, "depthshade": False}
        balls.append(axes.scatter(*position[sample].T, s=size, c=colors, **style))
        for number, centre in zip(numbers, position[sample], strict=False):
            number.set_position_3d(tuple(centre))

    return show


def _points_per_unit(axes: Any) -> float:
    """The scale s of a parallel projection, in which the squared images of three unit vectors sum to 2 s²."""
    ends = np.concatenate([np.zeros((1, 3)), np.eye(3)])
    x, y, _ = proj3d.proj_transform(ends[:, 0], ends[:, 1], ends[:, 2], axes.get_proj())
    pixels = axes.transData.transform(np.stack([x, y], axis=1))
    scale = np.sqrt(np.sum((pixels[1:] - pixels[0]) ** 2) / 2)
    return float(scale * 72 / axes.figure.dpi)
