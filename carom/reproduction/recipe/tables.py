"""The tables of `results/learning.json` and `grid.json`, and the heat maps of the grid."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

import carom.evaluation.tables as text
from carom.digits import MISSING, number, signed
from carom.evaluation.results import wide
from carom.evaluation.tables import Cell, Table, arrange, cell, tabulate, where
from carom.plotting.style import figure_style, save_figure
from carom.reproduction.recipe.configuration import EXPERIMENTS, FORECAST_STEPS, LEARNERS

_LABELS = {"experiment": {name: one.title for name, one in EXPERIMENTS.items()}}
_OURS, _ORACLE, _FLOOR = "carom", "oracle", "oracle, floor estimated"
_ours, _oracle, _floor = (partial(where, "model", model) for model in (_OURS, _ORACLE, _FLOOR))
PAPER_NOISE = 0.2
"""Of the paper's ball."""


def _by_experiment(fits: pl.DataFrame, columns: dict[str, Cell], caption: str) -> Table:
    names, fits = {"experiment": "experiment"}, arrange(fits, experiment=EXPERIMENTS)
    return tabulate(fits, names, columns, caption=caption, labels=_LABELS)


def errors_table(rows: pl.DataFrame) -> Table:
    """What was known in every experiment, its error beside the oracle's and the paper's, and its impacts."""
    return _by_experiment(
        wide(rows),
        {
            **_entries("truth", "touch", "start", "velocities"),
            "mean ± s.e.": _ours(cell("paper_rmse", text.mean_text)),
            "median": _ours(cell("paper_rmse", text.median_text)),
            "oracle: mean": _oracle(cell("paper_rmse", text.average_text)),
            "impacts: mistimed / missed / spurious of true": _ours(text.impacts_text),
            "paper": lambda group: EXPERIMENTS[group["experiment"][0]].paper or MISSING,
        },
        f"Error over {rows['seed'].n_unique()} seeds, on the recorded span.",
    )


def restitution_table(rows: pl.DataFrame) -> Table:
    """Estimated restitutions: how near, how often inside their interval, how certain, how spread."""
    truth = {name: one.system.restitution for name, one in EXPERIMENTS.items() if "restitution" in one.learn}
    fits = wide(rows).filter(pl.col("model") == _OURS, pl.col("experiment").is_in(list(truth)))
    true = pl.col("experiment").replace_strict(truth, default=None, return_dtype=pl.Float64)
    fits = fits.with_columns(
        error=pl.col("restitution") - true,
        # What the data did not determine is not covered.
        covered=true.is_between("restitution_low", "restitution_high").fill_null(value=False),
    )
    return _by_experiment(
        fits,
        {
            "true e": lambda group: f"{truth[group['experiment'][0]]:g}",
            "largest error": cell("error", lambda errors: number(max(errors.abs()))),
            "95 % interval covers": cell("covered", text.share_text),
            "mean s.e.": cell("restitution_error", text.average_text),
            "spread over seeds": cell("restitution", _deviation),
            "mean − true": cell("error", lambda errors: signed(text.summarize(errors).mean)),
        },
        "Estimated restitution over seeds; the spread is the standard deviation of the estimates.",
    )


def held_out_table(rows: pl.DataFrame) -> Table:
    """Forecasts from starts that were not recorded, beside the oracles'."""
    # Without an oracle only a few starts were tried, which is not the same quantity.
    compared = rows.filter(pl.col("model") == _ORACLE)["experiment"].unique()
    median = cell("held_out_median", text.median_text)
    return _by_experiment(
        wide(rows).filter(pl.col("experiment").is_in(compared.to_list())),
        {
            **_entries("truth", "touch", "start"),
            "median error": _ours(median),
            "oracle": _oracle(median),
            "ratio": partial(_ratio_to, _ORACLE),
            "oracle without floor": _floor(median),
            "ratio to it": partial(_ratio_to, _FLOOR),
            "impacts wrong per seed": _ours(cell("held_out_wrong", text.median_text)),
        },
        "Held-out starts: the median error of 50 starts, median over seeds. The second oracle estimates "
        "the floor too, as the learner does. The last column is the median over seeds of the impacts "
        "that are mistimed, missed or spurious from all 50 together.",
    )


def bent_table(rows: pl.DataFrame) -> Table:
    """How far the learned slope of the bent potential is from the true one."""
    fits = wide(rows.filter(pl.col("experiment") == "bent"))
    lines = []
    for title, metric in (("95th percentile", "slope_95_share"), ("root mean square", "slope_rmse_share")):
        shares = fits[metric]
        # Best and worst too, since few seeds were fitted.
        found = (text.summarize(shares).median, min(shares), max(shares))
        lines.append((title, *("diverged" if math.isinf(x) else f"{100 * x:.1f} %" for x in found)))
    caption = "Bent potential: error of ∂U/∂q over the recorded samples, as a share of its range there."
    return Table(caption, ("error", "median seed", "best seed", "worst seed"), tuple(lines))


def grid_fits(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per fit of the grid, in the order of `LEARNERS`, and what went wrong with it.

    Columns `off`: a bounce of the forecast is missing, spurious or at a wrong sample; `miscounted`: a wrong
    number of bounces was found in the recording, null for learners that do not count them.
    """
    fits = wide(rows.filter(pl.col("model") != "scheme"))
    absent = [name for name in ("failed", "found_impacts", "training_steps") if name not in fits.columns]
    return arrange(
        fits.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)
        .with_columns(
            off=(pl.col("mistimed") + pl.col("missed") + pl.col("spurious")) > 0,
            miscounted=pl.col("found_impacts") != pl.col("bounces"),
        )
        .sort("noise", "bounces", "seed"),
        model=LEARNERS,
    )


def grid_table(rows: pl.DataFrame) -> Table:
    """Every learner at the paper's noise, and how often it goes wrong in the whole grid."""
    fits = grid_fits(rows)
    noises, seeds = sorted(fits["noise"].unique()), sorted(fits["seed"].unique())
    # A quick grid may not have the noise of the paper.
    noise = min(noises, key=lambda value: abs(value - PAPER_NOISE))
    scheme = rows.filter(pl.col("model") == "scheme")["value"]
    training = fits["training_steps"].max()

    def at(level: float, show: Cell) -> Cell:
        return lambda group: show(group.filter(pl.col("noise") == level))

    on_time = cell("off", lambda off: text.share_text(~off))
    return tabulate(
        fits,
        {"model": "learner"},
        {
            "bounces = {bounces}": at(noise, cell("paper_rmse", text.median_text)),
            "all bounces on time": on_time,
            f"at σ = {noises[-1]:g}": at(noises[-1], on_time),
            "fit reports failure": cell("failed", text.share_text),
            "bounces of the recording miscounted": cell("miscounted", text.share_text),
        },
        caption=(
            f"Median error of seeds {seeds[0]} to {seeds[-1]} at σ = {noise:g} by number of recorded "
            f"bounces; then counts over all noises ({', '.join(f'{value:g}' for value in noises)}), bounces "
            "and seeds."
            + (f" The paper's models have {training:.0f} training steps." if training else "")
            + (f" The CD-Lagrange step itself, with true force and floor: {number(scheme[0])}.")
        ),
        labels={"model": {name: learner.title for name, learner in LEARNERS.items()}},
    )


LEARNING_TABLES: dict[str, Callable[[pl.DataFrame], Table]] = {
    "learning-main": errors_table,
    "learning-parameters": restitution_table,
    "learning-held-out": held_out_table,
    "learning-bent": bent_table,
}
"""By the name of their marker in a page."""


def _entries(*keys: str) -> dict[str, Cell]:
    """What the rows of our model have for some keys."""
    return {key: _ours(lambda group, key=key: group[key][0]) for key in keys}


def _ratio_to(oracle: str, group: pl.DataFrame) -> str:
    """Our median held-out error over an oracle's."""
    ours, theirs = (text.measured(group.filter(model=one), "held_out_median") for one in (_OURS, oracle))
    if not len(theirs):
        return MISSING
    # A ratio of medians: means are ruled by single mistimed impacts.
    divisor = text.summarize(theirs).median
    ratio = text.summarize(ours).median / divisor if divisor else math.inf
    return "diverged" if not math.isfinite(ratio) else f"{ratio:.1f}×" if ratio < 10 else f"{ratio:.0f}×"


def _deviation(values: pl.Series) -> str:
    return number(float(np.std(values.to_numpy(), ddof=1))) if len(values) > 1 else MISSING


COLUMNS, COLORS = 4, "cividis"
"""Colours that serve the colour-blind and are darker where errors are lower: they print in grey."""
LEAST, GREATEST = 1e-3, 10.0
"""Errors beyond these have the same colour; the printed numbers tell them apart."""


def write_grid_figure(rows: pl.DataFrame, folder: Path) -> list[Path]:
    """Draw the grid as PNG and SVG; returns the path of the PNG."""
    with figure_style():
        return [save_figure(draw_grid(rows), folder / "grid")]


def draw_grid(rows: pl.DataFrame) -> Figure:
    """A map for every learner, with the error and the number of seeds with faults in every cell."""
    fits = grid_fits(rows)
    trials = fits.group_by("model", "noise", "bounces", maintain_order=True).agg(
        error=pl.col("paper_rmse").median(), wrong=pl.col("off").sum()
    )
    learners, seeds = trials.partition_by("model"), sorted(fits["seed"].unique())
    columns = min(COLUMNS, len(learners))
    blocks = math.ceil(len(learners) / columns)
    figure = Figure(figsize=(1.2 + 2.7 * columns, 0.9 + 2.9 * blocks), layout="constrained")
    panels = figure.subplots(blocks, columns, squeeze=False)
    for axes in panels.flat[len(learners) :]:
        axes.set_axis_off()
    norm = LogNorm(LEAST, GREATEST)
    for axes, chosen in zip(panels.flat, learners, strict=False):
        _draw_map(axes, chosen, norm)
        axes.set(title=LEARNERS[chosen["model"][0]].title, xlabel="recorded bounces")
    for axes in panels[:, 0]:
        axes.set_ylabel("noise σ / m and m/s")
    bar = figure.colorbar(
        ScalarMappable(norm, COLORS), ax=panels.ravel().tolist(), extend="both", shrink=0.6, aspect=40
    )
    bar.set_label("error (paper's RMSE), median of seeds")
    ran = f"{FORECAST_STEPS} steps from the true start, seeds {seeds[0]} to {seeds[-1]}"
    counts = f"In brackets: seeds of {len(seeds)} with a bounce missing, spurious or at a wrong sample"
    figure.suptitle(f"Bouncing ball: forecasts of {ran}.\n{counts}", fontsize=10)
    return figure


def _draw_map(axes: Axes, trials: pl.DataFrame, norm: LogNorm) -> None:
    """Bounces to the right, noise upwards."""
    noises, bounces = (trials[key].unique().sort().to_list() for key in ("noise", "bounces"))
    picture = np.full((len(noises), len(bounces)), np.nan)
    for noise, count, error, wrong in trials.select("noise", "bounces", "error", "wrong").iter_rows():
        row, column = noises.index(noise), bounces.index(count)
        # A logarithmic scale has no place for 0 nor for infinity.
        picture[row, column] = shown = np.clip(error, 1e-9, 1e9)
        # The upper half of the scale can be read in black.
        ink = "white" if norm(shown) < 0.5 else "black"
        words = f"{_error_text(error)}\n({wrong})"
        axes.text(column, row, words, ha="center", va="center", fontsize=7.5, color=ink)
    axes.imshow(picture, norm=norm, cmap=COLORS, origin="lower", aspect="auto")
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
