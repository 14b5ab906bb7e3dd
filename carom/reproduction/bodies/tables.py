"""The tables of many bodies, from `results/bodies.json` and from what the benchmarks measured.

What they show is said on the page that has them.
"""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

import carom.evaluation.tables as text
from carom.digits import MISSING, number
from carom.evaluation.results import wide
from carom.evaluation.tables import Cell, Table, cell, tabulate
from carom.reproduction.bodies.configuration import ESTIMATIONS, TRANSFERS

Make = Callable[[pl.DataFrame], Table]


def restitution_table(rows: pl.DataFrame) -> Table:
    """Estimated restitution beside the oracle's and the published one."""
    published = {(one.restitution, one.noise): one.published for one in ESTIMATIONS if one.published}

    def peer(group: pl.DataFrame) -> str:
        value = published.get((group["true_restitution"][0], group["noise"][0]))
        return MISSING if value is None else number(value)

    fits = wide(rows.filter(experiment="restitution"))
    return tabulate(
        fits.sort("noise", "true_restitution", "seed", descending=[False, True, False]),
        {"true_restitution": "true e", "noise": "noise"},
        {
            "estimates": _of("carom", cell("estimate", lambda x: ", ".join(f"{value:.4f}" for value in x))),
            "standard error": cell("standard_error", lambda values: number(text.summarize(values).mean)),
            "largest error": _of("carom", cell("error", text.largest_text)),
            "oracle: largest error": _of("oracle", cell("error", text.largest_text)),
            "set aside": cell("set_aside", lambda counts: ", ".join(f"{count:.0f}" for count in counts)),
            "e by DiffCoSim": peer,
        },
        caption="Restitution by seed: each has starts and noise of its own.",
    )


def masses_table(rows: pl.DataFrame) -> Table:
    """Estimated ratios of masses beside the oracle."""

    def ratios(group: pl.DataFrame) -> str:
        found = group.drop_nulls("body").sort("body").group_by("seed", maintain_order=True)
        return "; ".join(" : ".join(["1", *(f"{x:.4g}" for x in one["estimate"])]) for _, one in found)

    percent = cell("error", lambda errors: f"{100 * max(errors):.2g} %")
    return tabulate(
        wide(rows.filter(experiment="masses")).sort("noise", "seed"),
        {"noise": "noise"},
        {
            "estimates by seed": _of("carom", ratios),
            "largest relative error": _of("carom", percent),
            "oracle: largest error": _of("oracle", percent),
            "intervals that cover": cell("covered", text.share_text),
        },
        caption="Masses 1 : 2 : 6 : 8 : 10 of the same balls, e = 1 unknown too.",
    )


def transfer_table(rows: pl.DataFrame) -> Table:
    """Forecasts of models learned elsewhere beside those learned in place."""

    def ratio(group: pl.DataFrame) -> str:
        moved, own = (
            text.summarize(group.filter(model=model)["position_rmse"]).median
            for model in ("transferred", "in place")
        )
        return f"{moved / own:.2g}"

    settings = [
        pl.col("transfer").replace_strict({name: pair[side].title for name, pair in TRANSFERS.items()})
        for side in (0, 1)
    ]
    fits = wide(rows.filter(experiment="transfer"))
    position, paper = (cell(metric, text.median_text) for metric in ("position_rmse", "paper_rmse"))
    return tabulate(
        text.arrange(fits.with_columns(there=settings[0], here=settings[1]), transfer=TRANSFERS),
        {"there": "learned on", "here": "forecast"},
        {
            "error of positions / m": _of("transferred", position),
            "learned in place / m": _of("in place", position),
            "ratio": ratio,
            "the paper's error": _of("transferred", paper),
            "learned in place": _of("in place", paper),
        },
        caption="Error of forecasts of 0.4 s, median over 40 held-out starts.",
    )


def convergence_table(rows: pl.DataFrame) -> Table:
    """Engines and the CD-Lagrange step against the exact motion, by the step."""

    def order(group: pl.DataFrame) -> str:
        # The exponent of the power law that fits the errors best.
        return f"{np.polyfit(np.log(group['step_size']), np.log(group['error']), 1)[0]:.2f}"

    fits = wide(rows.filter(pl.col("experiment") == "convergence", pl.col("system") != "cradle"))
    return tabulate(
        text.arrange(
            fits.sort("system", "step_size", descending=[False, True]),
            model=("pymunk", "mujoco", "CD-Lagrange"),
        ),
        {"model": "by", "system": "system"},
        {"step {step_size} s": cell("error", text.median_text), "order": order},
        caption="Largest distance of any of three balls from the exact motion / m, median of random starts.",
    )


def speed_table(rows: pl.DataFrame) -> Table:
    """Seconds for many scenes, ours and pymunk's."""

    def ratio(group: pl.DataFrame) -> str:
        seconds = dict(group.select("model", "seconds").iter_rows())
        return " and ".join(f"{seconds[name] / seconds[ours]:.0f}" for name in (theirs, parallel))

    ours, theirs, parallel = "ours, 2 threads", "pymunk", "pymunk, 2 processes"
    shown: dict[str, Cell] = {
        f"{model} / s": _of(model, cell("seconds", text.median_text)) for model in (ours, theirs, parallel)
    }
    fits = wide(rows.filter(experiment="speed")).sort("step_size", descending=True)
    caption = "1024 scenes of 16 balls on a free table, 100 steps, all recorded, on 2 cores."
    return tabulate(fits, {"step_size": "step / s"}, shown | {"ratios": ratio}, caption=caption)


def _plain(
    experiment: str, by: Mapping[str, str], columns: Mapping[str, Cell], caption: str, *, last: str = "field"
) -> Make:
    """A table of one experiment, in the order of its lines, those of `last` from the end."""

    def make(rows: pl.DataFrame) -> Table:
        fits = wide(rows.filter(experiment=experiment))
        return tabulate(fits.sort(*by, descending=[k == last for k in by]), by, columns, caption=caption)

    return make


def _of(model: str, show: Cell) -> Cell:
    """A cell of one model's rows."""
    return lambda group: show(group.filter(model=model))


_SCENES = {"dimension": "dimension", "field": "field"}
BODIES_TABLES: dict[str, Make] = {
    "bodies-restitution": restitution_table,
    "bodies-masses": masses_table,
    "bodies-transfer": transfer_table,
}
"""By the name of their marker, from `results/bodies.json`."""
MECHANICS_TABLES: dict[str, Make] = {
    "bodies-conservation": _plain(
        "conservation",
        _SCENES,
        {
            "energy drift": cell("energy_drift", text.largest_text),
            "overlap / m": cell("overlap", text.largest_text),
        },
        "20 balls of random masses and radii, e = 1, μ = 0, 10000 steps: the largest of 5 random scenes.",
    ),
    "bodies-dissipation": _plain(
        "dissipation",
        _SCENES,
        {
            "largest gain of energy in a step": cell("energy_gain", lambda x: number(max(0.0, *x))),
            "overlap / m": cell("overlap", text.largest_text),
            "change of momentum without walls": cell("momentum_change", text.largest_text),
        },
        "20 balls, random e and μ, 500 steps: the largest of 5 random scenes, relative to the start.",
    ),
    "bodies-engines": convergence_table,
    "bodies-derivatives": _plain(
        "derivatives",
        {"system": "system"},
        {
            "scenes compared": lambda group: str(len(text.measured(group, "error"))),
            "left out": cell("left_out", lambda values: f"{values.sum():.0f}"),
            "median error": cell("error", text.median_text),
            "largest error": cell("error", text.largest_text),
        },
        "∂(state after 0.4 s)/∂(e, μ, masses, start) against central differences, relative to the largest.",
    ),
}
"""The same from `benchmarks/results/mechanics.json`."""
SPEED_TABLES: dict[str, Make] = {
    "bodies-pymunk": speed_table,
    "bodies-cost": _plain(
        "cost",
        {"field": "field", "balls": "balls"},
        {
            "a step of a scene / µs": _of("ours", cell("microseconds", text.median_text)),
            "pymunk / µs": _of("pymunk", cell("microseconds", text.median_text)),
            "memory of a scene / kB": cell("bytes", lambda sizes: number(sizes[0] / 1000)),
        },
        "By the number of balls, as dense in all cases, h = 0.01 s, one thread.",
    ),
}
"""The same from `benchmarks/results/bodies.json`."""
