"""Tables of how cost grows, from benchmarks/results/growth.json."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---:|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def paper_markdown(document: Document) -> str:
    """The paper's recipe against the length of a recording."""
    whole = {row["size"]: row for row in document["paper_command"]}
    rows = [
        (
            f"{row['size']:,}".replace(",", " "),
            f"{row['seconds']:.3g}",
            f"{row['microseconds_per_step'] / 1e3:.2f}",
            f"{row['peak_bytes'] / 1e6:.0f}",
            f"{whole[row['size']]['seconds']:.0f}" if row["size"] in whole else "",
            f"{whole[row['size']]['peak_bytes'] / 1e6:.0f}" if row["size"] in whole else "",
        )
        for row in document["paper_length"]
    ]
    header = ("samples", "an epoch / s", "a step / ms", "memory / MB", "whole command / s", "its memory / MB")
    return _table(header, rows)


def carom_markdown(document: Document) -> str:
    """The recipe carom against the length of a recording."""
    rows = [
        (
            f"{row['size']:,}".replace(",", " "),
            f"{row['seconds']:.0f}",
            str(row["rounds"]),
            f"{row['peak_bytes'] / 1e6:.0f}",
        )
        for row in document["carom_length"]
    ]
    return _table(("samples", "time / s", "rounds", "memory / MB"), rows)


def ensemble_markdown(document: Document) -> str:
    """Ensembles against the number of their members."""
    rows = [
        (
            str(row["size"]),
            f"{row['seconds']:.3g}",
            f"{row['microseconds_per_step'] / 1e3:.2f}",
            f"{row['peak_bytes'] / 1e6:.0f}",
        )
        for row in document["ensemble"]
    ]
    return _table(("members", "an epoch / s", "a member's step / ms", "memory / MB"), rows)


GROWTH_TABLES: dict[str, Callable[[Document], str]] = {
    "growth.paper": paper_markdown,
    "growth.carom": carom_markdown,
    "growth.ensemble": ensemble_markdown,
}
