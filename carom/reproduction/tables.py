"""The tables of a reproduction in Markdown, from `results/paper.json`, and their place in a text."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from carom.errors import InputError
from carom.evaluation.tables import Table
from carom.reproduction.paper.comparison import experiment_table, summary_tables
from carom.reproduction.paper.statistics import Score, score


def document_scores(document: Mapping[str, Any]) -> list[Score]:
    """The scores in a document such as `results/paper.json`."""
    return [score(summary) for summary in document["units"]]


def experiment_markdown(document: Mapping[str, Any], experiment: str) -> str:
    """The table of one experiment or ablation: every model and protocol, and the oracle."""
    return markdown(experiment_table(document_scores(document), document.get("oracle", {}), experiment))


def summary_markdown(document: Mapping[str, Any]) -> str:
    """The tables "does it come out?", one below the other."""
    return "\n\n".join(markdown(table) for table in summary_tables(document_scores(document)))


def markdown(table: Table) -> str:
    """A table under its caption.

    Example:
        >>> print(markdown(Table("Errors.", ("model", "mean"), (("ResNet", "6.6"),))))
        *Errors.*
        <BLANKLINE>
        | model | mean |
        |:---|---:|
        | ResNet | 6.6 |
    """
    rule = "|" + "|".join("---:" if numeric else ":---" for numeric in table.numeric) + "|"
    return "\n".join([f"*{table.caption}*", "", _row(table.header), rule, *map(_row, table.rows)])


def markdown_of(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same from its parts."""
    return markdown(Table(caption, tuple(header), tuple(tuple(row) for row in rows)))


def replace_between(text: str, marker: str, table: str) -> str:
    """The text with `table` between the lines `<!-- begin: marker -->` and `<!-- end: marker -->`.

    Example:
        >>> replace_between("a\\n<!-- begin: t -->\\nold\\n<!-- end: t -->\\nb\\n", "t", "new")
        'a\\n<!-- begin: t -->\\n\\nnew\\n\\n<!-- end: t -->\\nb\\n'
    """
    begin, end = f"<!-- begin: {marker} -->", f"<!-- end: {marker} -->"
    pattern = re.compile(rf"^{re.escape(begin)}$.*?^{re.escape(end)}$", re.MULTILINE | re.DOTALL)
    found = len(pattern.findall(text))
    if found != 1:
        raise InputError(
            f"A text needs one line “{begin}” and below it one line “{end}”; {found} such pairs were found."
        )
    # A function, because a replacement text would have its backslashes read.
    return pattern.sub(lambda _: f"{begin}\n\n{table.strip()}\n\n{end}", text)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
