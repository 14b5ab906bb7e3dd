"""The report of a reproduction: one HTML page with every number and figure, and nothing to load."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from carom.digits import number
from carom.report import Section, figure_html, list_html, render_page, table_html
from carom.reproduction.paper.comparison import experiment_names, experiment_table, summary_tables
from carom.reproduction.paper.experiments import Protocol
from carom.reproduction.paper.figures import ABLATIONS_NAME
from carom.reproduction.paper.remarks import REMARKS
from carom.reproduction.paper.statistics import Score, orders, without_touch
from carom.reproduction.paper.trials import KNOWN, FinishedUnit, load_oracle, load_units
from carom.storage.atomic import atomic_write

_PROTOCOLS = {
    "text": (
        "what the paper says: trajectories of ten points each, tanh, Adam at 1e-3, losses averaged over the "
        "horizon, the contact signal trained on observed states"
    ),
    "published": (
        "what the authors' code does: one recording in overlapping windows, softplus, Adam at 1e-2, losses "
        "summed over the horizon, the contact signal trained on predicted states"
    ),
}
_READING = """The error is the paper's: the root of the squared error summed over the state and averaged
over time, of one free forecast from the first state over the whole recording. A seed changes the noise and
the initial weights; all seeds count, and a forecast that diverged counts as an infinite error. The held-out
median is over start states that no recording starts from: for every seed the median of their errors, then
the median over seeds. The oracle has the true equations and fits only gravity to the same noisy recordings.
Velocities of ball and cradle lie half a step beside their positions, as in the authors' data, which is why
even the true ball's energy shows small teeth."""


def write_report(units_folder: Path, figures_folder: Path, out_path: Path, *, command: str) -> None:
    """Write the page from the units of one folder and the pictures of another.

    Arguments:
        units_folder: where `carom reproduce` keeps its units and `oracle.json`.
        figures_folder: where `write_figures` and `write_animations` have written; what is missing there is
            left out of the page, and the page says so.
        out_path: the HTML file.
        command: what was typed, to be shown.
    """
    units, oracle = load_units(units_folder), load_oracle(units_folder)
    scores = [unit.score for unit in units]
    names = experiment_names(scores)
    sections = [
        Section(
            "summary",
            "Does it come out?",
            [*_findings(scores), *(table_html(table) for table in summary_tables(scores))],
        ),
        Section(
            "reading",
            "How to read the numbers",
            [" ".join(_READING.split()), "Protocols:", _protocol_list(scores)],
        ),
    ]
    for name in names:
        chosen = [score for score in scores if score.experiment == name]
        blocks = [table_html(experiment_table(scores, oracle, name)), *REMARKS.get(name, ())]
        sections.append(Section(name, _heading(chosen[0]), [*blocks, *_pictures(chosen, figures_folder)]))
    ablations = figures_folder / f"{ABLATIONS_NAME}.png"
    if any(score.is_ablation for score in scores) and ablations.exists():
        alternative = (
            "Errors of all seeds for every variant, on a logarithmic axis; the tables above have them."
        )
        caption = "Every dot is a seed, the line is the median."
        figure = figure_html(ablations, alternative=alternative, caption=caption)
        sections.append(Section("ablations", "The ablations in one figure", [figure]))
    text = render_page(
        "Carom: reproduction of the paper",
        sections,
        heading="Contact dynamics from noisy recordings: the paper's experiments, run again",
        introduction=[
            _overview(scores),
            *(Markup("<p><strong>{}</strong></p>").format(warning) for warning in _warnings(units)),
        ],
        footer=_provenance(units, command),
    )
    with atomic_write(out_path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _overview(scores: Sequence[Score]) -> str:
    experiments = len({score.experiment for score in scores if not score.is_ablation})
    runs = sum(len(score.seeds) for score in scores)
    counts = {len(score.seeds) for score in scores}
    seeds = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"{experiments} experiments, {runs} trained models, {seeds} seeds for every model and protocol."


def _warnings(units: Sequence[FinishedUnit]) -> list[str]:
    """Short runs made to see that everything works must not be taken for results."""
    short = 0
    for unit in units:
        experiment, epochs = KNOWN.get(unit.experiment), unit.summary["settings"].get("epochs")
        if experiment is not None and epochs is not None and unit.model in experiment.trained:
            protocol: Protocol = "text" if unit.protocol == "text" else "published"
            short += epochs < experiment.settings(protocol, unit.model).epochs
    if not short:
        return []
    return [f"{short} of {len(units)} units were trained for fewer epochs than planned; they are no results."]


def _findings(scores: Sequence[Score]) -> list[str]:
    """The tables below in a sentence each."""
    found = []
    rows: dict[tuple[str, str], bool] = {}
    for score in scores:
        if score.in_table:
            key = (score.experiment, score.model)
            rows[key] = rows.get(key, False) or score.mean_within_bound
    if rows:
        found.append(
            f"Of {len(rows)} rows of the printed tables, {sum(rows.values())} come out under at least one "
            "protocol: the mean of all our seeds is at or below the printed mean plus its standard error."
        )
    kept = [score for score in scores if not score.is_ablation]
    single = [score.at_or_below for score in kept if score.touch and not score.in_table]
    shares = [share for share in single if share is not None]
    if shares:
        found.append(
            f"The printed figures show single runs; {sum(share.count for share in shares)} of "
            f"{sum(share.total for share in shares)} of ours are at or below their number."
        )
    compared = [order for order in orders(kept) if order.printed_below is not None]
    if compared:
        found.append(
            f"In {sum(order.as_printed for order in compared)} of {len(compared)} comparisons (experiment, "
            "protocol and baseline) more than half of the seeds have CD-Lagrange and the baseline in the "
            "paper's order."
        )
    worse = [share for _, _, share in without_touch(kept)]
    if worse:
        found.append(
            f"Without the touch signal the error of CD-Lagrange is larger in "
            f"{sum(share.count for share in worse)} of {sum(share.total for share in worse)} runs."
        )
    return found


def _heading(score: Score) -> str:
    return f"Ablation: {score.title}" if score.is_ablation else f"{score.title} ({score.place})"


def _protocol_list(scores: Sequence[Score]) -> Markup:
    protocols = dict.fromkeys(score.protocol for score in scores)
    item = Markup("<strong>{}</strong>: {}.")
    return list_html([item.format(name, _PROTOCOLS.get(name, "a protocol of its own")) for name in protocols])


def _pictures(scores: Sequence[Score], folder: Path) -> list[str | Markup]:
    """Figure and animation of every protocol of one experiment."""
    if scores[0].is_ablation:
        return []
    parts: list[str | Markup] = []
    for protocol in dict.fromkeys(score.protocol for score in scores):
        chosen = [score for score in scores if score.protocol == protocol]
        stem = f"{chosen[0].experiment}.{protocol}"
        medians = ", ".join(f"{score.model} {number(score.spread.median)}" for score in chosen)
        parts.append(Markup("<h3>Protocol “{}”</h3>").format(protocol))
        picture, animation = folder / f"{stem}.png", folder / f"{stem}.gif"
        if picture.exists():
            alternative = (
                f"{_heading(chosen[0])}, protocol {protocol}: six panels with phase portrait, motion or "
                f"energy, learned slope of the potential, probability of touch, and errors over runs. "
                f"Median errors: {medians}."
            )
            caption = (
                "Curves are of the seed whose error is the median one (of an even number, the lower in the "
                "middle); bands span all seeds. The data are those of the first seed."
            )
            parts.append(figure_html(picture, alternative=alternative, caption=caption))
        else:
            parts.append("The figure has not been drawn.")
        if animation.exists():
            alternative = (
                f"Animation of {chosen[0].title}, protocol {protocol}: the truth and the median seeds of "
                f"{', '.join(score.model for score in chosen)} side by side."
            )
            caption = "The truth and every model side by side; grey outlines repeat the truth."
            moving = figure_html(animation, alternative=alternative, caption=caption, animated=True)
            parts.append(Markup("<details open><summary>Animation</summary>{}</details>").format(moving))
    return parts


def _provenance(units: Sequence[FinishedUnit], command: str) -> list[str | Markup]:
    """Command, versions, machine and time."""
    versions = sorted(
        {f"{name} {version}" for unit in units for name, version in unit.summary.get("versions", {}).items()}
    )
    devices = sorted({str(unit.summary.get("device", "unknown")) for unit in units})
    hours = sum(float(unit.summary.get("seconds", 0.0)) for unit in units) / 3600
    return [
        "Made by",
        Markup("<pre><code>{}</code></pre>").format(command),
        f"{', '.join(versions)}; device: {', '.join(devices)}; {number(hours)} hours of training.",
    ]
