"""Curves, samples, credible bands and contacts on the axes of a figure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from carom.notebook import PALETTE
from carom.plotting.style import DATA, POINTS

Column = Float[np.ndarray, "points"]

MOST_POINTS, MOST_STEPS, MOST_CONTACTS = 600, 1500, 200
"""Samples, steps of a curve and contacts that are drawn, evenly chosen: more cannot be told apart."""


def thinned(most: int, *columns: Column) -> list[Float[np.ndarray, "fewer"]]:
    """Evenly spaced entries, at most `most` of them.

    Example:
        >>> thinned(3, np.arange(7.0))[0].tolist()
        [0.0, 3.0, 6.0]
    """
    stride = -(-len(columns[0]) // most)
    return [column[::stride] for column in columns]


def plot_samples(
    axes: Axes, x: Column, y: Column, *, label: str, color: str = POINTS, size: float = 3.5
) -> None:
    """Measured samples as points."""
    axes.plot(*thinned(MOST_POINTS, x, y), **DATA | {"color": color, "markersize": size}, label=label)


def plot_curve(
    axes: Axes, x: Column, y: Column, *, label: str, color: str = PALETTE["blue"], dash: Any = "-"
) -> None:
    """A curve of a model."""
    axes.plot(*thinned(MOST_STEPS, x, y), color=color, linestyle=dash, linewidth=1.4, label=label)


def plot_band(axes: Axes, x: Column, low: Column, high: Column, *, label: str) -> None:
    """A band between two curves."""
    x, low, high = thinned(MOST_STEPS, x, low, high)
    axes.fill_between(x, low, high, color=PALETTE["blue"], alpha=0.25, linewidth=0, label=label)


def mark_contacts(axes: Axes, times: Column) -> None:
    """A dashed line at the time of every contact."""
    for index, time in enumerate(times[:MOST_CONTACTS]):
        # One entry in the legend for all of them.
        label = "contact" if index == 0 else None
        axes.axvline(time, color=PALETTE["vermilion"], linestyle=(0, (4, 3)), linewidth=1.0, label=label)


def limit_to_data(axes: Axes, data: Sequence[np.ndarray]) -> None:
    """Show the range of the data and half as much beyond: a diverging forecast must not squeeze them."""
    values = np.concatenate(data)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.5 * max(high - low, 1e-9)
    axes.set_ylim(max(axes.get_ylim()[0], low - margin), min(axes.get_ylim()[1], high + margin))


def widen_to_scale(axes: Axes, values: np.ndarray) -> None:
    """Show at least a fifth of the typical value: a quantity that hardly varies should look constant."""
    middle = float(np.nanmedian(values))
    half = max(0.1 * abs(middle), 0.55 * float(np.nanmax(values) - np.nanmin(values)))
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, middle - half), max(high, middle + half))
