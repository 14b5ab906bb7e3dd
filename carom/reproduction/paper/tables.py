"""The paper's numbers beside ours: a table for every experiment, and whether they agree."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import carom.evaluation.tables as text
from carom.digits import MISSING, number, signed
from carom.evaluation.results import Results, wide
from carom.evaluation.tables import Cell, Difference, Table, cell, tabulate
from carom.reproduction.paper import experiments as paper
from carom.reproduction.paper.experiments import ALL, EXPERIMENTS, NO_TOUCH, ORACLE, OURS, PROTOCOLS

LABELS = {"experiment": {name: experiment.label for name, experiment in ALL.items()}}
_BY = {"experiment": "experiment", "model": "model"}
_MEAN, _MEDIAN = cell("paper_rmse", text.mean_text), cell("paper_rmse", text.median_text)
PAPER_RUNS = 5
"""Behind every mean of the paper's tables."""
_FAULTS = ("mistimed", "missed", "spurious")


def fits_of(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per model and seed in the paper's order, with the metrics and what they are compared with.

    Added columns: `paper` and `paper_error`, as printed; `ours` and `ours_paper`, the error of CD-Lagrange on
    the same recording and its printed number; `faults`, impacts that are mistimed, missed or spurious.
    """
    trained = [(name, model, one) for name in ALL for model, one in ALL[name].trained.items()]
    numbers = [(name, model, *one.paper) for name, model, one in trained if one.paper is not None]
    schema = {"experiment": pl.String, "model": pl.String, "paper": pl.Float64, "paper_error": pl.Float64}
    printed = pl.DataFrame(numbers, schema=schema, orient="row")
    fits = wide(rows).join(printed, on=["experiment", "model"], how="left")
    keys = ["experiment", "protocol", "seed"]
    # Models with the same seed have the same noisy recording: comparisons are paired.
    ours = fits.filter(model=OURS).select(*keys, ours="paper_rmse", ours_paper="paper")
    fits = fits.join(ours, on=keys, how="left")
    absent = [name for name in (*_FAULTS, "impacts") if name not in fits.columns]
    fits = fits.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)
    fits = fits.with_columns(faults=pl.sum_horizontal(*_FAULTS, ignore_nulls=False))
    # Ours first, baselines as the paper lists them, the oracle last.
    models = dict.fromkeys([OURS, NO_TOUCH, *(name for one in ALL.values() for name in one.trained), ORACLE])
    return text.arrange(fits, experiment=ALL, protocol=PROTOCOLS, model=models)


def experiment_table(fits: pl.DataFrame, experiment: str) -> Table:
    """Every model and protocol of one experiment, the oracle last."""
    return tabulate(
        fits.filter(experiment=experiment),
        {"model": "model", "protocol": "protocol"},
        {
            "seeds": lambda group: str(group.height),
            "paper": _printed,
            "ours: mean ± s.e.": _MEAN,
            "ours: median": _MEDIAN,
            "against the paper": against,
            "impacts: mistimed / missed / spurious of true": _impacts,
            "held-out median": cell("held_out_median", text.median_text),
            "∂U/∂q: median error": cell("slope_rmse", text.median_text),
            "energy at the end, relative error": cell("energy_error", quartiles),
            f"learned damping (true {ALL[experiment].system.damping:g})": cell("damping", text.mean_text),
            "learned mass ratio (true 1)": cell("mass_ratio", text.mean_text),
            "coupling of masses (true 0, not determined)": cell("mass_coupling", text.mean_text),
        },
        caption=f"{ALL[experiment].label}: error over seeds.",
    ).without_empty_columns()


def summary_tables(fits: pl.DataFrame) -> list[Table]:
    """Agreement with the paper, the order of models, mistimed impacts, no touch, and energy."""
    kept = fits.filter(pl.col("experiment").is_in(list(EXPERIMENTS)))
    touch, in_table = pl.col("model") != NO_TOUCH, pl.col("paper_error").is_not_null()
    # The oracle is no competitor, and without touch there is a table of its own.
    others = touch & ~pl.col("model").is_in([OURS, ORACLE])
    tables = [
        _summary(
            kept.filter(in_table),
            {"paper": _printed, "ours, {protocol}": _MEAN, "{protocol}": against},
            "Printed tables: means ± standard errors compared by Welch's t, two-sided at 5 %: ours "
            "less the printed mean over five runs, with 95 % interval. Six such tests of equal things show a "
            "difference in one case of four.",
        ),
        # Without touch the printed number is a failure, and stands in a table of its own.
        _summary(
            kept.filter(touch, ~in_table, pl.col("paper").is_not_null()),
            {"paper": _printed, "median, {protocol}": _MEDIAN, "{protocol}": against},
            "Printed figures are single runs: the rank of the printed number among our seeds, with the "
            "two-sided probability of a rank as extreme, which cannot be less than 2/(seeds + 1).",
        ),
        _summary(
            kept.filter(others).drop_nulls("ours"),
            {
                "CD-Lagrange in the paper": _order_in_paper,
                "CD-Lagrange − baseline, {protocol}": _paired,
                "below, {protocol}": _below,
            },
            "The order of models: paired differences of errors on the same recordings, mean with 95 % "
            "interval, and seeds in which CD-Lagrange is below the baseline, with the exact interval.",
        ),
        _summary(
            kept.filter(pl.col("impacts") > 0),
            {
                "all impacts right, {protocol}": lambda group: text.share_with_interval(group["faults"] == 0),
                "median error there, {protocol}": _median_where(pl.col("faults") == 0),
                "elsewhere, {protocol}": _median_where(pl.col("faults") > 0),
            },
            "Errors are bimodal where impacts may be mistimed: seeds whose forecast has every impact at its "
            "sample, with the exact 95 % interval, and the median error of these and of the other seeds.",
        ),
        _summary(
            kept.filter(~touch).drop_nulls("ours"),
            {
                "paper: with / without": lambda group: f"{group['ours_paper'][0]} / {_printed(group)}",
                "our medians, {protocol}": lambda group: (
                    f"{text.median_text(group['ours'])} / {text.median_text(group['paper_rmse'])}"
                ),
                "with − without, {protocol}": _paired,
                "worse without, {protocol}": _below,
            },
            "CD-Lagrange trained without the touch signal: the paper reports that it fails.",
        ),
        _summary(
            kept.filter(pl.col("model") != ORACLE),
            {"{protocol}": cell("energy_error", quartiles)} if "energy_error" in kept.columns else {},
            "Energy of the forecast over its last tenth less that of the truth, relative to the energy at "
            "the start: median and quartiles over seeds.",
        ),
    ]
    return [table for table in tables if table.rows and len(table.header) > 2]


def _summary(fits: pl.DataFrame, columns: dict[str, Cell], caption: str) -> Table:
    return tabulate(fits, _BY, columns, caption=caption, labels=LABELS)


def overview_table(fits: pl.DataFrame) -> Table:
    """Every trial in one line."""
    return tabulate(
        fits,
        {"experiment": "experiment", "protocol": "protocol", "model": "model"},
        {"paper": _printed, "ours": _MEAN, "median": _MEDIAN, "against the paper": against},
        caption="Error over seeds: mean ± standard error, and median",
    )


def findings(fits: pl.DataFrame) -> list[str]:
    """What the tables of the summary say, in a sentence each."""
    kept = fits.filter(pl.col("experiment").is_in(list(EXPERIMENTS)), pl.col("model") != NO_TOUCH)
    found = []
    for (protocol,), chosen in kept.group_by("protocol", maintain_order=True):
        others = chosen.filter(~pl.col("model").is_in([OURS, ORACLE])).drop_nulls("ours")
        # The first word of every comparison: agrees, lower, higher or diverged.
        rows = [against(group).split(":")[0] for group in _models(chosen.drop_nulls("paper_error"))]
        pairs = [pair for group in _models(others) if (pair := _difference(group)) is not None]
        better, worse = sum(pair.high < 0 for pair in pairs), sum(pair.low > 0 for pair in pairs)
        found.append(
            f"Protocol {protocol}: of {len(rows)} rows of the printed tables {rows.count('agrees')} agree "
            f"with the paper (Welch's t, two-sided, 5 %), {rows.count('lower')} of ours are lower, "
            f"{rows.count('higher')} higher, and in {rows.count('diverged')} a seed diverged. Of "
            f"{len(pairs)} paired comparisons with baselines {better} favour CD-Lagrange and {worse} the "
            "baseline (the 95 % interval of the mean difference of errors excludes 0)."
        )
    without = fits.filter(model=NO_TOUCH).drop_nulls("ours")
    if without.height:
        share = text.share_text(without["ours"] < without["paper_rmse"])
        found.append(f"Without the touch signal the error of CD-Lagrange is larger in {share} runs.")
    return found


def hyperparameter_tables() -> list[Table]:
    """What every protocol, every model and every experiment is run with."""
    protocols = [
        {"protocol": protocol, "data": paper.DATA[protocol]}
        | _fields(paper.HYPERPARAMETERS[protocol]["cd-lagrange"].training, "epochs", "l2", "touch")
        for protocol in PROTOCOLS
    ]
    models = [
        {"model": kind, "protocol": protocol}
        | {
            "hidden layer": row.options["activation"],
            "ℓ² of the potential, share of the experiment's": f"{row.l2_share:.3g}",
            "contacts in training": row.contacts,
        }
        | (
            {}
            if not kind.startswith("cd-lagrange")
            else {
                "damping, where learned": row.options.get("damping_form", "definite"),
                "overlap removed": "where ĉ > ½" if "project_predicted" in row.options else "at contacts",
            }
        )
        for kind in paper.HYPERPARAMETERS["text"]
        for protocol in PROTOCOLS
        for row in [paper.HYPERPARAMETERS[protocol][kind]]
    ]
    experiments = [
        {"experiment": one.label, "models": ", ".join(one.trained), "e": f"{one.system.restitution:g}"}
        | _fields(one, "title", "place", "system", "trained", "true_window_starts")
        for one in ALL.values()
    ]
    return [
        text.table_of("Of all models under a protocol.", protocols),
        text.table_of(
            "Which model gets what. The hidden layer has 500 units; contact networks have two layers of 100 "
            "(relu), in CD-Lagrange on (Q_{n+1}, V), in ResNetContact on (q_n, v_n).",
            models,
        ),
        text.table_of("Of every experiment.", experiments),
    ]


def _fields(settings: Any, *left_out: str) -> dict[str, str]:
    """The fields of a dataclass by name."""
    shown = {name: value for name, value in vars(settings).items() if name not in left_out}
    return {name.replace("_", " "): _setting(value) for name, value in shown.items()}


def _setting(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _models(fits: pl.DataFrame) -> list[pl.DataFrame]:
    return [group for _, group in fits.group_by("experiment", "model", maintain_order=True)]


def _printed(group: pl.DataFrame) -> str:
    value, error = group["paper"][0], group["paper_error"][0]
    return MISSING if value is None else str(paper.PaperNumber(value, error))


def against(group: pl.DataFrame) -> str:
    """Whether our seeds agree with the printed number, and the probability that decides it."""
    value, error, errors = group["paper"][0], group["paper_error"][0], group["paper_rmse"]
    if value is None:
        return MISSING
    if error is None:
        # A single run has no error; only its place among ours can be judged.
        p = text.rank_probability(errors.to_numpy(), value)
        return f"above {text.share_text(errors < value)}, p = {p:.2f}"
    if len(errors) < 2:
        return "one seed"
    # The paper prints standard errors to one digit, which limits how sharp this can be.
    found = text.welch(text.summarize(errors), value, error, PAPER_RUNS)
    if found is None:
        return "diverged"
    word = "agrees" if found.p >= text.LEVEL else "lower" if found.value < 0 else "higher"
    return f"{word}: {found}, p = {found.p:.2g}"


def _difference(group: pl.DataFrame) -> Difference | None:
    return text.paired(group["ours"].to_numpy(), group["paper_rmse"].to_numpy())


def _paired(group: pl.DataFrame) -> str:
    return "one seed" if len(group) < 2 else str(_difference(group) or "diverged")


def _below(group: pl.DataFrame) -> str:
    return text.share_with_interval(group["ours"] < group["paper_rmse"])


def _median_where(condition: pl.Expr) -> Cell:
    return lambda group: _MEDIAN(group.filter(condition))


def quartiles(values: pl.Series) -> str:
    """Median and quartiles of a relative change, in per cent."""
    # What diverged has gained energy without end.
    low, middle, high = np.quantile(values.fill_nan(np.inf).to_numpy(), (0.25, 0.5, 0.75), method="nearest")
    return f"{_percent(middle)} [{_percent(low)}, {_percent(high)}]"


def _percent(value: float) -> str:
    return f"{signed(100 * value)} %" if np.isfinite(value) else number(value)


def _impacts(group: pl.DataFrame) -> str:
    found, highest = text.impacts_text(group), text.measured(group, "highest_contact_probability")
    # Where nothing touches, the question is whether the signal stays silent.
    return f"{found}, probability ≤ {text.largest_text(highest)}" if found.endswith("spurious") else found


def _order_in_paper(group: pl.DataFrame) -> str:
    ours, other = group["ours_paper"][0], group["paper"][0]
    return MISSING if ours is None or other is None else "below" if ours < other else "above"


def paper_page(results: Results) -> str:
    """Every number in Markdown, with the figures that lie in the folder `figures` beside it."""
    fits, header = fits_of(results.rows), results.header
    hours = number(float(text.measured(fits, "seconds").sum()) / 3600)
    made = f"Made by Carom {header['versions']['carom']}: `{header['command']}`, {hours} hours of training."
    parts = ["# The paper's experiments, run again", made]
    if "--quick" in header["command"]:
        parts.append("**Models were trained for two per cent of the epochs; these numbers are no results.**")
    parts += [f"- {sentence}" for sentence in findings(fits)]
    parts += map(text.markdown, [*summary_tables(fits), *hyperparameter_tables()])
    for name, protocols in fits.group_by("experiment", maintain_order=True).agg("protocol").rows():
        parts += [f"## {ALL[name].label}", text.markdown(experiment_table(fits, name))]
        if ALL[name].printed:
            parts += [f"![{name}, {one}](figures/{name}.{one}.png)" for one in dict.fromkeys(protocols)]
    return "\n\n".join(parts) + "\n"


PAPER_TABLES: dict[str, Callable[[pl.DataFrame], Table | list[Table] | str]] = {
    "summary": lambda rows: summary_tables(fits_of(rows)),
    "findings": lambda rows: "\n".join(f"- {sentence}" for sentence in findings(fits_of(rows))),
    "hyperparameters": lambda rows: hyperparameter_tables(),
    # In a marker too, so that the version and the commit stand beside the figures.
    "paper-figures": lambda rows: "\n".join(
        f"![{ALL[name].title}](images/paper/{name}.published.png)" for name in ("pendulum", "ball", "cradle")
    ),
    **{name: lambda rows, name=name: experiment_table(fits_of(rows), name) for name in ALL},
}
"""Tables by the name of their marker in a page."""
