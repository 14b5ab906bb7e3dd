"""The grid as heat maps: for every learner the error, and below it the number of seeds that went wrong."""

import math
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from carom.plotting.style import figure_style, save_figure
from carom.reproduction.recipe.configuration import FORECAST_STEPS, LEARNERS
from carom.reproduction.recipe.tables import grid_fits

COLUMNS = 4
LEAST, GREATEST = 1e-3, 10.0
"""Errors beyond these have the same colour; the printed numbers tell them apart."""


def write_grid_figure(rows: pl.DataFrame, folder: Path) -> list[Path]:
    """Draw the grid as PNG and SVG; returns the path of the PNG."""
    with figure_style():
        return [save_figure(draw_grid(rows), folder / "grid")]


def draw_grid(rows: pl.DataFrame) -> Figure:
    """A map with errors for every learner, and under it one with failures."""
    fits = grid_fits(rows)
    trials, seeds = _trials(fits), sorted(fits["seed"].unique())
    learners = trials["model"].unique(maintain_order=True).to_list()
    columns = min(COLUMNS, len(learners))
    blocks = math.ceil(len(learners) / columns)
    figure = Figure(figsize=(1.2 + 2.7 * columns, 0.9 + 4.4 * blocks), layout="constrained")
    panels = figure.subplots(2 * blocks, columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    # Cividis serves the colour-blind and is darker throughout where it is lower, so that it prints in grey.
    errors = ScalarMappable(LogNorm(LEAST, GREATEST), "cividis")
    # Up to a grey on which black numbers can be read.
    failures = ScalarMappable(Normalize(0, 2 * len(seeds)), "Greys")
    for index, name in enumerate(learners):
        block, column = divmod(index, columns)
        upper, lower = panels[2 * block, column], panels[2 * block + 1, column]
        for axes, colors, value in ((upper, errors, "error"), (lower, failures, "wrong")):
            _draw(axes, trials.filter(pl.col("model") == name), colors, value)
        upper.set_title(LEARNERS[name].title)
        lower.set_xlabel("recorded bounces")
        if column == 0:
            upper.set_ylabel("error\nnoise σ / m and m/s")
            lower.set_ylabel("seeds with faults\nnoise σ / m and m/s")
    bar = figure.colorbar(errors, ax=panels.ravel().tolist(), extend="both", shrink=0.6, aspect=40)
    bar.set_label("error (paper's RMSE), median of seeds")
    figure.suptitle(
        f"Bouncing ball: forecasts of {FORECAST_STEPS} steps from the true start, seeds {seeds[0]} to "
        f"{seeds[-1]}.\nFaults: seeds of {len(seeds)} with a bounce missing, spurious or at a wrong sample; "
        "in brackets those\nwhose fit reports failure or found a wrong number of bounces in its recording",
        fontsize=10,
    )
    return figure


def _trials(fits: pl.DataFrame) -> pl.DataFrame:
    """One row per trial: the median error, the seeds with any fault, and those whose fit went astray."""
    astray = (pl.col("failed") == 1).fill_null(value=False) | pl.col("miscounted").fill_null(value=False)
    return fits.group_by("model", "noise", "bounces", maintain_order=True).agg(
        error=pl.col("paper_rmse").median(), wrong=(pl.col("off") | astray).sum(), astray=astray.sum()
    )


def _draw(axes: Axes, trials: pl.DataFrame, colors: ScalarMappable, value: str) -> None:
    """One map: bounces to the right, noise upwards, the number in every cell."""
    axes.set_axis_on()
    noises, bounces = (trials[key].unique().sort().to_list() for key in ("noise", "bounces"))
    picture = np.ones((len(noises), len(bounces), 4))
    for trial in trials.iter_rows(named=True):
        row, column = noises.index(trial["noise"]), bounces.index(trial["bounces"])
        # A logarithmic scale has no place for 0 nor for infinity.
        picture[row, column] = color = colors.to_rgba(np.array([np.clip(trial[value], 1e-9, 1e9)]))[0]
        astray = f" ({trial['astray']})" if trial["astray"] else ""
        text = _error_text(trial["error"]) if value == "error" else f"{trial['wrong']}{astray}"
        # The luma of the colour decides which ink can be read on it.
        ink = "white" if float(np.dot(color[:3], (0.299, 0.587, 0.114))) < 0.5 else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
    axes.imshow(picture, origin="lower", aspect="auto")
    axes.set_xticks(range(len(bounces)), [str(count) for count in bounces])
    axes.set_yticks(range(len(noises)), [f"{noise:g}" for noise in noises])
    axes.tick_params(length=0)
    axes.grid(visible=False)


def _error_text(error: float) -> str:
    """As many digits as fit into a cell."""
    if not math.isfinite(error) or error >= 1000:
        return "> 1000"
    if 0 < error < 1e-3:
        return f"{error:.0e}".replace("e-0", "e-")
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"
