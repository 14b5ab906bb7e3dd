"""Reading tables in tests."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from carom.evaluation.results import write_results
from carom.evaluation.tables import Table


def cells(table: Table, *beginning: str) -> list[str]:
    """The row that begins with these cells."""
    (found,) = [list(row) for row in table.rows if row[: len(beginning)] == beginning]
    return found


def as_read(rows: Iterable[Mapping[str, Any]], folder: Path) -> pl.DataFrame:
    """Tidy rows as they are read back from a file."""
    return write_results(folder / "new" / "results.json", rows, command="carom reproduce").rows
