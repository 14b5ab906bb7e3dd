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


def _names(path: Path) -> Sequence[str]:
    return _ask(path, lambda table: table.collect_schema().names())


def _load(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    types = _ask(path, lambda table: table.collect_schema())
    labels = [] if label is None else [label]
    for name in numbers:
        if not (types[name].is_numeric() or types[name] == pl.Boolean):
            problem = f"the values are of type {shown(types[name])}; convert them to numbers"
            raise complaint(path, problem, f"column {name}")
    for name in labels:
        if types[name].is_nested() or types[name] == pl.Binary:
            problem = f"the values are of type {shown(types[name])}; convert them to text or whole numbers"
            raise complaint(path, problem, f"column {name}")
    rows = _ask(path, lambda table: table.select(pl.len()).collect().item())
    require_size(path, rows=rows, columns=len(numbers) + len(labels))
    frame = _ask(path, lambda table: table.select(*numbers, *labels).collect())
    return frame.select(pl.col(numbers).cast(pl.Float64), pl.col(labels).cast(pl.String))


def _save(frame: pl.DataFrame, file: BinaryIO) -> None:
    frame.write_parquet(file)


PARQUET = Table(_names, _load, _save)


def _ask(path: Path, question: Callable[[pl.LazyFrame], Answer]) -> Answer:
    """Something that a file declares or holds."""
    try:
        with _silence():
            return question(pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # A damaged file can make Polars panic, which is not an `Exception` to Python.
        raise complaint(path, "this is not a whole Parquet file; copy or export it again") from error


@contextmanager
def _silence() -> Iterator[None]:
    """Keep from the user what Polars prints when it panics, pages of which would bury the complaint."""
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
