"""The paper's numbers beside ours: a table for every experiment, and whether they are reproduced."""

from collections.abc import Callable

import polars as pl

from carom.digits import MISSING, number
from carom.errors import InputError
from carom.evaluation.results import wide
from carom.evaluation.tables import (
    Table,
    arrange,
    cell,
    largest_text,
    mean_text,
    measured,
    median_text,
    share_text,
    summarize,
    tabulate,
)
from carom.reproduction.paper.experiments import (
    ALL,
    EXPERIMENTS,
    NO_TOUCH,
    ORACLE,
    OURS,
    PROTOCOLS,
    PaperNumber,
)

LABELS = {"experiment": {name: experiment.label for name, experiment in ALL.items()}}


def fits_of(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per model and seed in the paper's order, with the metrics and what they are compared with.

    Added columns: `paper` and `paper_error`, as printed; `ours` and `ours_paper`, the error of CD-Lagrange on
    the same recording and its printed number.
    """
    printed = pl.DataFrame(
        [
            (name, model, *trained.paper)
            for name, experiment in ALL.items()
            for model, trained in experiment.trained.items()
            if trained.paper is not None
        ],
        schema={"experiment": pl.String, "model": pl.String, "paper": pl.Float64, "paper_error": pl.Float64},
        orient="row",
    )
    fits = wide(rows).join(printed, on=["experiment", "model"], how="left")
    keys = ["experiment", "protocol", "seed"]
    ours = fits.filter(model=OURS).select(*keys, ours="paper_rmse", ours_paper="paper")
    fits = fits.join(ours, on=keys, how="left")
    models = dict.fromkeys(
        [OURS, NO_TOUCH, *(model for one in ALL.values() for model in one.trained), ORACLE]
    )
    return arrange(fits, experiment=ALL, protocol=PROTOCOLS, model=models)


def experiment_table(fits: pl.DataFrame, experiment: str) -> Table:
    """Every model and protocol of one experiment, the oracle last."""
    chosen = fits.filter(experiment=experiment)
    if chosen.is_empty():
        known = ", ".join(fits["experiment"].unique(maintain_order=True))
        raise InputError(f"There are no results of {experiment}; there are those of {known}.")
    return tabulate(
        chosen,
        {"model": "model", "protocol": "protocol"},
        {
            "seeds": lambda group: str(group.height),
            "paper": _printed,
            "ours: mean ± s.e.": cell("paper_rmse", mean_text),
            "ours: median": cell("paper_rmse", median_text),
            "against the paper": _against,
            "impacts: mistimed / missed / spurious of true": _impacts,
            "held-out median": cell("held_out_median", median_text),
            "∂U/∂q: median error": cell("slope_rmse", median_text),
            f"learned damping (true {ALL[experiment].system.damping:g})": cell("damping", mean_text),
        },
        caption=f"{ALL[experiment].label}: error over seeds.",
    ).without_empty_columns()


def summary_tables(fits: pl.DataFrame) -> list[Table]:
    """What is reproduced: printed tables, printed figures, the order of models, the failure without touch."""
    kept = fits.filter(pl.col("experiment").is_in(list(EXPERIMENTS)))
    touch, in_table = pl.col("model") != NO_TOUCH, pl.col("paper_error").is_not_null()
    by = {"experiment": "experiment", "model": "model"}
    tables = [
        tabulate(
            kept.filter(in_table),
            by,
            {
                "paper": _printed,
                "ours, {protocol}": cell("paper_rmse", mean_text),
                "reproduced": _reproduced,
            },
            caption=(
                "Printed tables: mean ± standard error over all seeds. A row is reproduced where our mean is "
                "at or below the printed mean plus its standard error."
            ),
            labels=LABELS,
        ),
        # Without touch the printed number is a failure, and stands in the last table.
        tabulate(
            kept.filter(touch, ~in_table, pl.col("paper").is_not_null()),
            by,
            {
                "paper": _printed,
                "at or below, {protocol}": lambda group: share_text(group["paper_rmse"] <= group["paper"]),
                "median, {protocol}": cell("paper_rmse", median_text),
            },
            caption="Printed figures: seeds whose error is at or below the number of the paper's single run.",
            labels=LABELS,
        ),
        tabulate(
            kept.filter(touch, ~pl.col("model").is_in([OURS, ORACLE])).drop_nulls("ours"),
            by | {"model": "baseline"},
            {
                "CD-Lagrange in the paper": _order_in_paper,
                "below, {protocol}": lambda group: share_text(group["ours"] < group["paper_rmse"]),
            },
            caption="The order of models: seeds in which the error of CD-Lagrange is below the baseline's.",
            labels=LABELS,
        ),
        tabulate(
            kept.filter(~touch).drop_nulls("ours"),
            {"experiment": "experiment", "protocol": "protocol"},
            {
                "paper: with / without": lambda group: f"{group['ours_paper'][0]} / {_printed(group)}",
                "our medians: with / without": lambda group: (
                    f"{median_text(group['ours'])} / {median_text(group['paper_rmse'])}"
                ),
                "seeds worse without": lambda group: share_text(group["ours"] < group["paper_rmse"]),
                "impacts missed without": _missed,
                "highest probability of touch": cell("highest_contact_probability", largest_text),
            },
            caption="CD-Lagrange trained without the touch signal: the paper reports that it fails.",
            labels=LABELS,
        ),
    ]
    return [table for table in tables if table.rows]


def overview_table(fits: pl.DataFrame) -> Table:
    """Every trial in one line."""
    return tabulate(
        fits,
        {"experiment": "experiment", "protocol": "protocol", "model": "model"},
        {
            "paper": _printed,
            "ours": cell("paper_rmse", mean_text),
            "median": cell("paper_rmse", median_text),
        },
        caption="Error over seeds: mean ± standard error, and median",
    )


def findings(fits: pl.DataFrame) -> list[str]:
    """What the tables of the summary say, in a sentence each."""
    kept = fits.filter(pl.col("experiment").is_in(list(EXPERIMENTS)))
    touch, in_table = pl.col("model") != NO_TOUCH, pl.col("paper_error").is_not_null()
    found = []
    rows = [within_bound(group) for _, group in kept.filter(in_table).group_by("experiment", "model")]
    if rows:
        found.append(
            f"Of {len(rows)} rows of the printed tables, {sum(map(bool, rows))} are reproduced under at "
            "least one protocol: our mean is at or below the printed mean plus its standard error."
        )
    single = kept.filter(touch, ~in_table).drop_nulls("paper")
    if single.height:
        share = share_text(single["paper_rmse"] <= single["paper"])
        found.append(f"The printed figures show single runs; {share} of ours are at or below their number.")
    compared = kept.filter(touch, pl.col("model") != OURS).drop_nulls(["paper", "ours", "ours_paper"])
    orders = compared.group_by("experiment", "protocol", "model").agg(
        as_printed=(
            (pl.col("ours") < pl.col("paper_rmse")) == (pl.col("ours_paper") < pl.col("paper"))
        ).mean()
    )
    if orders.height:
        found.append(
            f"In {share_text(orders['as_printed'] > 0.5)} comparisons (experiment, protocol and baseline) "
            "more than half of the seeds have CD-Lagrange and the baseline in the paper's order."
        )
    without = kept.filter(~touch).drop_nulls("ours")
    if without.height:
        share = share_text(without["ours"] < without["paper_rmse"])
        found.append(f"Without the touch signal the error of CD-Lagrange is larger in {share} runs.")
    return found


def within_bound(group: pl.DataFrame) -> list[str]:
    """The protocols under which our mean is at or below the printed mean plus its standard error."""
    return [
        str(protocol)
        for (protocol,), part in group.group_by("protocol", maintain_order=True)
        if summarize(part["paper_rmse"]).mean <= part["paper"][0] + part["paper_error"][0]
    ]


def _printed(group: pl.DataFrame) -> str:
    value, error = group["paper"][0], group["paper_error"][0]
    return MISSING if value is None else str(PaperNumber(value, error))


def _reproduced(group: pl.DataFrame) -> str:
    within = within_bound(group)
    if within:
        return f"yes, {' and '.join(within)}"
    return "no" if group["protocol"].n_unique() == 1 else "no, under neither"


def _against(group: pl.DataFrame) -> str:
    value, error = group["paper"][0], group["paper_error"][0]
    if value is None:
        return MISSING
    if error is None:
        return f"{share_text(group['paper_rmse'] <= value)} at or below"
    return f"mean {'≤' if within_bound(group) else '>'} {number(value + error)}"


def _impacts(group: pl.DataFrame) -> str:
    counts = [measured(group, name).sum() for name in ("true_impacts", "mistimed", "missed", "spurious")]
    highest = measured(group, "highest_contact_probability")
    if highest.is_empty():
        return MISSING
    true, mistimed, missed, spurious = (int(count) for count in counts)
    if true == 0:
        return f"{spurious} spurious, probability ≤ {largest_text(highest)}"
    return f"{mistimed} / {missed} / {spurious} of {true}"


def _missed(group: pl.DataFrame) -> str:
    return f"{measured(group, 'missed').sum():.0f} of {measured(group, 'true_impacts').sum():.0f}"


def _order_in_paper(group: pl.DataFrame) -> str:
    ours, other = group["ours_paper"][0], group["paper"][0]
    return MISSING if ours is None or other is None else "below" if ours < other else "above"


PAPER_TABLES: dict[str, Callable[[pl.DataFrame], Table | list[Table]]] = {
    "summary": lambda rows: summary_tables(fits_of(rows)),
    **{name: lambda rows, name=name: experiment_table(fits_of(rows), name) for name in ALL},
}
"""Tables by the name of their marker in a page."""
