"""The paper's figures: one per experiment and protocol."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.lines import Line2D

from carom.digits import number
from carom.execution.executor import ProgressCallback
from carom.plotting.style import DATA, LINES, figure_style, line, marked_line, save_figure
from carom.reproduction.paper import panels
from carom.reproduction.paper.experiments import EXPERIMENTS, ORACLE
from carom.reproduction.paper.panels import Trials, load_errors, load_trials
from carom.systems import AbstractSystem, NewtonsCradle, Pendulum

Panel = Callable[[Axes], None]


def write_figures(
    fits: pl.DataFrame, trials: Path, figures: Path, report: ProgressCallback | None = None
) -> list[Path]:
    """Draw the experiments of some results, each as `<experiment>.<protocol>.png` and `.svg`.

    Arguments:
        fits: as `carom.reproduction.paper.tables.fits_of` gives them.
        trials: where the arrays of the trials are.
        figures: where the figures go.
        report: unused; tasks are called with it.
    """
    written = []
    with figure_style():
        for name, protocol in fits.select("experiment", "protocol").unique(maintain_order=True).rows():
            group, errors = load_trials(fits, trials, name, protocol), load_errors(fits, name, protocol)
            figure = draw_experiment(group, errors, name, protocol)
            written.append(save_figure(figure, figures / f"{name}.{protocol}"))
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
            error = number(trial.errors[trial.median_index])
            handles.append(Line2D([], [], **marked_line(name)))
            handles[-1].set_label(f"{name}: seed {trial.seeds[trial.median_index]}, error {error}")
    handles += [_mark("v", "true touch", 4.0)] * touches + [_mark("|", "median error", 11.0)]
    if any(trial.paper is not None for trial in errors.values()):
        handles.append(_mark("D", "paper (± standard error)", 5.0, face="white"))
    if ORACLE in errors:
        handles.append(_mark("x", "oracle: true equations, g fitted", 5.0, color=LINES[ORACLE].color))
    return handles


def _mark(marker: str, label: str, size: float, *, color: str = "black", face: str | None = None) -> Line2D:
    shape = {"linestyle": "none", "marker": marker, "markersize": size, "markerfacecolor": face or color}
    return Line2D([], [], label=label, color=color, **shape)
