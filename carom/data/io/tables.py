"""What every table format has in common: its three operations and its limits."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import polars as pl

from carom.storage.input_file import complaint

MAXIMUM_BYTES = 2**28
"""The largest recording file that is read."""
MAXIMUM_VALUES = 2**24
"""The most values, rows × columns, that are loaded; a table of them takes less than 1 GiB to read."""
MAXIMUM_COLUMNS = 2**14
"""The most columns of a file: positions, velocities and touch of the largest system, and some others."""


class Table(NamedTuple):
    """One file format.

    Arguments:
        names: gives the names of a file's columns as they stand there, repetitions included.
        load: gives the columns `numbers` as float64 and the column `label` as text; null where a cell
            is empty.
        save: writes a table to an open file.
    """

    names: Callable[[Path], Sequence[str]]
    load: Callable[[Path, Sequence[str], str | None], pl.DataFrame]
    save: Callable[[pl.DataFrame, BinaryIO], None]


def require_size(path: Path, *, columns: int, rows: int = 0) -> None:
    """Refuse a table that would take too long or too much memory, by its declared size."""
    if columns > MAXIMUM_COLUMNS:
        problem = f"the table has more than {MAXIMUM_COLUMNS} columns, the most that are read"
        raise complaint(path, f"{problem}; write one row per sample, and leave out columns")
    if rows * columns > MAXIMUM_VALUES:
        problem = (
            f"the table has {rows} rows of {columns} columns, and at most {MAXIMUM_VALUES} values are read"
        )
        raise complaint(path, f"{problem}; split it or leave out columns")


def first_true(mask: pl.Series) -> int | None:
    """The first row where a condition holds."""
    rows = mask.arg_true()
    return rows[0] if len(rows) else None


def cell(row: int, column: str) -> tuple[str, str]:
    """A place in a table for an error message; rows are counted from 1, after the header."""
    return f"row {row + 1}", f"column {column}"
