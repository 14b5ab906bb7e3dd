"""The tables of measured recordings, from `results/measured.json`."""

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl

import carom.evaluation.tables as text
from carom.digits import MISSING, mean_and_error, number
from carom.evaluation.results import wide
from carom.evaluation.tables import Cell, Table, cell, tabulate
from carom.reproduction.measured.configuration import PUBLISHED, SERIES, SPEEDS, VARIANTS
from carom.reproduction.measured.run import CONSTANT, HINDSIGHT, INCLUDED, LAW

_LABELS = {"experiment": {name: series.title for name, series in SERIES.items()}}
_LAWS = {0.0: "constant", 1.0: "e(u)"}


def _by_bumper(fits: pl.DataFrame, columns: dict[str, Cell], caption: str) -> Table:
    return tabulate(fits, {"experiment": "bumper"}, columns, caption=caption, labels=_LABELS)


def errors_table(rows: pl.DataFrame) -> Table:
    """Velocities after the collisions of runs left out: by the law, and by the best constant."""
    fits = air_track(rows)
    error, restitution = (cell(metric, text.average_text) for metric in ("velocity_rmse", "restitution"))
    # How much the random crops matter, in the worst series.
    spread = max(_spread(group) for _, group in fits.filter(model=LAW).group_by("experiment"))
    return _by_bumper(
        fits,
        {
            "runs learned from": lambda group: _count(group, left_out=False),
            "left out": lambda group: _count(group, left_out=True),
            "law": cell("speed_law", lambda found: " / ".join(_LAWS[x] for x in dict.fromkeys(found))),
            "error of the law / (m/s)": _of(LAW, error),
            "best constant e": _of(CONSTANT, restitution),
            "its error / (m/s)": _of(CONSTANT, error),
            "ratio": lambda group: f"{np.mean(error_ratios(group, CONSTANT)):.2f}",
            "ratio to the best constant for the runs left out": lambda group: (
                f"{np.mean(error_ratios(group, HINDSIGHT)):.2f}"
            ),
        },
        "Velocities of both riders after the collisions of runs left out: root mean square error, mean "
        f"over {fits['seed'].n_unique()} random crops, which differ by at most {100 * spread:.1f} %.",
    )


def parameters_table(rows: pl.DataFrame) -> Table:
    """The laws at a few speeds, how widely runs scatter about them, and the impacts detected."""

    def law_at(speed: float, group: pl.DataFrame) -> str:
        seen = group.filter(left_out=0)["closing_speed"].drop_nulls().to_list()
        found = group.filter(speed=speed)
        # Outside the speeds of the runs the law would be an extrapolation.
        known = len(found) and min(seen) <= speed <= max(seen)
        return mean_and_error(found["e"][0], found["e_error"][0]) if known else MISSING

    def one_impact(group: pl.DataFrame) -> str:
        return f"{group['runs_with_one_impact'][0]:.0f} of {group['fitted_runs'][0]:.0f}"

    return _by_bumper(
        first_crop(rows),
        {
            **{f"e at {speed:g} m/s": partial(law_at, speed) for speed in SPEEDS},
            "scatter from run to run": _of(LAW, partial(_with_error, "scatter from run to run")),
            "impacts found: one per run": _of(LAW, one_impact),
            "distance from the check / ms": cell("late_by", lambda x: text.median_text(1000 * x.abs())),
        },
        "What was learned (first crop); – where no such speed was seen. The last column is the median "
        "distance from the instants in the table of runs.",
    )


def masses_table(rows: pl.DataFrame) -> Table:
    """The ratio of masses by all runs together, and by slow and fast ones alone, beside the scales."""

    def weighed(group: pl.DataFrame) -> list[float]:
        return sorted(group["checked_mass_ratio"].drop_nulls().unique())

    def over_weighed(group: pl.DataFrame) -> str:
        return _with_error("mass", group.filter(model=LAW), weighed(group)[0])

    def half(number: int, group: pl.DataFrame) -> str:
        runs = group.drop_nulls("closing_speed").sort("closing_speed")
        shares = runs["mass_ratio"] / runs["checked_mass_ratio"]
        # Halves of the runs and not of the range of speeds, so that both means are of as many.
        middle = len(shares) // 2
        return text.mean_text(shares[middle:] if number else shares[:middle])

    def together(group: pl.DataFrame) -> str:
        found = _of(LAW, partial(_with_error, "mass"))(group)
        return "run by run" if found == MISSING else found

    return _by_bumper(
        first_crop(rows),
        {
            "as weighed": lambda group: (
                number(weighed(group)[0]) if len(weighed(group)) == 1 else "run by run"
            ),
            "all runs together": together,
            "over that weighed": over_weighed,
            "slow half, over that weighed": partial(half, 0),
            "fast half, over that weighed": partial(half, 1),
        },
        "Mass of the second rider over that of the first. The halves are single runs by regression lines "
        "and conservation of momentum: mean ± standard error.",
    )


def residuals_table(rows: pl.DataFrame) -> Table:
    """What an instantaneous impact leaves unexplained, with the samples of the contact masked and without."""
    millimetres = cell("position_noise", lambda values: number(1000 * values[0]))
    excess, near = (cell(metric, lambda x: f"{x[0]:.1f}×") for metric in ("excess", "near_impacts"))
    return _by_bumper(
        first_crop(rows),
        {
            "contact masked: residual / mm": _of(LAW, millimetres),
            "over the noise": _of(LAW, excess),
            "contact included: residual / mm": _of(INCLUDED, millimetres),
            "included: over the noise": _of(INCLUDED, excess),
            "mean square near impacts, over elsewhere": _of(INCLUDED, near),
        },
        "What an instantaneous impact leaves unexplained: standard deviation of position residuals.",
    )


def pendulum_table(rows: pl.DataFrame) -> Table:
    """The energy error beside those published."""
    fits = text.arrange(wide(rows.filter(experiment="pendulum")), model=VARIANTS)
    ours = tabulate(
        fits,
        {"model": "model"},
        {
            "energy error on the last fifth": cell("energy_error", text.mean_text),
            "on the last fifth of the training data": cell("validation_error", text.mean_text),
        },
        caption=(
            "Mean squared error of 2.4 (1 − cos o) + v² over a rollout; ours: mean ± standard error over "
            f"{fits['seed'].n_unique()} seeds. The variant was chosen by the last column."
        ),
        labels={"model": {name: f"recipe carom, {name}" for name in VARIANTS}},
    )
    # Published numbers have no value on our validation part.
    published = [(f"{name} (published)", mean_and_error(*one), MISSING) for name, one in PUBLISHED.items()]
    return Table(ours.caption, ours.header, (*published, *ours.rows))


MEASURED_TABLES: dict[str, Callable[[pl.DataFrame], Table]] = {
    "measured-errors": errors_table,
    "measured-parameters": parameters_table,
    "measured-masses": masses_table,
    "measured-residuals": residuals_table,
    "measured-pendulum": pendulum_table,
}
"""By the name of their marker in a page."""


def air_track(rows: pl.DataFrame) -> pl.DataFrame:
    """Metrics of the air track as columns, in the order of the series."""
    fits = wide(rows.filter(pl.col("experiment").is_in(list(SERIES))))
    return text.arrange(fits.sort("seed", maintain_order=True), experiment=SERIES)


def first_crop(rows: pl.DataFrame) -> pl.DataFrame:
    """The same of the first seed, which alone has rows of single runs and of the law."""
    fits = air_track(rows)
    return fits.filter(seed=fits["seed"].min())


def error_ratios(group: pl.DataFrame, constant: str) -> np.ndarray:
    """The error of the law over that of a constant, crop by crop."""
    errors = group.drop_nulls("velocity_rmse")
    law, other = (errors.filter(model=model)["velocity_rmse"] for model in (LAW, constant))
    return (law / other).to_numpy()


def _spread(group: pl.DataFrame) -> float:
    errors = group["velocity_rmse"].drop_nulls().to_numpy()
    return float(np.ptp(errors) / errors.mean())


def _count(group: pl.DataFrame, *, left_out: bool) -> str:
    """Runs in which a collision was detected."""
    return str(group.filter(pl.col("left_out") == left_out)["closing_speed"].count())


def _with_error(metric: str, group: pl.DataFrame, unit: float = 1.0) -> str:
    """A parameter and its standard error, as multiples of a unit."""
    value, error = (text.measured(group, name) for name in (metric, f"{metric}_error"))
    return mean_and_error(value[0] / unit, error[0] / unit) if len(value) else MISSING


def _of(model: str, show: Cell) -> Cell:
    """A cell of one model's rows, which belong to no single run or speed."""
    return lambda group: show(group.filter(pl.col("run").is_null(), pl.col("speed").is_null(), model=model))
