"""Tables in CSV files: commas, decimal points, UTF-8, names in the first line."""

import codecs
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from carom.data.io.tables import Table, cell, first_true, require_size
from carom.storage.input_file import complaint, not_utf8, shown

_HEADER_BYTES = 2**20


def _names(path: Path) -> Sequence[str]:
    with path.open("rb") as file:
        line = file.readline(_HEADER_BYTES)
    if len(line) == _HEADER_BYTES:
        raise complaint(path, "the line is too long for names of columns; write one row per sample", "line 1")
    try:
        fields = next(csv.reader([line.decode("utf-8-sig")]), [])
    except UnicodeDecodeError:
        raise not_utf8(path, 1) from None
    except csv.Error as error:
        problem = "the names of the columns cannot be read; separate them by commas"
        raise complaint(path, problem, "line 1") from error
    if len(fields) == 1 and fields[0].startswith("#"):
        problem = "this is a remark, not names of columns; remove what stands above those"
        raise complaint(path, problem, "line 1")
    return [name.strip() for name in fields]


def _load(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    names = _names(path)
    require_size(path, rows=_count_lines(path), columns=len(names))
    incomplete = complaint(path, "this is not a whole CSV table; check its quotation marks")
    try:
        # All columns as text: only then is a row with too many values noticed and can a wrong value be shown.
        text = pl.read_csv(path.absolute(), infer_schema=False, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        row = _overlong_row(path, len(names))
        if row is None:
            raise incomplete from error
        problem = f"there are more values than the {len(names)} columns; write numbers with a decimal point"
        raise complaint(path, problem, f"row {row}") from error
    if text.width != len(names):
        raise incomplete
    # Editors leave blank lines at the end.
    filled = text.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    text = text.head(filled[-1] + 1 if len(filled) else 0)

    # By position: columns that are not wanted may well share a name, such as none at all.
    places = {name: place for place, name in reversed([*enumerate(names)])}
    wanted = [*numbers, label] if label is not None else [*numbers]
    text = text[:, [places[name] for name in wanted]]
    text.columns = wanted
    text = text.select(pl.all().str.strip_chars().replace("", None))
    frame = text.with_columns(pl.col(numbers).cast(pl.Float64, strict=False))
    # Counted for all columns at once; only where a text was lost on the way is a column searched.
    lost = np.subtract(frame.null_count().row(0), text.null_count().row(0))
    if lost.any():
        name = frame.columns[int((lost > 0).argmax())]
        row = first_true(frame[name].is_null() & text[name].is_not_null())
        assert row is not None
        value = shown(text[name][row], length=20)
        remedy = "write a decimal point" if "," in value else "correct it or remove the row"
        raise complaint(path, f'"{value}" is not a number; {remedy}', *cell(row, name))
    return frame


def _save(frame: pl.DataFrame, file: BinaryIO) -> None:
    frame.write_csv(file)


CSV = Table(_names, _load, _save)


def _count_lines(path: Path) -> int:
    """Number of line ends; bytes that are not UTF-8 are refused with their line."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 0
    with path.open("rb") as file:
        while True:
            chunk = file.read(2**20)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise not_utf8(path, lines + error.object[: error.start].count(b"\n") + 1) from None
            if not chunk:
                return lines
            lines += chunk.count(b"\n")


def _overlong_row(path: Path, width: int) -> int | None:
    """The first row with more values than there are columns, counted from 1 after the header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return next((row for row, fields in enumerate(csv.reader(file)) if len(fields) > width), None)
        except csv.Error:
            return None
