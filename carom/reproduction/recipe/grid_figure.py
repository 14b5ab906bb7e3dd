"""The grid as heat maps: for every learner the error, and below it the seeds that went wrong."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LogNorm, Normalize
from matplotlib.figure import Figure

from carom.plotting.style import figure_style, save_figure
from carom.reproduction.recipe.grid_tables import CellScore, cell_scores

COLUMNS = 4
LEAST, GREATEST = 1e-3, 10.0
"""Errors beyond these have the same colour; the printed numbers tell them apart."""


class _Look(NamedTuple):
    """What a map shows of a cell, and in which colour."""

    palette: Colormap
    norm: Normalize
    value: Callable[[CellScore], float]
    text: Callable[[CellScore], str]

    def color(self, score: CellScore) -> tuple[float, ...]:
        # A logarithmic scale has no place for 0 nor for infinity.
        return self.palette(self.norm(np.clip(self.value(score), 1e-9, 1e9)))


def write_grid_figure(document: Mapping[str, Any], stem: Path) -> Path:
    """Draw the document as PNG and SVG; returns the path of the PNG."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    with figure_style():
        return save_figure(draw_grid(document), stem)


def draw_grid(document: Mapping[str, Any]) -> Figure:
    """A map with errors for every learner, and under it one with failures."""
    learners, seeds = document["learners"], len(document["seeds"])
    columns = min(COLUMNS, len(learners))
    blocks = -(-len(learners) // columns)
    figure = Figure(figsize=(1.2 + 2.7 * columns, 0.9 + 4.4 * blocks), layout="constrained")
    places = figure.subplots(2 * blocks, columns, squeeze=False)
    # Cividis serves the colour-blind and is darker throughout where it is lower, so that it prints in grey.
    errors = _Look(mpl.colormaps["cividis"], LogNorm(LEAST, GREATEST), lambda score: score.error, _error)
    # Up to a grey on which black numbers can be read.
    failures = _Look(mpl.colormaps["Greys"], Normalize(0, 2 * seeds), lambda score: score.wrong, _wrong)
    for index, (name, title) in enumerate(learners.items()):
        block, column = divmod(index, columns)
        upper, lower = places[2 * block, column], places[2 * block + 1, column]
        _draw(upper, document, name, errors)
        _draw(lower, document, name, failures)
        upper.set_title(title)
        lower.set_xlabel("recorded bounces")
        if column == 0:
            upper.set_ylabel("error\nnoise σ / m and m/s")
            lower.set_ylabel("seeds gone wrong\nnoise σ / m and m/s")
    for index in range(len(learners), blocks * columns):
        block, column = divmod(index, columns)
        places[2 * block, column].set_axis_off()
        places[2 * block + 1, column].set_axis_off()
    bar = figure.colorbar(
        ScalarMappable(errors.norm, errors.palette),
        ax=places[: 2 * blocks].ravel().tolist(),
        extend="both",
        shrink=0.6,
        aspect=40,
    )
    bar.set_label("error (paper's RMSE), median of seeds")
    figure.suptitle(
        f"Bouncing ball: forecasts of {document['forecast_steps']} steps from the true start, seeds "
        f"{document['seeds'][0]} to {document['seeds'][-1]}.\n"
        f"Gone wrong: seeds of {seeds} with a bounce missing, added or at a wrong sample; in brackets those\n"
        "whose fit says that it failed, or found a wrong number of bounces in its recording",
        fontsize=10,
    )
    return figure


def _draw(axes: Axes, document: Mapping[str, Any], learner: str, look: _Look) -> None:
    """One map: bounces to the right, noise upwards, the number in every cell."""
    noises, bounces, scores = document["noises"], document["bounces"], cell_scores(document)
    picture = np.ones((len(noises), len(bounces), 4))
    for row, noise in enumerate(noises):
        for column, count in enumerate(bounces):
            score = scores.get((learner, noise, count))
            if score is None:
                continue
            picture[row, column] = look.color(score)
            dark = float(picture[row, column, :3] @ (0.299, 0.587, 0.114)) < 0.5
            color = "white" if dark else "black"
            axes.text(column, row, look.text(score), ha="center", va="center", fontsize=7.5, color=color)
    axes.imshow(picture, origin="lower", aspect="auto")
    axes.set_xticks(range(len(bounces)), [str(count) for count in bounces])
    axes.set_yticks(range(len(noises)), [f"{noise:g}" for noise in noises])
    axes.tick_params(length=0)
    axes.grid(visible=False)


def _error(score: CellScore) -> str:
    """So many digits as fit into a cell."""
    error = score.error
    if not math.isfinite(error) or error >= 1000:
        return "> 1000"
    if 0 < error < 1e-3:
        return f"{error:.0e}".replace("e-0", "e-")
    return f"{error:.2g}" if error < 10 else f"{error:.0f}"


def _wrong(score: CellScore) -> str:
    return f"{score.wrong} ({score.astray})" if score.astray else f"{score.wrong}"
