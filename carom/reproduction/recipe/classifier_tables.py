"""The committed document of classifier against gap, `results/classifier.json`, and its table in Markdown."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carom.digits import number
from carom.evaluation.tables import Table
from carom.reproduction.paper.results import rounded, write_document
from carom.reproduction.paper.statistics import spread
from carom.reproduction.tables import markdown

DECIDERS = ("gap", "classifier")
HEADER = (
    "truth",
    "starts",
    "bounces seen",
    "true impacts",
    *(f"{by}: wrong" for by in DECIDERS),
    *(f"{by}: all on time" for by in DECIDERS),
    *(f"{by}: error" for by in DECIDERS),
)
CASE_KEYS = ("truth", "bounces", "noise", "device", "rows")
"""What is committed of a case."""


def write_classifier(results: Sequence[Mapping[str, Any]], path: Path, *, command: str) -> None:
    """One document with every case and seed.

    Arguments:
        results: what `run_cases` gives.
        path: where to write; the folder is made.
        command: the command that makes these results.
    """
    write_document(
        path,
        command=command,
        devices=[result["device"] for result in results],
        seeds=sorted({line["seed"] for result in results for line in result["rows"]}),
        cases=[rounded({key: result[key] for key in CASE_KEYS}) for result in results],
    )


def case_lines(cases: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The lines of the table, all seeds of a case together."""
    kinds = [name for name in cases[0]["rows"][0] if name != "seed"]
    truths = dict.fromkeys(case["truth"] for case in cases)
    return [
        _line(case, starts)
        for truth in truths
        for starts in kinds
        for case in cases
        if case["truth"] == truth
    ]


def _line(case: Mapping[str, Any], starts: str) -> tuple[str, ...]:
    scores = [line[starts] for line in case["rows"]]

    def total(by: str, name: str) -> int:
        return sum(score[by][name] for score in scores)

    def wrong(by: str) -> str:
        return " / ".join(str(total(by, name)) for name in ("mistimed", "missed", "spurious"))

    def error(by: str) -> str:
        errors = (score[by]["median_error"] for score in scores)
        # A null is an error that left the numbers.
        return number(spread(math.inf if value is None else value for value in errors).median)

    return (
        case["truth"],
        starts,
        str(case["bounces"]),
        str(total("gap", "impacts")),
        *(wrong(by) for by in DECIDERS),
        *(f"{100 * total(by, 'on_time') / total(by, 'starts'):.0f} %" for by in DECIDERS),
        *(error(by) for by in DECIDERS),
    )


def classifier_markdown(document: Mapping[str, Any]) -> str:
    """Every case: impacts, starts on time and errors by the gap and by the classifier."""
    caption = (
        f"Forecasts from held-out starts over {len(document['seeds'])} seeds, contacts decided by the gap or "
        "by the classifier. Wrong impacts are mistimed / missed / spurious; then the share of starts with "
        "every impact on time, and the median over seeds of the median error over starts."
    )
    return markdown(Table(caption, HEADER, tuple(case_lines(document["cases"]))))
