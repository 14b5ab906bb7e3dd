"""The file formats of recordings: CSV (commas, decimal points, UTF-8), Parquet, and NumPy's NPZ.

A table is read in two steps: its names, and then the columns that are wanted. Its size is limited by what the
file declares, before any of it is loaded.
"""

import csv
import mmap
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np
import polars as pl

from carom.digits import counted
from carom.errors import InputError
from carom.storage.input_file import complaint, not_utf8, shown, size

MAXIMUM_BYTES = 2**28
"""The largest recording file that is read, and the most that the arrays of an NPZ file may unpack to."""
MAXIMUM_VALUES = 2**24
"""The most values, rows × columns, that are loaded; a table of them takes less than 1 GiB to read."""
MAXIMUM_COLUMNS = 2**14
"""The most columns of a file: positions, velocities and touch of the largest system, and some others."""
_HEADER_BYTES = 2**20
_NPY = ".npy"
_DIRECTORY_ENTRY = re.compile(rb"PK\x01\x02")

Answer = TypeVar("Answer")


class Format(NamedTuple):
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
        problem = f"the table has {rows} rows of {columns} columns, and at most {MAXIMUM_VALUES} values"
        raise complaint(path, f"{problem} are read; split it or leave out columns")


def cell(row: int, column: str) -> tuple[str, str]:
    """A place in a table for an error message; rows are counted from 1, after the header."""
    return f"row {row + 1}", f"column {column}"


def _csv_names(path: Path) -> Sequence[str]:
    with path.open("rb") as file:
        line = file.readline(_HEADER_BYTES)
    try:
        fields = next(csv.reader([line.decode("utf-8-sig")]), [])
    except UnicodeDecodeError:
        raise not_utf8(path, 1) from None
    except csv.Error as error:
        problem = "the names of the columns cannot be read; separate them by commas"
        raise complaint(path, problem, "line 1") from error
    return [name.strip() for name in fields]


def _load_csv(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    names = _csv_names(path)
    with path.open("rb") as file:
        rows = sum(part.count(b"\n") for part in iter(partial(file.read, 2**20), b""))
    require_size(path, rows=rows, columns=len(names))
    problem = f"the rows cannot be read as values of {counted(len(names), 'column')}; write numbers with a "
    incomplete = complaint(path, problem + "decimal point, close quotation marks, and save the file as UTF-8")
    try:
        # All columns as text: only then is a row with too many values noticed and can a wrong value be shown.
        text = pl.read_csv(path.absolute(), infer_schema=False, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise incomplete from error
    if text.width != len(names):
        raise incomplete
    # Editors leave blank lines at the end.
    filled = text.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    text = text.head(filled[-1] + 1 if len(filled) else 0)

    # By position: columns that are not wanted may well share a name, such as none at all.
    places = {name: place for place, name in reversed([*enumerate(names)])}
    wanted = [*numbers] if label is None else [*numbers, label]
    text = text[:, [places[name] for name in wanted]]
    text.columns = wanted
    text = text.select(pl.all().str.strip_chars().replace("", None))
    frame = text.with_columns(pl.col(numbers).cast(pl.Float64, strict=False))
    # Counted for all columns at once; only where a text was lost on the way is a column searched.
    lost = np.subtract(frame.null_count().row(0), text.null_count().row(0))
    if lost.any():
        name = frame.columns[int((lost > 0).argmax())]
        row = (frame[name].is_null() & text[name].is_not_null()).arg_true()[0]
        value = shown(text[name][row], length=20)
        remedy = "write a decimal point" if "," in value else "correct it or remove the row"
        raise complaint(path, f'"{value}" is not a number; {remedy}', *cell(row, name))
    return frame


def _load_parquet(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    types = _query(path, lambda table: table.collect_schema())
    columns = [] if label is None else [pl.col(label).cast(pl.String)]
    for name in numbers:
        if isinstance(types[name], pl.Duration):
            columns.append(pl.col(name).dt.total_nanoseconds() / 1e9)
        elif types[name].is_numeric() or types[name] == pl.Boolean:
            columns.append(pl.col(name).cast(pl.Float64))
        else:
            problem = f"the values are of type {shown(types[name])}; convert them to numbers"
            raise complaint(path, problem, f"column {name}")
    # The row count is in the footer, so a table that is too large is refused unread.
    rows = _query(path, lambda table: table.select(pl.len()).collect().item())
    require_size(path, rows=rows, columns=len(columns))
    return _query(path, lambda table: table.select(columns).collect())


def _query(path: Path, query: Callable[[pl.LazyFrame], Answer]) -> Answer:
    """Something that a Parquet file declares or holds."""
    try:
        with _silence():
            return query(pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # A damaged file can make Polars panic, which is not an `Exception` to Python.
        raise complaint(path, "this is not a whole Parquet file; copy or export it again") from error


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what Polars prints when it panics, pages of which would bury the error message."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _npz_names(path: Path) -> Sequence[str]:
    with _opened(path) as archive:
        return [name.removesuffix(_NPY) for name in archive.namelist() if name.endswith(_NPY)]


def _load_npz(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    names = [*numbers] if label is None else [*numbers, label]
    columns: dict[str, np.ndarray] = {}
    with _opened(path) as archive:
        for name in names:
            # An array whose header declares more than is there takes no memory before NumPy notices.
            with archive.open(name + _NPY) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
            plain = array.dtype.kind in ("biufU" if name == label else "biuf") and array.ndim == 1
            if not plain or len(array) != len(next(iter(columns.values()), array)):
                problem = f"the array is of type {shown(array.dtype)} and shape {array.shape}; save plain "
                problem += "numbers, one flat array per column, all of the same length"
                raise complaint(path, problem, f"column {name}")
            require_size(path, rows=len(array), columns=len(names))
            columns[name] = array.astype(np.str_ if name == label else np.float64)
    return pl.DataFrame(columns)


def _save_npz(frame: pl.DataFrame, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in frame.columns:
            # np.savez would store the time of day: the same recording should give the same bytes.
            with archive.open(zipfile.ZipInfo(name + _NPY), "w", force_zip64=True) as member:
                values = frame[name].to_numpy()
                # Polars has text as objects, which NumPy would pickle.
                values = values.astype(np.str_) if values.dtype == object else values
                np.lib.format.write_array(member, values, allow_pickle=False)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An NPZ file whose arrays, as its directory declares them, are not too many and not too large."""
    try:
        # Opening a zip reads its whole directory, however long; the count that the file states may be a lie.
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            entries = sum(1 for _ in islice(_DIRECTORY_ENTRY.finditer(content), MAXIMUM_COLUMNS + 1))
        require_size(path, columns=entries)
        # Python warns of odd escapes in a header, which the user did not write.
        with warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
            warnings.simplefilter("ignore")
            # A member never unpacks to more than it declares.
            for member in archive.infolist():
                if member.file_size > MAXIMUM_BYTES:
                    unpacked, most = size(member.file_size), size(MAXIMUM_BYTES)
                    problem = f"the array unpacks to {unpacked}, and at most {most} are read; split the file"
                    raise complaint(path, problem, f"column {member.filename.removesuffix(_NPY)}")
            yield archive
    except (InputError, OSError):
        raise
    except Exception as error:
        # Damaged bytes surface from the zip, its decompressors, NumPy's header and its dtypes, as anything.
        problem = "this is not a whole NPZ file of plain numbers; copy or export it again"
        raise complaint(path, problem) from error


FORMATS = {
    ".csv": Format(_csv_names, _load_csv, lambda frame, file: frame.write_csv(file)),
    ".parquet": Format(
        lambda path: _query(path, lambda table: table.collect_schema().names()),
        _load_parquet,
        lambda frame, file: frame.write_parquet(file),
    ),
    ".npz": Format(_npz_names, _load_npz, _save_npz),
}
"""By the suffix of the file."""
