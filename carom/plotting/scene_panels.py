"""Panels that show the bodies of a scene at one sample, with the trails that led there; one per dimension."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Polygon
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import proj3d
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from carom.data import Run
from carom.mechanics import Scene
from carom.plotting.scene_shapes import behind, body_radii, section, solids, view_of, widened
from carom.plotting.style import LINES

COLORS = [line.color for name, line in LINES.items() if name != "truth"]
SOLID, EDGE = "#D8D8D8", "#404040"
NUMBER: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "zorder": 4}
NUMBERED = 20
"""Up to so many bodies carry their number: colours repeat, and grey prints have none."""
POINT = 0.012
"""The radius that a body without one is drawn with, as a share of the widest extent."""


@runtime_checkable
class Panel(Protocol):
    """A picture of a run that can be set to any of its samples."""

    def show(self, sample: int, *, since: int = 0) -> None:
        """Bodies at a sample, and their trails since another one."""
        ...


def panel(figure: Figure, run: Run, scene: Scene) -> Panel:
    """The panel for the dimension of a scene, on an empty figure."""
    kinds = {1: _Line, 2: _Plane, 3: _Space}
    return kinds[scene.dimension](figure, run, scene)


def color_of(body: int) -> str:
    """The colour of a body."""
    return COLORS[body % len(COLORS)]


def number_color(body: int) -> str:
    """What can be read on that colour."""
    red, green, blue = to_rgb(color_of(body))
    return "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.4 else "white"


class _Plane:
    """Seen from above, or from the side where there is gravity: axes in metres, equal scales."""

    def __init__(self, figure: Figure, run: Run, scene: Scene):
        self.position, radii = run.position, body_radii(scene)
        around = solids(scene, radii)
        view = widened(view_of(run.position, radii, around))
        axes = figure.subplots()
        axes.set(xlim=view[0], ylim=view[1], aspect="equal", xlabel="x / m", ylabel="y / m")
        axes.grid(visible=False)
        for solid in around:
            axes.add_patch(Polygon(behind(solid, view), facecolor=SOLID, edgecolor=EDGE, linewidth=0.8))
        self.trails, self.balls, self.numbers = [], [], []
        least = POINT * float((view[:, 1] - view[:, 0]).max())
        for body, radius in enumerate(radii):
            color = color_of(body)
            self.trails.append(axes.plot([], [], color=color, linewidth=0.9, alpha=0.7, zorder=2)[0])
            ball = Circle(
                (0, 0), max(radius, least), facecolor=color, edgecolor="black", linewidth=0.8, zorder=3
            )
            self.balls.append(axes.add_patch(ball))
            if len(radii) <= NUMBERED and radius > least:
                self.numbers.append(axes.text(0, 0, str(body + 1), color=number_color(body), **NUMBER))

    def show(self, sample: int, *, since: int = 0) -> None:
        places = self.position[sample]
        for body, (trail, ball) in enumerate(zip(self.trails, self.balls, strict=True)):
            trail.set_data(*self.position[since : sample + 1, body].T)
            ball.set_center(tuple(places[body]))
        for number, place in zip(self.numbers, places, strict=False):
            number.set_position(tuple(place))


class _Line:
    """Places on a line against time, as bands as wide as the bodies."""

    def __init__(self, figure: Figure, run: Run, scene: Scene):
        self.time, self.position, radii = run.time, run.position[:, :, 0], body_radii(scene)
        around = solids(scene, radii)
        ((low, high),) = widened(view_of(run.position, radii, around))
        axes = figure.subplots()
        axes.set(xlabel="time / s", ylabel="position", ylim=(low, high), xlim=(run.time[0], run.time[-1]))
        for (normal, offset), *_ in around:
            place, end = offset * normal[0], low if normal[0] > 0 else high
            axes.axhspan(place, end, facecolor=SOLID, edgecolor=EDGE, linewidth=0.8)
        self.trails = []
        for body, radius in enumerate(radii):
            color, track = color_of(body), self.position[:, body]
            if radius > 0:
                axes.fill_between(
                    run.time, track - radius, track + radius, color=color, alpha=0.25, linewidth=0
                )
            self.trails.append(axes.plot([], [], color=color, linewidth=1.3)[0])
            if len(radii) <= NUMBERED:
                axes.annotate(
                    str(body + 1), (run.time[-1], track[-1]), xytext=(3, 0), textcoords="offset points",
                    va="center", fontsize=7,
                )  # fmt: skip

    def show(self, sample: int, *, since: int = 0) -> None:
        for trail, track in zip(self.trails, self.position.T, strict=True):
            trail.set_data(self.time[since : sample + 1], track[since : sample + 1])


class _Space:
    """Seen from an elevated corner without perspective, so that balls are circles of their size."""

    def __init__(self, figure: Figure, run: Run, scene: Scene):
        self.position, radii = run.position, body_radii(scene)
        around = solids(scene, radii)
        view = view_of(run.position, radii, around)
        axes: Any = figure.add_subplot(projection="3d", proj_type="ortho", computed_zorder=False)
        axes.view_init(elev=18, azim=-62)
        axes.set(xlim=view[0], ylim=view[1], zlim=view[2], xlabel="x / m", ylabel="y / m", zlabel="z / m")
        axes.set_box_aspect(view[:, 1] - view[:, 0], zoom=0.9)
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.set_major_locator(MaxNLocator(4))
        axes.zaxis.labelpad = 12
        axes.xaxis.pane.fill = axes.yaxis.pane.fill = axes.zaxis.pane.fill = False
        for plane, *_ in around:
            corners = section(plane, view)
            if len(corners):
                face = Poly3DCollection([corners], facecolor="none", edgecolor=EDGE, linewidth=0.6)
                axes.add_collection3d(face)
        self.trails = [
            axes.plot([], [], [], color=color_of(body), linewidth=0.8, alpha=0.7)[0]
            for body in range(len(radii))
        ]
        figure.canvas.draw()
        self.axes, self.radii = axes, np.maximum(radii, POINT * float(np.ptp(view)))
        self.balls = axes.scatter([], [], [], depthshade=False)
        self.numbers = []
        if len(radii) <= NUMBERED:
            self.numbers = [
                axes.text(0, 0, 0, str(body + 1), color=number_color(body), **NUMBER)
                for body in range(len(radii))
            ]

    def show(self, sample: int, *, since: int = 0) -> None:
        for body, trail in enumerate(self.trails):
            trail.set_data_3d(*self.position[since : sample + 1, body].T)
        self.balls.remove()
        places = self.position[sample]
        self.balls = self.axes.scatter(
            *places.T,
            s=(2 * self.radii * self._points_per_metre()) ** 2,
            c=[color_of(body) for body in range(len(places))],
            edgecolors="black",
            linewidths=0.8,
            depthshade=False,
        )
        for number, place in zip(self.numbers, places, strict=False):
            number.set_position_3d(tuple(place))

    def _points_per_metre(self) -> float:
        """Without perspective the pictures of three unit vectors have squares of lengths that sum to 2 s²."""
        places = np.concatenate([np.zeros((1, 3)), np.eye(3)])
        x, y, _ = proj3d.proj_transform(places[:, 0], places[:, 1], places[:, 2], self.axes.get_proj())
        pixels = self.axes.transData.transform(np.stack([x, y], axis=1))
        scale = np.sqrt(np.sum((pixels[1:] - pixels[0]) ** 2) / 2)
        return float(scale * 72 / self.axes.figure.dpi)
