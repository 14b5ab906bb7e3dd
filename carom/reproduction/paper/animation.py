"""The motions as moving pictures: the truth and every model side by side."""

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from carom.plotting.animation import write_animation
from carom.plotting.style import figure_style, line_style
from carom.reproduction.paper.experiments import EXPERIMENTS
from carom.reproduction.paper.trials import Trials, load_trials
from carom.systems import AbstractSystem, NewtonsCradle

ANIMATED = ("ball", "cradle")
GHOST = "#BBBBBB"


def write_animations(fits: pl.DataFrame, trials: Path, figures: Path) -> list[Path]:
    """Write `<experiment>.<protocol>.gif` for ball and cradle, as `write_figures` does; returns the paths."""
    figures.mkdir(parents=True, exist_ok=True)
    written = []
    for experiment, protocol in fits.select("experiment", "protocol").unique(maintain_order=True).rows():
        if experiment in ANIMATED:
            path = figures / f"{experiment}.{protocol}.gif"
            title = f"{EXPERIMENTS[experiment].title}, protocol “{protocol}”"
            _animate(
                load_trials(fits, trials, experiment, protocol), EXPERIMENTS[experiment].system, title, path
            )
            written.append(path)
    return written


def _animate(group: Trials, system: AbstractSystem, title: str, path: Path) -> None:
    """About ten seconds, whatever the motion takes; every model by the seed with the median error.

    A grey outline repeats the truth beside every model.
    """
    arrays = next(iter(group.values())).arrays
    truth, time = arrays["truth_position"], arrays["time"]
    motions, titles = {"truth": truth}, {"truth": "truth"}
    for name, trial in group.items():
        motions[name] = trial.forecast[0]
        seed = trial.seeds[trial.median_index]
        titles[name] = f"{name.replace(' (', chr(10) + '(')}\nseed {seed}"
    scene = _Cradle if isinstance(system, NewtonsCradle) else _Ball
    with figure_style():
        figure = Figure(figsize=(1.6 * len(motions), scene.panel_height + 0.85), dpi=100)
        places = figure.subplots(1, len(motions), squeeze=False)[0]
        top = scene.panel_height / (scene.panel_height + 0.85)
        figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=top, wspace=0.04)
        scenes = []
        for axes, (name, motion) in zip(places, motions.items(), strict=True):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.set_title(titles[name], fontsize=8, linespacing=1.1)
            scenes.append(scene(axes, motion, truth, line_style(name).color))
        clock = figure.text(0.012, 0.97, "", fontsize=9, va="top")

        def show(sample: int) -> None:
            clock.set_text(f"{title}, median seeds, t = {time[sample]:.2f} s")
            for drawn in scenes:
                drawn.show(sample)

        write_animation(figure, show, path, samples=len(time))


class _Ball:
    """A ball above a floor."""

    panel_height = 2.2

    def __init__(self, axes: Axes, motion: np.ndarray, truth: np.ndarray, color: str):
        self.motion, self.truth = motion[:, 0, 0], truth[:, 0, 0]
        top = 1.15 * float(self.truth.max())
        self.range = (-0.12 * top, top)
        axes.set(xlim=(-1, 1), ylim=self.range)
        axes.axhspan(self.range[0], 0, color="#D8D8D8", linewidth=0)
        axes.axhline(0, color="black", linewidth=1)
        self.radius = 0.05 * top  # drawn larger than it is, and on the floor when its coordinate is 0
        (self.ghost,) = axes.plot([], [], "o", markersize=15, markerfacecolor="none", markeredgecolor=GHOST)
        (self.ball,) = axes.plot([], [], "o", markersize=15, color=color)
        self.outside = axes.text(0, 0.03 * top, "", ha="center", fontsize=8)

    def show(self, sample: int) -> None:
        height = float(self.motion[sample])
        seen = self.range[0] < height + self.radius < self.range[1]
        self.ball.set_data([0.0] if seen else [], [height + self.radius] if seen else [])
        text = f"at {height:.0f} m".replace("-", "−") if np.isfinite(height) else "diverged"
        self.outside.set_text("" if seen else text)
        self.ghost.set_data([0.0], [float(self.truth[sample]) + self.radius])


class _Cradle:
    """Pendulums from one pivot. The points of the theory are drawn as balls that touch at equal angles."""

    panel_height = 1.6
    radius = 0.12

    def __init__(self, axes: Axes, motion: np.ndarray, truth: np.ndarray, color: str):
        self.motion, self.truth = motion[:, :, 0], truth[:, :, 0]
        axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
        balls = self.motion.shape[1]
        # q_1 ≥ q_2 ≥ …: the first ball is the one on the right.
        self.offsets = 2 * np.arcsin(self.radius) * ((balls - 1) / 2 - np.arange(balls))
        self.ghosts = [self._pendulum(axes, GHOST, filled=False) for _ in range(balls)]
        self.pendulums = [self._pendulum(axes, color, filled=True) for _ in range(balls)]
        axes.plot(0, 0, "o", color="black", markersize=4)

    def show(self, sample: int) -> None:
        for drawn, angles in ((self.ghosts, self.truth[sample]), (self.pendulums, self.motion[sample])):
            for (rod, ball), angle in zip(drawn, angles + self.offsets, strict=True):
                end = (float(np.sin(angle)), float(-np.cos(angle)))
                rod.set_data([0, end[0]], [0, end[1]])
                ball.set_center(end)

    def _pendulum(self, axes: Axes, color: str, *, filled: bool) -> tuple[Line2D, Circle]:
        (rod,) = axes.plot([0, 0], [0, -1], color=color, linewidth=1.2)
        ball = Circle((0, -1), self.radius, facecolor=color if filled else "white", edgecolor=color, zorder=3)
        axes.add_patch(ball)
        return rod, ball
