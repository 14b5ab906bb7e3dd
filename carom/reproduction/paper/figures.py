"""The paper's figures from finished units: one per experiment and protocol, and one for the ablations."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.lines import Line2D

from carom.digits import number
from carom.plotting.style import DATA, figure_style, line, line_style, marked_line, save_figure
from carom.reproduction.paper.experiments import EXPERIMENTS
from carom.reproduction.paper.panels import (
    draw_contact,
    draw_energy,
    draw_phase,
    draw_position,
    draw_slope,
    names_of,
    with_contacts,
)
from carom.reproduction.paper.seed_panel import ORACLE_COLOR, draw_errors
from carom.reproduction.paper.statistics import ABLATION, OURS
from carom.reproduction.paper.trials import Group, grouped, load_oracle, load_units
from carom.systems import AbstractSystem, NewtonsCradle, Pendulum

ABLATIONS_NAME = "ablations"
Panel = Callable[[Axes], None]


def write_figures(units_folder: Path, figures_folder: Path) -> list[Path]:
    """Draw everything that the units of a folder allow; returns the paths of the PNG files.

    A figure is written as `<experiment>.<protocol>.png` and `.svg`, the ablations as `ablations.png`.
    """
    groups, oracle = grouped(load_units(units_folder)), load_oracle(units_folder)
    figures_folder.mkdir(parents=True, exist_ok=True)
    written = []
    for (experiment, protocol), group in groups.items():
        if experiment in EXPERIMENTS:
            name = f"{experiment}.{protocol}"
            with figure_style():
                figure = draw_experiment(group, EXPERIMENTS[experiment].system, oracle.get(name))
                written.append(save_figure(figure, figures_folder / name))
    variants = {key: group for key, group in groups.items() if key[0].startswith(ABLATION)}
    if variants:
        with figure_style():
            written.append(save_figure(draw_ablations(variants), figures_folder / ABLATIONS_NAME))
    return written


def draw_experiment(group: Group, system: AbstractSystem, oracle: Sequence[float] | None) -> Figure:
    """Six panels: what moves, what was learned, and how good it is over all seeds."""
    score = next(iter(group.values())).score
    figure = Figure(figsize=(12, 7.6), layout="constrained")
    grid = GridSpec(2, 3, figure=figure)
    panels = _panels(group, system)
    for place, panel in zip([(0, 0), (0, 1), (0, 2), (1, 0)], panels, strict=True):
        panel(figure.add_subplot(grid[place]))
    _contact_panels(figure, grid[1, 1], group)
    draw_errors(figure.add_subplot(grid[1, 2]), {name: unit.score for name, unit in group.items()}, oracle)
    seeds = len(score.seeds)
    figure.suptitle(
        f"{score.title} ({score.place}), protocol “{score.protocol}”\n"
        f"curves: for every model the seed whose error is the median of {seeds}; bands: all seeds",
        fontsize=11,
    )
    figure.legend(handles=_legend(group, oracle), loc="outside lower center", ncols=4, handlelength=3.5)
    return figure


def draw_ablations(groups: dict[tuple[str, str], Group]) -> Figure:
    """Errors over runs of every variant, one panel per ablation."""
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    tallest = max(len(group) for group in groups.values())
    figure = Figure(figsize=(6 * columns, rows * (1.2 + 0.42 * tallest) + 0.6), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, ((_, protocol), group) in zip(places, groups.items(), strict=False):
        title = next(iter(group.values())).score.title
        scores = {name: unit.score for name, unit in group.items()}
        draw_errors(axes, scores, None, title=f"{title} (protocol “{protocol}”)", like=OURS)
    for axes in places[len(groups) :]:
        axes.set_axis_off()
    handles = [
        _mark(line_style(OURS).marker, "one seed", 5.0, color=line_style(OURS).color),
        _mark("|", "median", 11.0),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _panels(group: Group, system: AbstractSystem) -> list[Panel]:
    """The four panels that differ between systems."""
    names = names_of(system)
    learned: Panel = lambda axes: draw_slope(axes, group, names)  # noqa: E731 (a list of four alike)
    if isinstance(system, Pendulum):
        return [
            lambda axes: draw_phase(axes, group, names, body=0, title="phase portrait"),
            lambda axes: draw_energy(axes, group, system, error=False),
            lambda axes: draw_energy(axes, group, system, error=True),
            learned,
        ]
    if isinstance(system, NewtonsCradle):
        return [
            lambda axes: draw_phase(axes, group, names, body=0, title="phase portrait of ball 1"),
            lambda axes: draw_phase(axes, group, names, body=1, title="phase portrait of ball 2"),
            lambda axes: draw_position(axes, group, names),
            learned,
        ]
    return [
        lambda axes: draw_phase(axes, group, names, body=0, title="phase portrait"),
        lambda axes: draw_position(axes, group, names),
        lambda axes: draw_energy(axes, group, system, error=False),
        learned,
    ]


def _contact_panels(figure: Figure, place: SubplotSpec, group: Group) -> None:
    """One lane per model with contacts: curves that are nearly always 0 would hide each other on one axis."""
    models = with_contacts(group)
    lanes = place.subgridspec(max(1, len(models)), 1)
    for index, unit in enumerate(models.values()):
        axes = figure.add_subplot(lanes[index])
        draw_contact(axes, unit, first=index == 0, last=index == len(models) - 1)


def _legend(group: Group, oracle: Sequence[float] | None) -> list[Line2D]:
    """What the curves and marks are; every model with the seed that is drawn."""
    handles = [Line2D([], [], **line("truth")), Line2D([], [], **DATA, label="data of the first seed")]
    for name, unit in group.items():
        seed, error = unit.score.seeds[unit.median_place], unit.score.errors[unit.median_place]
        handle = Line2D([], [], **marked_line(name))
        handle.set_label(
            f"{name}: seed {seed}, {'diverged' if np.isinf(error) else f'error {number(error)}'}"
        )
        handles.append(handle)
    handles.append(_mark("v", "true touch", 4.0))
    handles.append(_mark("|", "median error", 11.0))
    if any(unit.score.paper is not None for unit in group.values()):
        handles.append(_mark("D", "paper (± standard error)", 5.0, face="white"))
    if oracle:
        handles.append(_mark("x", "oracle: true equations, g fitted", 5.0, color=ORACLE_COLOR))
    return handles


def _mark(marker: str, label: str, size: float, *, color: str = "black", face: str | None = None) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=marker,
        label=label,
        markersize=size,
        color=color,
        markerfacecolor=face or color,
    )
