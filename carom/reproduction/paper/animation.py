"""The motions as moving pictures: the truth and every model side by side."""

from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carom.plotting.animation import write_animation
from carom.plotting.style import figure_style, line_style
from carom.reproduction.paper.experiments import EXPERIMENTS
from carom.reproduction.paper.trials import Trials, load_trials

ANIMATED = {"ball": 2.2, "cradle": 1.6}
"""Experiments with a picture, and the height of a panel in inches."""
GHOST, RADIUS = "#BBBBBB", 0.12
Places = Float[np.ndarray, "samples points 2"]


def write_animations(fits: pl.DataFrame, trials: Path, figures: Path) -> list[Path]:
    """Write `<experiment>.<protocol>.gif` for ball and cradle, as `write_figures` does; returns the paths."""
    figures.mkdir(parents=True, exist_ok=True)
    written = []
    for experiment, protocol in fits.select("experiment", "protocol").unique(maintain_order=True).rows():
        if experiment in ANIMATED:
            written.append(figures / f"{experiment}.{protocol}.gif")
            title = f"{EXPERIMENTS[experiment].title}, protocol “{protocol}”"
            group = load_trials(fits, trials, experiment, protocol)
            _animate(group, title, ANIMATED[experiment], written[-1])
    return written


def _animate(group: Trials, title: str, height: float, path: Path) -> None:
    """About ten seconds, whatever the motion takes; every model by the seed with the median error.

    A grey outline repeats the truth beside every model.
    """
    arrays = next(iter(group.values())).arrays
    truth, time = _places(arrays["truth_position"]), arrays["time"]
    motions, titles = {"truth": truth}, {"truth": "truth"}
    for name, trial in group.items():
        motions[name] = _places(trial.forecast[0])
        titles[name] = f"{name.replace(' (', chr(10) + '(')}\nseed {trial.seeds[trial.median_index]}"
    with figure_style():
        figure = Figure(figsize=(1.6 * len(motions), height + 0.85), dpi=100)
        panels = figure.subplots(1, len(motions), squeeze=False)[0]
        top = height / (height + 0.85)
        figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=top, wspace=0.04)
        drawn = []
        for axes, (name, motion) in zip(panels, motions.items(), strict=True):
            _draw_frame(axes, truth)
            axes.set_title(titles[name], fontsize=8, linespacing=1.1)
            outline = {"markerfacecolor": "none", "markeredgecolor": GHOST, "color": GHOST}
            drawn.append((axes.plot([], [], "-o", markersize=15, **outline)[0], truth))
            drawn.append((axes.plot([], [], "-o", markersize=15, color=line_style(name).color)[0], motion))
        clock = figure.text(0.012, 0.97, "", fontsize=9, va="top")

        def show(sample: int) -> None:
            clock.set_text(f"{title}, median seeds, t = {time[sample]:.2f} s")
            for curve, places in drawn:
                # What diverged is not drawn, and what left the picture is clipped.
                curve.set_data(*np.where(np.isfinite(places[sample]), places[sample], np.nan).T)

        write_animation(figure, show, path, samples=len(time))


def _places(position: Float[np.ndarray, "samples bodies 1"]) -> Places:
    """Balls in the picture: one ball by its height; a cradle's around their pivot, which joins them.

    The points of the theory are drawn as balls that touch at equal angles; q_1 ≥ q_2 ≥ …, so that the first
    is the one on the right.
    """
    balls = position.shape[1]
    if balls == 1:
        return np.stack([np.zeros_like(position[..., 0]), position[..., 0]], axis=-1)
    angle = position[..., 0] + 2 * np.arcsin(RADIUS) * ((balls - 1) / 2 - np.arange(balls))
    ends = np.stack([np.sin(angle), -np.cos(angle)], axis=-1)
    return np.insert(ends, range(1, balls), 0.0, axis=1)


def _draw_frame(axes: Axes, truth: Places) -> None:
    """A floor, or the space below a pivot."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if truth.shape[1] == 1:
        top = 1.15 * float(truth[..., 1].max())
        axes.set(xlim=(-1, 1), ylim=(-0.12 * top, top))
        axes.axhspan(-0.12 * top, 0, color="#D8D8D8", linewidth=0)
    else:
        axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
