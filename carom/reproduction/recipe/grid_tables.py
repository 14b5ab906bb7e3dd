"""The committed document of the grid, `results/grid.json`, what it says of each cell, and its table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carom.digits import MISSING, number
from carom.errors import InputError
from carom.evaluation.tables import Table
from carom.reproduction.formatting import of_total
from carom.reproduction.paper.results import rounded, write_document
from carom.reproduction.paper.statistics import Share, spread
from carom.reproduction.recipe.grid import FORECAST_STEPS, LEARNERS, TRAINING_STEPS, Cell, scheme_error
from carom.reproduction.tables import markdown

Document = Mapping[str, Any]
CellKey = tuple[str, float, int]
"""Learner, noise, bounces."""
USUAL_NOISE = 0.2
"""The noise of the paper's ball."""


def write_grid(
    cells: Sequence[Cell], results: Sequence[Mapping[str, Any]], path: Path, *, command: str
) -> dict[str, Any]:
    """One document with every cell and seed, which is also returned.

    Arguments:
        cells: as they were run.
        results: what `run_grid` gives for them.
        path: where to write; the folder is made.
        command: the command that makes these results.
    """
    if not results:
        raise InputError("There are no finished cells to write.")
    return write_document(
        path,
        command=command,
        devices=[result["device"] for result in results],
        seeds=sorted({line["seed"] for result in results for line in result["rows"]}),
        noises=sorted({cell.noise for cell in cells}),
        bounces=sorted({cell.bounces for cell in cells}),
        forecast_steps=FORECAST_STEPS,
        training_steps=cells[0].training_steps,
        held_out_starts=cells[0].held_out,
        scheme_error=rounded(scheme_error()),
        learners={name: LEARNERS[name].title for name in LEARNERS if any(c.learner == name for c in cells)},
        cells=[
            rounded({key: part for key, part in result.items() if key != "fingerprint"}) for result in results
        ],
    )


@dataclass(frozen=True)
class CellScore:
    """What is said of the seeds of one cell.

    Arguments:
        error: the median over seeds, from the recorded start.
        held_out: the same of the medians over held-out starts.
        seeds: how many there are.
        off: seeds whose forecast has a bounce missing, too many, or at a wrong sample.
        failed: seeds whose fit says that it failed.
        miscounted: seeds in whose recording the wrong number of bounces was found.
        astray: seeds with one of the last two.
        wrong: seeds with any of the three.
    """

    error: float
    held_out: float
    seeds: int
    off: int
    failed: int
    miscounted: int
    astray: int
    wrong: int


def cell_scores(document: Document) -> dict[CellKey, CellScore]:
    """The scores of all cells."""
    return {
        (cell["learner"], cell["noise"], cell["bounces"]): _cell_score(cell) for cell in document["cells"]
    }


def grid_table(document: Document) -> Table:
    """Every learner at the paper's noise, and how often it goes wrong in the whole grid."""
    scores, noise = cell_scores(document), usual_noise(document)
    header = ["learner", *(_bounces(count) for count in document["bounces"])]
    header += ["all bounces on time", "fit says it failed", "bounces of the recording miscounted"]
    rows = []
    for name, title in document["learners"].items():
        ours = [score for (learner, _, _), score in scores.items() if learner == name]
        total = sum(score.seeds for score in ours)
        on_time = _on_time(scores, name, document["noises"])
        counted = [
            of_total(Share(sum(getattr(score, key) for score in ours), total))
            if _knows(document, name, key)
            else MISSING
            for key in ("failed", "miscounted")
        ]
        medians = (number(scores[name, noise, count].error) for count in document["bounces"])
        rows.append((title, *medians, of_total(on_time), *counted))
    seeds, noises = document["seeds"], [f"{value:g}" for value in document["noises"]]
    shortened = "A shortened run. " if document["training_steps"] < TRAINING_STEPS else ""
    caption = (
        f"{shortened}Median error of seeds {seeds[0]} to {seeds[-1]} at σ = {noise:g} by number of recorded "
        f"bounces; then counts over all noises ({', '.join(noises)}), bounces and seeds. The paper's recipe "
        f"and the residual networks have {document['training_steps']} training steps."
    )
    return Table(caption, tuple(header), tuple(rows))


def grid_markdown(document: Document) -> str:
    """The table of the grid."""
    return markdown(grid_table(document))


def remarks_markdown(document: Document) -> str:
    """What the grid says, in three sentences whose numbers are all taken from it."""
    if set(document["learners"]) != set(LEARNERS):
        raise InputError("The sentences about the grid need all its learners.")
    scores, noise, loudest = cell_scores(document), usual_noise(document), document["noises"][-1]
    fewest, most = document["bounces"][0], document["bounces"][-1]
    rivals = [name for name, learner in LEARNERS.items() if learner.recipe == "paper"]
    best = min(rivals, key=lambda name: scores[name, noise, most].error)

    def errors(count: int, *names: str) -> str:
        return _listed([number(scores[name, noise, count].error) for name in names])

    def on_time(noises: Sequence[float], *names: str) -> str:
        return _listed([of_total(_on_time(scores, name, noises)) for name in names])

    ours = [f"carom-{touch}" for touch in ("observed", "imperfect", "inferred")]
    compared = ("carom-inferred", "carom-observed", "oracle", "cd-lagrange")
    return (
        f"At σ = {noise:g} the recipe `carom` with touch observed, imperfect and inferred has median errors "
        f"of {errors(fewest, *ours)} after {_bounces(fewest)} and {errors(most, *ours)} after "
        f"{_bounces(most)}, where the oracle has {errors(most, 'oracle')} and the best of the others "
        f"({LEARNERS[best].title}) {errors(most, best)}.\n"
        "Over the whole grid every bounce is on time in the forecasts of the recipe `carom` without and with "
        "touch readings, of the oracle, and of the paper's recipe with touch in "
        f"{on_time(document['noises'], *compared)} cases; the step of the latter alone, with the true force "
        f"and floor, costs {number(document['scheme_error'])} on exact truth.\n"
        f"At σ = {loudest:g}, the most noise that was tried, the same counts are "
        f"{on_time([loudest], *compared)}."
    )


GRID_TABLES: dict[str, Callable[[Document], str]] = {
    "grid-summary": grid_markdown,
    "grid-remarks": remarks_markdown,
}
"""Tables by the name of their marker in a page."""


def usual_noise(document: Document) -> float:
    """The paper's noise, or what of the grid is nearest."""
    return min(document["noises"], key=lambda noise: abs(noise - USUAL_NOISE))


def _on_time(scores: Mapping[CellKey, CellScore], learner: str, noises: Sequence[float]) -> Share:
    """Forecasts with every bounce at its sample, over all bounces and seeds at these noises."""
    chosen = [score for (name, noise, _), score in scores.items() if name == learner and noise in noises]
    total = sum(score.seeds for score in chosen)
    return Share(total - sum(score.off for score in chosen), total)


def _cell_score(cell: Mapping[str, Any]) -> CellScore:
    lines = cell["rows"]
    off = [bool(line["mistimed"] or line["missed"] or line["spurious"]) for line in lines]
    failed = [bool(line.get("failed", False)) for line in lines]
    miscounted = [line.get("found_bounces", cell["bounces"]) != cell["bounces"] for line in lines]
    return CellScore(
        error=_median(lines, "paper_rmse"),
        held_out=_median(lines, "held_out_median"),
        seeds=len(lines),
        off=sum(off),
        failed=sum(failed),
        miscounted=sum(miscounted),
        astray=sum(map(any, zip(failed, miscounted, strict=True))),
        wrong=sum(map(any, zip(off, failed, miscounted, strict=True))),
    )


def _median(lines: Sequence[Mapping[str, Any]], key: str) -> float:
    # A null is a forecast that left the numbers.
    return spread(math.inf if line[key] is None else line[key] for line in lines).median


def _knows(document: Document, learner: str, key: str) -> bool:
    """Whether a learner could have gone wrong in this way: the oracle has no doubts, few count bounces."""
    column = {"failed": "failed", "miscounted": "found_bounces"}[key]
    return any(column in cell["rows"][0] for cell in document["cells"] if cell["learner"] == learner)


def _bounces(count: int) -> str:
    return f"{count} bounce" if count == 1 else f"{count} bounces"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
