"""The page of a reproduction: one HTML file with every number and figure, and nothing to load."""

import tomllib
from pathlib import Path

import polars as pl
from markupsafe import Markup

from carom.digits import number
from carom.evaluation.results import Results
from carom.evaluation.tables import measured, median_text
from carom.report.page import Section, figure_html, list_html, render_page, table_html
from carom.reproduction.paper import tables
from carom.reproduction.paper.experiments import ALL, EXPERIMENTS, ORACLE
from carom.reproduction.paper.figures import ABLATIONS_NAME
from carom.storage.atomic import atomic_write

_TEXTS = Path(__file__).with_name("remarks.toml")
"""How to read the numbers, and remarks on every experiment."""


def write_report(results: Results, figures: Path, out: Path, *, quick: bool = False) -> None:
    """Write the page from results and the pictures that were made of them.

    Arguments:
        results: as `carom reproduce` wrote them.
        figures: where `write_figures` has written; what is missing there is left out
            of the page, and the page says so.
        out: the HTML file.
        quick: whether training was shortened, so that the numbers must not be taken for results.
    """
    fits, header = tables.fits_of(results.rows), results.header
    texts = tomllib.loads(_TEXTS.read_text(encoding="utf-8"))
    # Sections follow the paper, whatever order the results have.
    names = fits["experiment"].unique(maintain_order=True).to_list()
    warning = "The models were trained for two per cent of the epochs; these numbers are no results."
    sections = [
        Section(
            "summary", "What agrees", [*tables.findings(fits), *map(table_html, tables.summary_tables(fits))]
        ),
        Section("reading", "How to read the numbers", [*texts["reading"], list_html(texts["protocols"])]),
        Section("settings", "Which model gets what", [*map(table_html, tables.hyperparameter_tables())]),
    ]
    sections += [_section(fits.filter(experiment=name), name, figures, texts.get(name, [])) for name in names]
    if any(not ALL[name].printed for name in names):
        alternative = "Errors of all seeds for every variant, as in the tables above, on a logarithmic axis."
        caption = "Every dot is a seed, the line is the median."
        blocks = _figure(figures / f"{ABLATIONS_NAME}.png", alternative, caption)
        sections.append(Section("ablations", "Ablations and claims in one figure", blocks))
    # The page must say by itself where its numbers come from: it is sent around alone.
    versions = ", ".join(f"{name} {version}" for name, version in header.get("versions", {}).items())
    hours = number(float(measured(fits, "seconds").sum()) / 3600)
    text = render_page(
        "Carom: reproduction of the paper",
        sections,
        heading="Contact dynamics from noisy recordings: the paper's experiments, run again",
        introduction=[_overview(fits)] + [Markup("<p><strong>{}</strong></p>").format(warning)] * quick,
        footer=[
            "Made by",
            Markup("<pre><code>{}</code></pre>").format(header["command"]),
            f"{versions}; on {header.get('machine', 'an unknown device')}; {hours} hours of training.",
        ],
    )
    with atomic_write(out) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _overview(fits: pl.DataFrame) -> str:
    trained = fits.filter(pl.col("model") != ORACLE)
    experiments = trained.filter(pl.col("experiment").is_in(list(EXPERIMENTS)))["experiment"].n_unique()
    counts = trained.group_by("experiment", "protocol", "model").len()["len"]
    seeds = f"{counts.min()}" if counts.n_unique() == 1 else f"{counts.min()} to {counts.max()}"
    return f"{experiments} experiments, {trained.height} trained models, {seeds} seeds for each."


def _section(fits: pl.DataFrame, name: str, figures: Path, remarks: list[str]) -> Section:
    """One experiment: its table, remarks, and the pictures of every protocol."""
    blocks: list[str | Markup] = [table_html(tables.experiment_table(fits, name)), *remarks]
    if not ALL[name].printed:
        return Section(name, f"{ALL[name].place.capitalize()}: {ALL[name].title}", blocks)
    for protocol in fits["protocol"].unique(maintain_order=True):
        blocks.append(Markup("<h3>Protocol “{}”</h3>").format(protocol))
        blocks += _pictures(fits.filter(protocol=protocol), name, protocol, figures)
    return Section(name, ALL[name].label, blocks)


def _pictures(fits: pl.DataFrame, name: str, protocol: str, figures: Path) -> list[str | Markup]:
    groups = fits.filter(pl.col("model") != ORACLE).group_by("model", maintain_order=True)
    medians = ", ".join(f"{model} {median_text(rows['paper_rmse'])}" for (model,), rows in groups)
    what, stem = f"{ALL[name].label}, protocol {protocol}", f"{name}.{protocol}"
    still = _figure(
        figures / f"{stem}.png",
        f"{what}: six panels with phase portrait, motion or energy, learned slope of the potential, "
        f"probability of touch, and errors over runs. Median errors: {medians}.",
        "Curves are of the seed whose error is the median one (of an even number, the lower in the middle); "
        "bands span all seeds. The data are those of the first seed.",
    )
    caption = "The truth and every model, by its median seed, side by side; grey outlines repeat the truth."
    moving = _figure(figures / f"{stem}.gif", f"Animation of {what}. {caption}", caption)
    # Folded away with one click: an animation beside a text distracts.
    folded = Markup("<details open><summary>Animation</summary>{}</details>")
    return [*(still or ["The figure has not been drawn."]), *(folded.format(one) for one in moving)]


def _figure(path: Path, alternative: str, caption: str) -> list[Markup]:
    """The picture in the page; nothing where it has not been drawn."""
    if not path.exists():
        return []
    return [figure_html(path, alternative=alternative, caption=caption, animated=path.suffix == ".gif")]
