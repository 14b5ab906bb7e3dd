"""A table of text, for pages, Markdown and terminals."""

from dataclasses import dataclass

from carom.digits import MISSING


@dataclass(frozen=True)
class Table:
    """Cells as text.

    Arguments:
        caption: one sentence that says what is counted.
        header: names of the columns; the first column names the row.
        rows: as many cells each.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Columns that hold numbers, to be set flush right."""
        columns = zip(*self.rows, strict=True)
        return tuple(all(cell == MISSING or cell[0].isdigit() for cell in column) for column in columns)
