"""Tables in NumPy's NPZ files: one array per column."""

import mmap
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from carom.data.io.tables import MAXIMUM_COLUMNS, Table, require_size
from carom.errors import InputError
from carom.storage.input_file import complaint, shown, size

_SUFFIX = ".npy"
_MAXIMUM_ARRAY_BYTES = 2**28
_DIRECTORY_ENTRY = re.compile(rb"PK\x01\x02")


def _names(path: Path) -> Sequence[str]:
    with _opened(path) as archive:
        members = archive.namelist()
    return [name.removesuffix(_SUFFIX) for name in members if name.endswith(_SUFFIX)]


def _load(path: Path, numbers: Sequence[str], label: str | None) -> pl.DataFrame:
    names = [*numbers] if label is None else [*numbers, label]
    columns: dict[str, np.ndarray] = {}
    with _opened(path) as archive:
        rows = _declared_length(path, archive, names[0], text=names[0] == label)
        require_size(path, rows=rows, columns=len(names))
        for name in names:
            length = _declared_length(path, archive, name, text=name == label)
            if length != rows:
                problem = f"there are {length} values here but {rows} in {shown(names[0])}; make them equal"
                raise complaint(path, problem, f"column {name}")
            with archive.open(name + _SUFFIX) as member:
                array = np.lib.format.read_array(member, allow_pickle=False)
            columns[name] = array.astype(np.str_ if name == label else np.float64)
    return pl.DataFrame(columns)


def _save(frame: pl.DataFrame, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in frame.columns:
            # np.savez would store the time of day: the same recording should give the same bytes.
            with archive.open(zipfile.ZipInfo(name + _SUFFIX), "w", force_zip64=True) as member:
                values = frame[name].to_numpy()
                # Polars has text as objects, which NumPy would pickle.
                values = values.astype(np.str_) if values.dtype == object else values
                np.lib.format.write_array(member, values, allow_pickle=False)


NPZ = Table(_names, _load, _save)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        # Opening a zip reads its whole directory, however long; the count that the file states may be a lie.
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            entries = sum(1 for _ in islice(_DIRECTORY_ENTRY.finditer(content), MAXIMUM_COLUMNS + 1))
        require_size(path, columns=entries)
        # Python warns of odd escapes in a header, which the user did not write.
        with warnings.catch_warnings(), zipfile.ZipFile(path) as archive:
            warnings.simplefilter("ignore")
            yield archive
    except (InputError, OSError):
        raise
    except Exception as error:
        # Damaged bytes surface from the zip, its decompressors, NumPy's header and its dtypes, as anything.
        raise complaint(path, "this is not a whole NPZ file; copy or export it again") from error


def _declared_length(path: Path, archive: zipfile.ZipFile, name: str, *, text: bool) -> int:
    """The length of an array by its header, after checking type and size as the header states them."""
    place = f"column {name}"
    declared = archive.getinfo(name + _SUFFIX).file_size
    if declared > _MAXIMUM_ARRAY_BYTES:
        problem = f"the array unpacks to {size(declared)}, and at most {size(_MAXIMUM_ARRAY_BYTES)} are read"
        raise complaint(path, f"{problem}; split the file", place)
    with archive.open(name + _SUFFIX) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        else:
            raise complaint(path, f"the array format {version} is unknown; save it with plain columns", place)
        content = declared - member.tell()
    if dtype.kind not in ("biufU" if text else "biuf") or dtype.itemsize == 0:
        raise complaint(path, f"the values are of type {shown(dtype)}; save plain numbers", place)
    if len(shape) != 1:
        raise complaint(path, f"the array has shape {shape}; save one flat array per column", place)
    if shape[0] * dtype.itemsize != content:
        raise complaint(path, f"the array should hold {shape[0]} values and does not; export it again", place)
    return shape[0]
