"""The paper's figures: one per experiment and protocol."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec

from carom.execution.executor import ProgressCallback
from carom.plotting.style import figure_style, save_figure
from carom.reproduction.paper import panels
from carom.reproduction.paper.experiments import EXPERIMENTS, ORACLE, Experiment
from carom.reproduction.paper.panels import Trials, load_trials
from carom.systems import AbstractSystem, BouncingBall, NewtonsCradle

Panel = Callable[[Axes], None]


def write_figure(
    fits: pl.DataFrame, trials: Path, figures: Path, report: ProgressCallback | None = None
) -> Path:
    """Draw one experiment under one protocol as `<experiment>.<protocol>.png` and `.svg`.

    Arguments:
        fits: as `carom.reproduction.paper.tables.fits_of` gives them, of this experiment and protocol.
        trials: where the arrays of the trials are.
        figures: where the figure goes.
        report: unused; tasks are called with it.
    """
    name, protocol = fits["experiment"][0], fits["protocol"][0]
    with figure_style():
        figure = draw_experiment(load_trials(fits, trials), EXPERIMENTS[name], protocol)
        return save_figure(figure, figures / f"{name}.{protocol}")


def draw_experiment(trials: Trials, experiment: Experiment, protocol: str) -> Figure:
    """Six panels: the motion, what was learned, and the errors of all seeds."""
    figure = Figure(figsize=(12, 7.6), layout="constrained")
    grid = GridSpec(2, 3, figure=figure)
    group = {name: trial for name, trial in trials.items() if name != ORACLE}
    # The last two places are the same for all systems.
    four = _panels(group, experiment.system)
    for place, draw in zip([(0, 0), (0, 1), (0, 2), (1, 0)], four, strict=True):
        draw(figure.add_subplot(grid[place]))
    _contact_panels(figure, grid[1, 1], group)
    panels.draw_errors(figure.add_subplot(grid[1, 2]), trials)
    seeds = len(next(iter(trials.values())).seeds)
    figure.suptitle(
        f"{experiment.label}, protocol “{protocol}”\n"
        f"curves: for every model the seed whose error is the median of {seeds}; bands: all seeds",
        fontsize=11,
    )
    # Every label once, though most curves are in several panels.
    legend = {}
    for axes in figure.axes:
        legend |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, handlelength=3.5)
    return figure


def _panels(group: Trials, system: AbstractSystem) -> list[Panel]:
    """The four panels that differ between systems."""
    names = panels.HEIGHT if isinstance(system, BouncingBall) else panels.ANGLE
    phase = partial(panels.draw_phase, group=group, names=names)
    position = partial(panels.draw_position, group=group, names=names)
    slope = partial(panels.draw_slope, group=group, names=names)
    if isinstance(system, NewtonsCradle):
        balls = [partial(phase, body=ball, title=f"phase portrait of ball {ball + 1}") for ball in (0, 1)]
        return [*balls, position, slope]
    energy = partial(panels.draw_energy, group=group, system=system)
    return [partial(phase, body=0, title="phase portrait"), position, energy, slope]


def _contact_panels(figure: Figure, place: SubplotSpec, group: Trials) -> None:
    """One lane per model with contacts: curves that are nearly always 0 would hide each other on one axis."""
    models = [trial for trial in group.values() if "contact_on_truth" in trial.arrays]
    # A model without contacts leaves the place empty.
    lanes = place.subgridspec(max(1, len(models)), 1)
    for index, trial in enumerate(models):
        axes = figure.add_subplot(lanes[index])
        panels.draw_contact(axes, trial, first=index == 0, last=index == len(models) - 1)
