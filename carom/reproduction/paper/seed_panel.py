"""Errors of all seeds as dots: the paper's number and the oracle beside them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from carom.plotting.style import line_style
from carom.reproduction.paper.statistics import Score, spread

ORACLE_COLOR = "#707070"


def draw_errors(
    axes: Axes,
    scores: Mapping[str, Score],
    oracle: Sequence[float] | None,
    *,
    title: str = "error over runs",
    like: str | None = None,
) -> None:
    """One row per model on a logarithmic axis.

    Dots are seeds and the long tick is their median. The diamond is the paper's number, with its standard
    error where it printed one. What has left the axis, such as the oracle of a recording without noise or a
    forecast that diverged, is an arrow at the edge. `like` names a model whose look all rows have.
    """
    low, high = _range(scores, oracle)
    rows: list[tuple[str, Sequence[float], str, str]] = [
        (name, score.errors, line_style(like or name).color, line_style(like or name).marker)
        for name, score in scores.items()
    ]
    if oracle:
        rows.append(("oracle", oracle, ORACLE_COLOR, "x"))
    for row, (_, errors, color, marker) in enumerate(rows):
        if row % 2 == 0:  # says which row a mark near its edge belongs to
            axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", zorder=0)
        _draw_row(axes, row, errors, (low, high), color=color, marker=marker)
    for row, score in enumerate(scores.values()):
        if score.paper is not None:
            _draw_paper(axes, row, score.paper.value, score.paper.standard_error)
    axes.set_xscale("log")
    axes.set(xlim=(low, high), ylim=(len(rows) - 0.5, -0.5), xlabel="error (paper's RMSE)", title=title)
    axes.set_yticks(range(len(rows)), [_wrapped(name) for name, *_ in rows])
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    # Few decades leave too few labels: those in between are written too.
    if high / low < 100:
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}")


def _draw_row(
    axes: Axes,
    row: int,
    errors: Sequence[float],
    limits: tuple[float, float],
    *,
    color: str,
    marker: str,
) -> None:
    low, high = limits
    values = np.array(errors, float)
    # The same scatter every time, and neighbours in rank never on one line.
    heights = row + 0.24 * np.resize([0.0, 0.7, -0.7, 1.0, -1.0, 0.35, -0.35], len(values))
    inside = (values > low) & (values < high)
    edge = "white" if marker not in "x+" else None
    axes.plot(
        values[inside],
        heights[inside],
        linestyle="none",
        marker=marker,
        color=color,
        markersize=6,
        alpha=0.85,
        markeredgecolor=edge,
        markeredgewidth=0.4 if edge else 1.0,
    )
    for outside, symbol, place in ((values <= low, "<", low), (~(values < high), ">", high)):
        if outside.any():
            axes.plot(
                place, row, marker=symbol, color=color, markersize=7, clip_on=False, markeredgecolor="black"
            )
            side = "left" if symbol == "<" else "right"
            axes.annotate(
                f"{outside.sum()} of {len(values)}",
                (place, row - 0.34),
                xytext=(4 if side == "left" else -4, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=8,
            )
    median = spread(values).median
    if low < median < high:
        axes.plot([median, median], [row - 0.36, row + 0.36], color="black", linewidth=1.4, zorder=3)


def _draw_paper(axes: Axes, row: int, value: float, error: float | None) -> None:
    axes.errorbar(
        value,
        row + 0.34,
        xerr=error,
        marker="D",
        color="black",
        markersize=5,
        markerfacecolor="white",
        capsize=3,
        linewidth=1.0,
        zorder=4,
    )


def _range(scores: Mapping[str, Score], oracle: Sequence[float] | None) -> tuple[float, float]:
    """Holds all finite errors of models and the printed numbers; the oracle down to a hundredth of those."""
    shown = [error for score in scores.values() for error in score.errors]
    shown += [score.paper.value for score in scores.values() if score.paper is not None]
    finite = [error for error in shown if 0 < error < 1e6] or [1.0]
    low, high = min(finite), max(finite)
    low = min([low, *(error for error in oracle or () if error > low / 100)])
    return low / 2, high * 2


def _wrapped(name: str) -> str:
    """A long name on two lines, its bracket below."""
    return name.replace(" (", "\n(") if len(name) > 14 else name
