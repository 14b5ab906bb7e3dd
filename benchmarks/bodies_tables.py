"""Tables of many bodies: accuracy of the mechanics, and speed, from what the benchmarks measured."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

import carom.evaluation.tables as text
from carom.digits import number
from carom.evaluation.results import wide
from carom.evaluation.tables import Cell, Table, cell, tabulate, where

Make = Callable[[pl.DataFrame], Table]


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
        f"{model} / s": where("model", model, cell("seconds", text.median_text))
        for model in (ours, theirs, parallel)
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


_SCENES = {"dimension": "dimension", "field": "field"}
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
"""By the name of their marker in a page, from `benchmarks/results/mechanics.json`."""
SPEED_TABLES: dict[str, Make] = {
    "bodies-pymunk": speed_table,
    "bodies-cost": _plain(
        "cost",
        {"field": "field", "balls": "balls"},
        {
            "a step of a scene / µs": where("model", "ours", cell("microseconds", text.median_text)),
            "pymunk / µs": where("model", "pymunk", cell("microseconds", text.median_text)),
            "memory of a scene / kB": cell("bytes", lambda sizes: number(sizes[0] / 1000)),
        },
        "By the number of balls, as dense in all cases, h = 0.01 s, one thread.",
    ),
}
"""The same from `benchmarks/results/bodies.json`."""
