"""The page of a reproduction: one HTML file with every number and figure, and nothing to load."""

import tomllib
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from carom.digits import number
from carom.evaluation.results import Results
from carom.evaluation.tables import Table, measured, median_text
from carom.report import figure_html, render_template, table_html
from carom.reproduction.paper.experiments import ABLATIONS, ALL, ORACLE
from carom.reproduction.paper.figures import ABLATIONS_NAME
from carom.reproduction.paper.tables import experiment_table, findings, fits_of, summary_tables
from carom.storage.atomic import atomic_write

_TEMPLATE, _REMARKS = "page.html.jinja", "remarks.toml"


def write_report(results: Results, figures: Path, out: Path, *, quick: bool = False) -> None:
    """Write the page from results and the pictures that were made of them.

    Arguments:
        results: as `carom reproduce` wrote them.
        figures: where `write_figures` and `write_animations` have written; what is missing there is left out
            of the page, and the page says so.
        out: the HTML file.
        quick: whether training was shortened, so that the numbers must not be taken for results.
    """
    fits = fits_of(results.rows)
    names = fits["experiment"].unique(maintain_order=True).to_list()
    beside = Path(__file__).parent
    remarks = tomllib.loads((beside / _REMARKS).read_text(encoding="utf-8"))
    page = render_template(
        beside / _TEMPLATE,
        title="Carom: reproduction of the paper",
        overview=_overview(fits),
        quick=quick,
        findings=findings(fits),
        summary=[_table(table) for table in summary_tables(fits)],
        sections=[
            _section(fits.filter(experiment=name), name, figures) | {"remarks": remarks.get(name, ())}
            for name in names
        ],
        ablations=any(name in ABLATIONS for name in names)
        and _figure(
            figures / f"{ABLATIONS_NAME}.png",
            "Errors of all seeds for every variant, on a logarithmic axis; the tables above have them.",
            "Every dot is a seed, the line is the median.",
        ),
        header={"versions": {}, "machine": "an unknown device"} | results.header,
        hours=number(float(measured(fits, "seconds").sum()) / 3600),
    )
    with atomic_write(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _overview(fits: pl.DataFrame) -> str:
    trained = fits.filter(pl.col("model") != ORACLE)
    experiments = trained.filter(~pl.col("experiment").is_in(list(ABLATIONS)))["experiment"].n_unique()
    counts = trained.group_by("experiment", "protocol", "model").len()["len"]
    seeds = f"{counts.min()}" if counts.n_unique() == 1 else f"{counts.min()} to {counts.max()}"
    return f"{experiments} experiments, {trained.height} trained models, {seeds} seeds for each."


def _section(fits: pl.DataFrame, name: str, figures: Path) -> dict[str, Any]:
    """One experiment: its table, and the pictures of every protocol."""
    experiment = ALL[name]
    is_ablation = name in ABLATIONS
    protocols = [] if is_ablation else fits["protocol"].unique(maintain_order=True)
    return {
        "name": name,
        "heading": f"Ablation: {experiment.title}" if is_ablation else experiment.label,
        "table": _table(experiment_table(fits, name)),
        "pictures": [_pictures(fits.filter(protocol=one), name, one, figures) for one in protocols],
    }


def _pictures(fits: pl.DataFrame, name: str, protocol: str, figures: Path) -> dict[str, Any]:
    experiment = ALL[name]
    errors = {
        model: median_text(rows["paper_rmse"])
        for (model,), rows in fits.group_by("model", maintain_order=True)
        if model != ORACLE
    }
    medians = ", ".join(f"{model} {error}" for model, error in errors.items())
    return {
        "protocol": protocol,
        "figure": _figure(
            figures / f"{name}.{protocol}.png",
            f"{experiment.label}, protocol {protocol}: six panels with phase portrait, motion or energy, "
            "learned slope of the potential, probability of touch, and errors over runs. "
            f"Median errors: {medians}.",
            "Curves are of the seed whose error is the median one (of an even number, the lower in the "
            "middle); bands span all seeds. The data are those of the first seed.",
        ),
        "animation": _figure(
            figures / f"{name}.{protocol}.gif",
            f"Animation of {experiment.title}, protocol {protocol}: the truth and the median seeds of "
            f"{', '.join(map(str, errors))} side by side.",
            "The truth and every model side by side; grey outlines repeat the truth.",
            animated=True,
        ),
    }


def _table(table: Table) -> Markup:
    return table_html(table)


def _figure(path: Path, alternative: str, caption: str, *, animated: bool = False) -> Markup:
    """The picture in the page; nothing where it has not been drawn."""
    if not path.exists():
        return Markup("")
    return figure_html(path, alternative=alternative, caption=caption, animated=animated)
