"""Pictures of how cost grows, from benchmarks/results/growth.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from carom.plotting.style import LINES, figure_style, save_figure

Rows = Sequence[Mapping[str, Any]]
PAPER, CAROM, COMMAND = LINES["CD-Lagrange"], LINES["ResNet"], LINES["VIN"]


def write_growth_figures(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what was measured; returns the paths of the PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    with figure_style():
        figures = {"length": draw_length(document), "others": draw_others(document)}
        return [save_figure(figure, folder / name) for name, figure in figures.items()]


def draw_length(document: Mapping[str, Any]) -> Figure:
    """Time and peak memory against the number of samples."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    paper, command, fits = (document[name] for name in ("paper_length", "paper_command", "carom_length"))
    _draw(left, paper, _column(paper, "seconds"), PAPER, "recipe paper, one epoch")
    _draw(left, fits, _column(fits, "seconds"), CAROM, "recipe carom, whole fit with compilation")
    _guide(left, paper, _column(paper, "seconds"))
    left.set(title="Processor time", ylabel="time / s", yscale="log")
    for rows, look, label in (
        (paper, PAPER, "recipe paper, in Python"),
        (command, COMMAND, "carom fit --recipe paper, whole command"),
        (fits, CAROM, "recipe carom, in Python"),
    ):
        _draw(right, rows, _column(rows, "peak_bytes") / 1e9, look, label)
    right.set(title="Peak memory of the process", ylabel="memory / GB")
    right.set_ylim(0, 1.1 * right.get_ylim()[1])
    for axes in (left, right):
        axes.set(xscale="log", xlabel="samples of the recording")
        axes.legend()
    return figure


def draw_others(document: Mapping[str, Any]) -> Figure:
    """Cost against bodies, forecasts at once and members of an ensemble."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    rows = document["bodies"]
    _draw(first, rows, _column(rows, "microseconds_per_step") / 1e3, PAPER, "recipe paper")
    first.set(title="Bodies of a cradle", xlabel="bodies", ylabel="time of a gradient step / ms")
    rows = document["batch"]
    _draw(second, rows, _column(rows, "steps_per_second") / 1e6, PAPER, "model of 500 units")
    second.set(
        title="Forecasts at once", xlabel="forecasts", ylabel="million model steps per processor second"
    )
    rows = document["ensemble"]
    _draw(third, rows, _column(rows, "microseconds_per_step") / 1e3, PAPER, "recipe paper")
    third.set(title="Members of an ensemble", xlabel="members", ylabel="time of a member's step / ms")
    for axes in (second, third):
        axes.set(xscale="log")
    for axes in (first, second, third):
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    return figure


def _column(rows: Rows, name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], float)


def _draw(axes, rows: Rows, values: np.ndarray, look, label: str) -> None:
    options = {"color": look.color, "linestyle": look.dash, "marker": look.marker, "markersize": 5}
    axes.plot(_column(rows, "size"), values, label=label, **options)


def _guide(axes, rows: Rows, values: np.ndarray) -> None:
    """A line of cost in proportion, below the last point."""
    sizes = _column(rows, "size")
    axes.plot(
        sizes, 0.4 * values[-1] * sizes / sizes[-1], color="#909090", linewidth=1.0, label="in proportion"
    )
