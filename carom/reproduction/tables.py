"""Former names, until every caller is on `carom.evaluation.tables`."""

from collections.abc import Sequence

from carom.evaluation.tables import Table, markdown

__all__ = ["markdown", "markdown_of"]


def markdown_of(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table from its parts."""
    return markdown(Table(caption, tuple(header), tuple(tuple(row) for row in rows)))
