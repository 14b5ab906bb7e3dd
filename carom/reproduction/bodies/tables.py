"""The tables of many bodies, from `results/bodies.json`."""

from collections.abc import Callable

import polars as pl

import carom.evaluation.tables as text
from carom.digits import MISSING, number
from carom.evaluation.results import wide
from carom.evaluation.tables import Table, cell, tabulate, where
from carom.reproduction.bodies.configuration import ESTIMATIONS, TRANSFERS


def restitution_table(rows: pl.DataFrame) -> Table:
    """Estimated restitution beside the oracle's and the published one."""
    published = {(one.restitution, one.noise): one.published for one in ESTIMATIONS if one.published}

    def peer(group: pl.DataFrame) -> str:
        value = published.get((group["true_restitution"][0], group["noise"][0]))
        return MISSING if value is None else number(value)

    # Few seeds: every estimate is shown, and no mean could hide a failure.
    fits = wide(rows.filter(experiment="restitution"))
    return tabulate(
        fits.sort("noise", "true_restitution", "seed", descending=[False, True, False]),
        {"true_restitution": "true e", "noise": "noise"},
        {
            "estimates": where(
                "model", "carom", cell("estimate", lambda x: ", ".join(f"{value:.4f}" for value in x))
            ),
            "standard error": cell("standard_error", text.average_text),
            "largest error": where("model", "carom", cell("error", text.largest_text)),
            "oracle: largest error": where("model", "oracle", cell("error", text.largest_text)),
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
            "estimates by seed": where("model", "carom", ratios),
            "largest relative error": where("model", "carom", percent),
            "oracle: largest error": where("model", "oracle", percent),
            "intervals that cover": cell("covered", text.share_text),
        },
        caption="Masses 1 : 2 : 6 : 8 : 10 of the same balls, e = 1 unknown too.",
    )


def transfer_table(rows: pl.DataFrame) -> Table:
    """Forecasts of models learned elsewhere beside those learned in place."""

    def ratio(group: pl.DataFrame) -> str:
        # Medians, since a mistimed impact makes some forecasts useless for either model.
        errors = (group.filter(model=model)["position_rmse"] for model in ("transferred", "in place"))
        moved, own = (text.summarize(one).median for one in errors)
        return f"{moved / own:.2g}"

    titles = [{name: pair[side].title for name, pair in TRANSFERS.items()} for side in (0, 1)]
    there, here = (pl.col("transfer").replace_strict(of_side) for of_side in titles)
    fits = wide(rows.filter(experiment="transfer"))
    position, paper = (cell(metric, text.median_text) for metric in ("position_rmse", "paper_rmse"))
    return tabulate(
        text.arrange(fits.with_columns(there=there, here=here), transfer=TRANSFERS),
        {"there": "learned on", "here": "forecast"},
        {
            "error of positions / m": where("model", "transferred", position),
            "learned in place / m": where("model", "in place", position),
            "ratio": ratio,
            "the paper's error": where("model", "transferred", paper),
            "learned in place": where("model", "in place", paper),
        },
        caption="Error of forecasts of 0.4 s, median over 40 held-out starts.",
    )


BODIES_TABLES: dict[str, Callable[[pl.DataFrame], Table]] = {
    "bodies-restitution": restitution_table,
    "bodies-masses": masses_table,
    "bodies-transfer": transfer_table,
}
"""By the name of their marker in a page."""
