"""Tables in Parquet files."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import polars as pl

from carom.data.io.tables import Table, require_size
from carom.storage.input_file import complaint, shown

Answer = TypeVar("Answer")
_UNITS_PER_SECOND = {"ms": 1e3, "us": 1e6, "ns": 1e9}


def _names(path: Path) -> Sequence[str]:
    return _query(path, lambda table: table.collect_schema().names())


def _load(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    types = _query(path, lambda table: table.collect_schema())
    labels = [] if label is None else [label]
    columns = []
    for name in (*numbers, *labels):
        kind, column = types[name], pl.col(name)
        text = name == label
        if text and not (kind.is_nested() or kind in (pl.Binary, pl.Duration)):
            columns.append(column.cast(pl.String))
        elif not text and (kind.is_numeric() or kind == pl.Boolean):
            columns.append(column.cast(pl.Float64))
        elif not text and isinstance(kind, pl.Duration):
            columns.append(column.to_physical().cast(pl.Float64) / _UNITS_PER_SECOND[kind.time_unit])
        else:
            remedy = "text or whole numbers" if text else "numbers"
            problem = f"the values are of type {shown(kind)}; convert them to {remedy}"
            raise complaint(path, problem, f"column {name}")
    # The row count is in the footer, so a table that is too large is refused unread.
    rows = _query(path, lambda table: table.select(pl.len()).collect().item())
    require_size(path, rows=rows, columns=len(columns))
    frame = _query(path, lambda table: table.select(*numbers, *labels).collect())
    return frame.select(columns)


def _save(frame: pl.DataFrame, file: BinaryIO) -> None:
    frame.write_parquet(file)


PARQUET = Table(_names, _load, _save)


def _query(path: Path, query: Callable[[pl.LazyFrame], Answer]) -> Answer:
    """Something that a file declares or holds."""
    try:
        with _silence():
            return query(pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # A damaged file can make Polars panic, which is not an `Exception` to Python.
        raise complaint(path, "this is not a whole Parquet file; copy or export it again") from error


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what Polars prints when it panics, pages of which would bury the error message."""
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # a process may have been started without
        yield
        return
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
