"""The paper's figures: one per experiment and protocol, one for ablations and claims, and animations."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.lines import Line2D

from carom.digits import number
from carom.plotting.animation import write_animation
from carom.plotting.style import DATA, figure_style, line, line_style, marked_line, save_figure
from carom.reproduction.paper import panels
from carom.reproduction.paper.experiments import ALL, EXPERIMENTS, ORACLE, OURS
from carom.reproduction.paper.panels import Trials, load_errors, load_trials
from carom.systems import AbstractSystem, NewtonsCradle, Pendulum

ABLATIONS_NAME = "ablations"
Panel = Callable[[Axes], None]
ANIMATED = {"ball": 2.2, "cradle": 1.6}
"""Experiments with a picture, and the height of a panel in inches."""
GHOST, RADIUS = "#BBBBBB", 0.12
Places = Float[np.ndarray, "samples points 2"]


def write_figures(fits: pl.DataFrame, trials: Path, figures: Path) -> list[Path]:
    """Draw all experiments of some results; returns the paths of the PNG files and animations.

    A figure is written as `<experiment>.<protocol>.png` and `.svg`, ablations and claims as `ablations.png`,
    and an animation of ball and cradle as `<experiment>.<protocol>.gif`.

    Arguments:
        fits: as `carom.reproduction.paper.tables.fits_of` gives them.
        trials: where the arrays of the trials are.
        figures: where the figures go.
    """
    written, ablations = [], {}
    with figure_style():
        for name, protocol in fits.select("experiment", "protocol").unique(maintain_order=True).rows():
            errors = load_errors(fits, name, protocol)
            if not ALL[name].printed:
                ablations[ALL[name].label] = errors
                continue
            group, stem = load_trials(fits, trials, name, protocol), figures / f"{name}.{protocol}"
            written.append(save_figure(draw_experiment(group, errors, name, protocol), stem))
            if name in ANIMATED:
                written.append(figures / f"{name}.{protocol}.gif")
                title = f"{EXPERIMENTS[name].title}, protocol “{protocol}”"
                _animate(group, title, ANIMATED[name], written[-1])
        if ablations:
            written.append(save_figure(draw_ablations(ablations), figures / ABLATIONS_NAME))
    return written


def draw_experiment(group: Trials, errors: Trials, experiment: str, protocol: str) -> Figure:
    """Six panels: the motion, what was learned, and the errors of all seeds."""
    figure = Figure(figsize=(12, 7.6), layout="constrained")
    grid = GridSpec(2, 3, figure=figure)
    # The last two places are the same for all systems.
    four = _panels(group, EXPERIMENTS[experiment].system)
    for place, draw in zip([(0, 0), (0, 1), (0, 2), (1, 0)], four, strict=True):
        draw(figure.add_subplot(grid[place]))
    _contact_panels(figure, grid[1, 1], group)
    panels.draw_errors(figure.add_subplot(grid[1, 2]), errors)
    seeds = len(next(iter(errors.values())).seeds)
    figure.suptitle(
        f"{EXPERIMENTS[experiment].label}, protocol “{protocol}”\n"
        f"curves: for every model the seed whose error is the median of {seeds}; bands: all seeds",
        fontsize=11,
    )
    touches = any(trial.arrays["truth_contact"].any() for trial in group.values())
    figure.legend(
        handles=_legend(errors, touches=touches), loc="outside lower center", ncols=4, handlelength=3.5
    )
    return figure


def draw_ablations(ablations: Mapping[str, Trials]) -> Figure:
    """Errors over runs of every variant, one panel per ablation, by title."""
    columns = min(2, len(ablations))
    rows = -(-len(ablations) // columns)
    # The panel with the most rows sets the height of all.
    tallest = max(len(variants) for variants in ablations.values())
    figure = Figure(figsize=(6 * columns, rows * (1.2 + 0.42 * tallest) + 0.6), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, variants) in zip(places, ablations.items(), strict=False):
        panels.draw_errors(axes, variants, title=title, like=OURS)
        # Rows of one height in all panels.
        axes.set_ylim(tallest - 0.5, -0.5)
    for axes in places[len(ablations) :]:
        axes.set_axis_off()
    style = line_style(OURS)
    handles = [_mark(style.marker, "one seed", 5.0, color=style.color), _mark("|", "median", 11.0)]
    if any(trial.paper is not None for variants in ablations.values() for trial in variants.values()):
        handles.append(_mark("D", "paper (± standard error)", 5.0, face="white"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _panels(group: Trials, system: AbstractSystem) -> list[Panel]:
    """The four panels that differ between systems."""
    names = panels.names_of(system)
    phase = partial(panels.draw_phase, group=group, names=names)
    energy = partial(panels.draw_energy, group=group, system=system, error=False)
    position = partial(panels.draw_position, group=group, names=names)
    slope = partial(panels.draw_slope, group=group, names=names)
    first = partial(phase, body=0, title="phase portrait")
    if isinstance(system, Pendulum):
        return [first, energy, partial(energy, error=True), slope]
    if isinstance(system, NewtonsCradle):
        balls = [partial(phase, body=ball, title=f"phase portrait of ball {ball + 1}") for ball in (0, 1)]
        return [*balls, position, slope]
    return [first, position, energy, slope]


def _contact_panels(figure: Figure, place: SubplotSpec, group: Trials) -> None:
    """One lane per model with contacts: curves that are nearly always 0 would hide each other on one axis."""
    models = [trial for trial in group.values() if "contact_on_truth" in trial.arrays]
    # A model without contacts leaves the place empty.
    lanes = place.subgridspec(max(1, len(models)), 1)
    for index, trial in enumerate(models):
        axes = figure.add_subplot(lanes[index])
        panels.draw_contact(axes, trial, first=index == 0, last=index == len(models) - 1)


def _legend(errors: Trials, *, touches: bool) -> list[Line2D]:
    """Curves and marks; every model with the seed that is drawn."""
    handles = [Line2D([], [], **line("truth")), Line2D([], [], **DATA, label="data of the first seed")]
    for name, trial in errors.items():
        if name != ORACLE:
            error = trial.errors[trial.median_index]
            handle = Line2D([], [], **marked_line(name))
            text = "diverged" if np.isinf(error) else f"error {number(error)}"
            handle.set_label(f"{name}: seed {trial.seeds[trial.median_index]}, {text}")
            handles.append(handle)
    handles += [_mark("v", "true touch", 4.0)] * touches + [_mark("|", "median error", 11.0)]
    if any(trial.paper is not None for trial in errors.values()):
        handles.append(_mark("D", "paper (± standard error)", 5.0, face="white"))
    if ORACLE in errors:
        handles.append(_mark("x", "oracle: true equations, g fitted", 5.0, color=panels.ORACLE_COLOR))
    return handles


def _mark(marker: str, label: str, size: float, *, color: str = "black", face: str | None = None) -> Line2D:
    shape = {"linestyle": "none", "marker": marker, "markersize": size, "markerfacecolor": face or color}
    return Line2D([], [], label=label, color=color, **shape)


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
    figure = Figure(figsize=(1.6 * len(motions), height + 0.85), dpi=100)
    panels = figure.subplots(1, len(motions), squeeze=False)[0]
    top = height / (height + 0.85)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=top, wspace=0.04)
    drawn = []
    for axes, (name, motion) in zip(panels, motions.items(), strict=True):
        _draw_frame(axes, truth)
        axes.set_title(titles[name], fontsize=8, linespacing=1.1)
        # Drawn first, so that the model lies over the truth and not under it.
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
