"""Wrong files: each gets one sentence with the file, the place in it and a remedy, and changes nothing."""

import io
import os
import pickle
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import time
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import polars as pl
import pytest

import carom.data.io.formats
from carom.data import Columns, read_recording, read_system_file
from carom.data.io.column_guess import guess_columns
from carom.data.io.formats import MAXIMUM_COLUMNS
from carom.errors import InputError
from carom.mechanics import Scene


@dataclass(frozen=True)
class Case:
    """A wrong file: its name, its content and what the sentence must contain."""

    name: str
    file: str
    content: bytes | str | Callable[[Path], bytes | None]
    fragments: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)


def rows(*lines: str, header: str = "t,q1") -> str:
    return "\n".join([header, *lines]) + "\n"


def motion(**changes) -> dict[str, list]:
    """Six good samples with some columns changed, added, or removed by None."""
    good = {"t": [0.0, 0.5, 1.0, 1.5, 2.0, 2.5], "q1": [0.0, 1.0, 4.0, 9.0, 16.0, 25.0]}
    return {name: values for name, values in {**good, **changes}.items() if values is not None}


def csv(**changes) -> str:
    data = motion(**changes)
    lines = [",".join(str(value) for value in row) for row in zip(*data.values(), strict=True)]
    return rows(*lines, header=",".join(data))


def parquet(**changes) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(motion(**changes)).write_parquet(buffer)
    return buffer.getvalue()


def npz(**changes) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(values) for name, values in motion(**changes).items()})
    return buffer.getvalue()


def npz_member(content: bytes, name: str = "q1.npy") -> bytes:
    """An NPZ file in which one member has bytes of its own."""
    buffer = io.BytesIO(npz(q1=None))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def npy_header(description: str, size: int = 0) -> bytes:
    header = description.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(size)


def bomb(_: Path) -> bytes:
    """A small file that declares 2 GiB of zeros."""
    buffer = io.BytesIO(npz(q1=None))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("q1.npy", b"")
        archive.getinfo("q1.npy").file_size = 2**31
    return buffer.getvalue()


def twice_in_zip(_: Path) -> bytes:
    buffer = io.BytesIO(npz())
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("q1.npy", b"")
    return buffer.getvalue()


def sparse(path: Path) -> None:
    """A file of 3 GiB that takes no space."""
    with path.open("wb") as file:
        file.truncate(3 * 2**30)


class Exploit:
    """What a pickle could do."""

    def __reduce__(self):
        return os.mkdir, ("exploited",)


HERE = Scene(bodies=1, dimension=1)
PLANE = Scene(bodies=1, dimension=2)
TWO = Scene(bodies=2, dimension=1)

FILES = [
    Case("missing", "ball.csv", lambda path: None, ("no such file",)),
    Case("folder", "ball.csv", Path.mkdir, ("folder",)),
    Case("remarks above", "ball.csv", "# from the lab\n" + csv(), ("column t", "missing", "# from the lab")),
    Case("pipe", "ball.csv", os.mkfifo, ("not a regular file",)),
    Case("link to itself", "ball.csv", lambda path: path.symlink_to(path), ("cannot be read",)),
    Case("null character", "ball\0.csv", lambda path: None, ("cannot be read",)),
    Case("empty", "ball.csv", b"", ("empty",)),
    Case("empty parquet", "ball.parquet", b"", ("empty",)),
    Case("huge", "ball.csv", sparse, ("larger than 256 MiB",)),
    Case("no suffix", "ball", csv(), (".csv, .parquet or .npz",)),
    Case("other suffix", "ball.xlsx", b"PK", (".csv, .parquet or .npz",)),
    Case("pickle", "ball.pickle", pickle.dumps(Exploit()), (".csv, .parquet or .npz",)),
    Case("new line in the name", "ball\n.txt", csv(), (".csv, .parquet or .npz",)),
]
TEXTS = [
    Case("latin-1 cell", "ball.csv", csv(note=list("abcdeé")).encode("latin-1"), ("cannot be read", "UTF-8")),
    Case("latin-1 header", "ball.csv", csv(größe=[1] * 6).encode("latin-1"), ("line 1", "UTF-8")),
    Case("utf-16", "ball.csv", csv().encode("utf-16"), ("line 1", "UTF-8")),
    Case("compressed", "ball.csv", b"\x1f\x8b\x08\x00" + bytes(range(256)), ("line 1", "UTF-8")),
    Case("parquet as csv", "ball.csv", parquet(), ("ball.csv",)),
    Case("old line ends", "ball.csv", csv().replace("\n", "\r"), ("line 1", "cannot be read")),
    Case("endless first line", "ball.csv", "q" * 2**21, ("line 1", "cannot be read")),
    Case("only a header", "ball.csv", "t,q1\n", ("no rows",)),
    Case("blank lines only", "ball.csv", "t,q1\n\n\n\n", ("no rows",)),
    Case("blank line inside", "ball.csv", rows("0,1", "", "1,2", "2,4"), ("row 2", "column t", "empty")),
    Case("empty cell", "ball.csv", rows("0,1", "1,", "2,4"), ("row 2", "column q1", "empty")),
    Case("short row", "ball.csv", rows("0,1", "1,2", "2"), ("row 3", "column q1", "empty")),
    Case("long row", "ball.csv", rows("0,1", "1,2", "2,4,8"), ("2 columns", "decimal point")),
    Case("decimal commas", "ball.csv", rows("0,0,1,5", "0,1,1,7"), ("2 columns", "decimal point")),
    Case("open quotation", "ball.csv", rows("0,1", '"1,2', "2,4"), ("quotation marks",)),
    Case("semicolons", "ball.csv", csv().replace(",", ";"), ("line 1", 'separated by ";"', "commas")),
    Case("tabs", "ball.csv", csv().replace(",", "\t"), ("line 1", "separated by tabs", "commas")),
    Case("text", "ball.csv", rows("0,1", "1,two", "2,4"), ("row 2", "column q1", '"two" is not a number')),
    Case("text as time", "ball.csv", rows("0 s,1", "1 s,2", "2 s,4"), ("row 1", "column t", '"0 s"')),
    Case("code", "ball.csv", rows("0,1", "1,2*3", "2,4"), ("row 2", "column q1", '"2*3"')),
    Case("text over lines", "ball.csv", rows("0,1", '1,"2\n3"', "2,4"), ("row 2", "column q1")),
]
COLUMNS = [
    Case("no columns known", "ball.csv", csv(q1=None, x=[1] * 6), ("column q1", "missing", "t, x")),
    Case("capital", "ball.csv", csv(q1=None, Q1=[1] * 6), ("column q1", "did you mean Q1")),
    Case("left out", "ball.csv", csv(q3=[1] * 6), ("column q2", "missing")),
    Case("no time", "ball.csv", csv(t=None), ("column t", "missing", "step size")),
    Case("near time", "ball.csv", csv(t=None, T=[0] * 6), ("column t", "did you mean T")),
    Case(
        "own time",
        "ball.csv",
        csv(t=None, tine=[0] * 6),
        ("column time", "did you mean tine"),
        {"columns": Columns(("q1",), time="time"), "step_size": 0.5},
    ),
    Case(
        "own name",
        "ball.csv",
        csv(x_left=[0] * 6),
        ("column x_lef", "did you mean x_left"),
        {"columns": Columns(("x_lef",))},
    ),
    Case(
        "own run", "ball.csv", csv(), ("column trial", "missing"), {"columns": Columns(("q1",), run="trial")}
    ),
    Case(
        "own touch",
        "ball.npz",
        npz(),
        ("column hit", "missing"),
        {"columns": Columns(("q1",), touch=("hit",))},
    ),
    Case("missing in parquet", "ball.parquet", parquet(q1=None), ("column q1", "missing")),
    Case("missing in npz", "ball.npz", npz(q1=None), ("column q1", "missing")),
    Case(
        "twice", "ball.csv", rows("0,1,1", "1,2,2", "2,4,4", header="t,q1,q1"), ("column q1", "two columns")
    ),
    Case("twice after spaces", "ball.csv", rows("0,1,1", header="t,q1, q1"), ("column q1", "two columns")),
    Case("twice in npz", "ball.npz", twice_in_zip, ("column q1", "two columns")),
    Case("one velocity of two", "ball.csv", csv(q2=range(6), v1=range(6)), ("2 velocity columns", "v1")),
    Case("touch of one of two", "ball.csv", csv(q2=range(6), touch1=[0] * 6), ("2 touch columns", "touch1")),
    Case(
        "touch per coordinate",
        "ball.csv",
        csv(q2=range(6), touch1=[0] * 6, touch2=[0] * 6),
        ("1 touch column,", "touch2"),
        {"scene": PLANE},
    ),
    Case(
        "too many bodies",
        "ball.csv",
        csv(q2=range(6)),
        ("1 body", "1 position column,", "q1, q2"),
        {"scene": HERE},
    ),
    Case(
        "too few bodies",
        "ball.csv",
        csv(),
        ("2 bodies", "2 position columns", "number of bodies"),
        {"scene": TWO},
    ),
    Case("too few dimensions", "ball.csv", csv(), ("2 dimensions", "2 position columns"), {"scene": PLANE}),
    Case(
        "named for other bodies",
        "ball.csv",
        csv(),
        ("2 position columns",),
        {"scene": TWO, "columns": Columns(("q1",))},
    ),
]
VALUES = [
    Case(
        "nan",
        "ball.csv",
        csv(q1=[0, 1, "nan", 2, 3, 4]),
        ("row 3", "column q1", "not finite", 'missing = ["position"] under [sampling]'),
    ),
    Case("infinite", "ball.csv", csv(q1=[0, 1, 2, 3, 4, "-inf"]), ("row 6", "column q1", "not finite")),
    Case("too large", "ball.csv", csv(q1=[0, "1e999", 2, 3, 4, 5]), ("row 2", "column q1", "not finite")),
    Case("nan time", "ball.csv", csv(t=[0, "nan", 2, 3, 4, 5]), ("row 2", "column t", "not finite")),
    Case(
        "nan velocity",
        "ball.csv",
        csv(v1=[0, 1, 2, 3, 4, "nan"]),
        ("row 6", "column v1", "not finite", 'missing = ["velocity"] under [sampling]'),
    ),
    Case(
        "empty velocity",
        "ball.csv",
        csv(q1=[0, "", 2, 3, 4, 5], v1=[0, 1, 2, "", 4, 5]),
        ("row 4", "column v1", "empty", 'missing = ["velocity"] under [sampling]'),
        {"missing": ["position"]},
    ),
    Case(
        "infinite where values may be missing",
        "ball.npz",
        npz(q1=[0, 1, np.nan, -np.inf, 3, 4]),
        ("row 4", "column q1", "not finite", "remove the row"),
        {"missing": ["position"]},
    ),
    Case(
        "text where values may be missing",
        "ball.csv",
        csv(q1=[0, "", "?", 2, 3, 4]),
        ("row 3", "column q1", '"?" is not a number'),
        {"missing": ["position"]},
    ),
    Case(
        "empty time where values may be missing",
        "ball.csv",
        csv(t=[0, "", 2, 3, 4, 5]),
        ("row 2", "column t", "empty", "remove the row"),
        {"missing": ["position", "velocity"]},
    ),
    Case(
        "empty touch",
        "ball.csv",
        csv(touch1=[0, 1, "", 0, 0, 0]),
        ("row 3", "column touch1", "empty", "write 0", "imperfect"),
        {"missing": ["position", "velocity"]},
    ),
    Case(
        "run without positions",
        "ball.csv",
        csv(q1=[0, 1, 2, 3, "", ""], run=list("aaabbb"), t=[0, 1, 2, 0, 1, 2]),
        ("row 4", "column q1", "too few values in this column", "fewer than 3"),
        {"missing": ["position"]},
    ),
    Case(
        "no velocities at all",
        "ball.parquet",
        parquet(v1=[None, np.nan, None, None, None, None]),
        ("column v1", "every value is missing"),
        {"missing": ["velocity"]},
    ),
    Case(
        "constant but for what is missing",
        "ball.csv",
        csv(q1=[2, 2, "", 2, 2, 2], q2=[0.5] * 6),
        ("column q1", "nothing moves"),
        {"missing": ["position"]},
    ),
    Case(
        "nan in parquet", "ball.parquet", parquet(q1=[0.0, float("nan"), 1, 2, 3, 4]), ("row 2", "column q1")
    ),
    Case("nan in npz", "ball.npz", npz(q1=[0.0, 1, 2, np.inf, 3, 4]), ("row 4", "column q1", "not finite")),
    Case(
        "null in parquet",
        "ball.parquet",
        parquet(q1=[0.0, None, 1, 2, 3, 4]),
        ("row 2", "column q1", "empty"),
    ),
    Case("constant", "ball.csv", csv(q1=[1] * 6, q2=[0.5] * 6), ("column q1", "nothing moves")),
    Case("constant in npz", "ball.npz", npz(q1=[0.5] * 6, q2=[1] * 6), ("column q1", "nothing moves")),
    Case("touch of 2", "ball.csv", csv(touch1=[0, 1, 0, 2, 0, 1]), ("row 4", "column touch1", "0 elsewhere")),
    Case(
        "touch of a half",
        "ball.npz",
        npz(touch1=[0, 0.5, 0, 1, 0, 1]),
        ("row 2", "column touch1", "neither 0 nor 1"),
    ),
    Case("touch in words", "ball.csv", csv(touch1=[False] * 6), ("row 1", "column touch1", "not a number")),
    Case("nan touch", "ball.csv", csv(touch1=[0, 0, 0, 0, "nan", 0]), ("row 5", "column touch1", "write 0")),
]
TIMES = [
    Case("falling", "ball.csv", csv(t=[0, 1, 2, 1.5, 3, 4]), ("row 4", "column t", "from 2 to 1.5", "sort")),
    Case("starting again", "ball.csv", csv(t=[0, 1, 2, 0, 1, 2]), ("row 4", "column t", "column run")),
    Case(
        "falling in a run", "ball.csv", csv(t=[0, 1, 2, 2, 1, 0], run=[0, 0, 0, 1, 1, 1]), ("row 5", "sort")
    ),
    Case(
        "duplicated",
        "ball.csv",
        csv(t=[0, 1, 1, 2, 3, 4]),
        ("row 3", "column t", "from 1 to 1", "same time"),
    ),
    Case(
        "gap", "ball.csv", csv(t=[0, 1, 2, 3, 9, 10]), ("row 5", "column t", "6 s", "1 s", "gap", "new run")
    ),
    Case(
        "gap in a later run",
        "ball.csv",
        csv(t=[0, 1, 2, 0, 1, 7], run=list("aaabbb")),
        ("row 6", "step is 6 s", "rows whose cells are empty"),
    ),
    Case("other step size", "ball.csv", csv(), ("column t", "0.5 s", "0.02 s"), {"step_size": 0.02}),
    Case("no step size", "ball.csv", csv(), ("step size", "positive"), {"step_size": 0.0}),
    Case("nan step size", "ball.csv", csv(t=None), ("step size", "positive"), {"step_size": float("nan")}),
    Case(
        "endless times",
        "ball.csv",
        csv(t=["-1e308", 0, "1e308", "1.1e308", "1.2e308", "1.3e308"]),
        ("column t", "seconds"),
    ),
    Case("tiny times", "ball.csv", csv(t=[f"{n}e-320" for n in range(6)]), ("column t", "seconds")),
    Case("two samples", "ball.csv", rows("0,1", "1,2"), ("row 1", "too few samples, 2", "at least 3")),
    Case(
        "short run",
        "ball.csv",
        csv(t=[0, 1, 2, 3, 0, 1], run=[1, 1, 1, 1, 2, 2]),
        ("row 5", "run 2", "at least 3"),
    ),
    Case("interleaved", "ball.csv", csv(run=list("aaabba")), ("row 6", "column run", "run a comes back")),
    Case(
        "interleaved in npz",
        "ball.npz",
        npz(run=[7, 7, 7, 8, 7, 7]),
        ("row 5", "column run", "run 7 comes back"),
    ),
    Case(
        "run without name",
        "ball.csv",
        csv(run=["a", "a", "a", "", "b", "b"]),
        ("row 4", "column run", "empty"),
    ),
]
NOTHING = pl.Series([], dtype=pl.Float64)
BINARY = [
    Case("cut parquet", "ball.parquet", parquet()[:-20], ("not a whole Parquet file",)),
    Case("half a parquet", "ball.parquet", parquet()[:200], ("not a whole Parquet file",)),
    Case("csv as parquet", "ball.parquet", csv(), ("not a whole Parquet file",)),
    Case("text in parquet", "ball.parquet", parquet(q1=list("abcdef")), ("column q1", "String", "numbers")),
    Case("lists in parquet", "ball.parquet", parquet(q1=[[1.0]] * 6), ("column q1", "List", "numbers")),
    Case("times of day as time", "ball.parquet", parquet(t=[time(12, n) for n in range(6)]),
         ("column t", "Time", "numbers")),
    Case("no rows in parquet", "ball.parquet", parquet(t=NOTHING, q1=NOTHING), ("no rows",)),
    Case("cut npz", "ball.npz", npz()[:-20], ("not a whole NPZ file",)),
    Case("half an npz", "ball.npz", npz()[:200], ("not a whole NPZ file",)),
    Case("npy as npz", "ball.npz", npy_header("{}"), ("not a whole NPZ file",)),
    Case("csv as npz", "ball.npz", csv(), ("not a whole NPZ file",)),
    Case("pickled column", "ball.npz", npz(q1=np.array([Exploit()] * 6)), ("not a whole NPZ", "plain")),
    Case("pickle in npz", "ball.npz", npz_member(pickle.dumps(Exploit())), ("not a whole NPZ file",)),
    Case("text in npz", "ball.npz", npz(q1=list("abcdef")), ("column q1", "U1", "plain numbers")),
    Case("complex numbers", "ball.npz", npz(q1=np.arange(6) * 1j), ("column q1", "complex128")),
    Case("dates", "ball.npz", npz(t=np.arange(6).astype("datetime64[s]")), ("column t", "datetime64")),
    Case("table in npz", "ball.npz", npz(q1=np.zeros((6, 2))), ("column q1", "shape (6, 2)", "flat")),
    Case("one number", "ball.npz", npz(q1=np.float64(1)), ("column q1", "shape ()", "flat")),
    Case("unequal lengths", "ball.npz", npz(q1=np.arange(5.0)), ("column q1", "shape (5,)", "same length")),
    Case("no rows in npz", "ball.npz", npz(t=np.zeros(0), q1=np.zeros(0)), ("no rows",)),
    Case("zip bomb", "ball.npz", bomb, ("column q1", "2 GiB", "split")),
    Case("false length", "ball.npz",
         npz_member(npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", 48)),
         ("not a whole NPZ file",)),
    Case("values of no size", "ball.npz",
         npz_member(npy_header("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }")),
         ("column q1", "plain numbers")),
    Case("code in a header", "ball.npz",
         npz_member(npy_header("{'descr': __import__('os').mkdir('exploited'), 'shape': (6,)}")),
         ("not a whole NPZ file",)),
]  # fmt: skip

SYSTEM = """[system]
bodies = 2
dimension = 2
masses = [1.0, 2.0]
restitution = 0.9
velocity_grid = "half"
projection = "none"

[[wall]]
body = 1
normal = [0.0, 1.0]
offset = 0.0

[[pair]]
first = 1
second = 2
offset = 0.1

[columns]
time = "t"
position = ["q1", "q2", "q3", "q4"]
velocity = ["v1", "v2", "v3", "v4"]
touch = ["touch1", "touch2"]

[sampling]
step_size = 0.02

[learn]
parameters = []
"""


def system(line: str, replacement: str) -> str:
    assert SYSTEM.count(line) == 1, line
    return SYSTEM.replace(line, replacement)


def wrong(name: str, line: str, replacement: str, *fragments: str) -> Case:
    return Case(name, "ball.toml", system(line, replacement), fragments)


DEEP = 10**5
SYSTEM_FILES = [
    Case("missing", "ball.toml", lambda path: None, ("no such file",)),
    Case("folder", "ball.toml", Path.mkdir, ("folder",)),
    Case("empty", "ball.toml", b"", ("empty",)),
    Case("large", "ball.toml", b"#" * (2**20 + 1), ("1 MiB",)),
    Case("latin-1", "ball.toml", (SYSTEM + "# é\n").encode("latin-1"), ("line 30", "UTF-8")),
    Case("not toml", "ball.toml", "[system]\nbodies: 2\n", ("not TOML", "line 2")),
    Case("csv", "ball.toml", csv(), ("not TOML", "line 1")),
    Case("key twice", "ball.toml", "[system]\nbodies = 2\nbodies = 3\n", ("not TOML", "overwrite")),
    Case("nested deeply", "ball.toml", "a = " + "[" * DEEP, ("too long", "too deep")),
    Case("endless number", "ball.toml", "a = " + "9" * DEEP, ("too long", "too deep")),
    Case("dotted endlessly", "ball.toml", "a." * DEEP + "a = 1", ("line 1", "dots")),
    Case("dotted digits", "ball.toml", "\n" + "1." * DEEP + "1 = 1", ("line 2", "dots")),
    Case("dotted quotes", "ball.toml", '"=".' * DEEP + "1 = 1", ("line 1", "dots")),
    Case("no system", "ball.toml", "[learn]\nparameters = []\n", ("[system]", "missing")),
    Case("system is a number", "ball.toml", "system = 1\n", ("[system]", "must be a table")),
    Case("comments only", "ball.toml", "# nothing\n", ("[system]", "missing")),
    wrong("wrong table", "[sampling]", "[sampeling]", "sampeling", "did you mean sampling"),
    wrong("far table", "[sampling]", "[zzz]", "zzz", "the names here are system, wall"),
    Case("key outside", "ball.toml", "bodies = 2\n" + SYSTEM, ("bodies: there is no such table",)),
    wrong("wrong key", "restitution", "restituton", "[system], restituton", "did you mean restitution"),
    wrong("wrong key of a wall", "normal", "norml", "[[wall]] 1, norml", "did you mean normal"),
    wrong(
        "wrong key of a pair",
        "first = 1",
        "body = 1",
        "[[pair]] 1, body",
        "the names here are first, second, offset",
    ),
    wrong("wrong column", "velocity = [", "velocities = [", "[columns], velocities", "did you mean velocity"),
    wrong("wrong key of learn", "parameters", "parametres", "[learn], parametres", "did you mean parameters"),
    wrong("wrong key of sampling", "step_size", "stepsize", "[sampling], stepsize", "did you mean step_size"),
    wrong("single brackets", "[[wall]]", "[wall]", "[[wall]]", "on a line of its own"),
    wrong("bodies missing", "bodies = 2\n", "", "[system], bodies", "missing"),
    wrong("no bodies", "bodies = 2", "bodies = 0", "[system], bodies", "at least 1", "not 0"),
    wrong("many bodies", "bodies = 2", "bodies = 1000000000", "[system], bodies", "at most 4096"),
    wrong("endless bodies", "bodies = 2", f"bodies = {10**4000}", "[system], bodies", "huge"),
    wrong("half a body", "bodies = 2", "bodies = 2.0", "[system], bodies", "whole number", "2.0"),
    wrong("true bodies", "bodies = 2", "bodies = true", "[system], bodies", "whole number", "true"),
    wrong("bodies in words", "bodies = 2", 'bodies = "2"', "[system], bodies", 'not "2"'),
    wrong("no dimension", "dimension = 2", "dimension = -1", "[system], dimension", "at least 1"),
    wrong("many coordinates", "dimension = 2", "dimension = 4000", "[system], bodies", "4096"),
    wrong("mass of 0", "masses = [1.0, 2.0]", "masses = [1.0, 0]", "[system], masses", "greater than 0"),
    wrong("negative mass", "masses = [1.0, 2.0]", "masses = [-2, 1]", "[system], masses", "not -2"),
    wrong("nan mass", "masses = [1.0, 2.0]", "masses = [nan, 1]", "[system], masses", "finite"),
    wrong("infinite mass", "masses = [1.0, 2.0]", "masses = [inf, 1]", "[system], masses", "finite"),
    wrong("one mass", "masses = [1.0, 2.0]", "masses = [1.0]", "[system]: 1 masses were given for 2 bodies"),
    wrong("mass alone", "masses = [1.0, 2.0]", "masses = 1.0", "[system], masses", "write a list"),
    wrong("true mass", "masses = [1.0, 2.0]", "masses = [1.0, true]", "[system], masses", "not true"),
    wrong("much restitution", "0.9", "1.1", "[system], restitution", "at most 1", "1.1"),
    wrong("negative restitution", "0.9", "-0.1", "[system], restitution", "at least 0", "-0.1"),
    wrong("nan restitution", "0.9", "nan", "[system], restitution", "finite"),
    wrong("true restitution", "0.9", "true", "[system], restitution", "finite number", "not true"),
    wrong("endless restitution", "0.9", f"{10**400}", "[system], restitution", "finite"),
    wrong("restitution in words", "0.9", '"high"', "[system], restitution", '"high"'),
    wrong("negative friction", "restitution = 0.9", "friction = -0.1", "[system], friction", "at least 0"),
    wrong("velocity grid", '"half"', '"halves"', "[system], velocity_grid", "'sample' or 'half'", '"halves"'),
    wrong("projection", '"none"', '"mass"', "[system], projection", "'inverse_mass'", '"mass"'),
    wrong("projection of lists", '"none"', "[[]]", "[system], projection", "'inverse_mass'"),
    wrong("no reference", '"none"', '"reference_point"', "[system]: the projection", "every body"),
    wrong(
        "one reference",
        '"none"',
        '"reference_point"\nreference = [[0, 0]]',
        "[system]: the projection",
        "every body",
    ),
    wrong(
        "short reference",
        '"none"',
        '"reference_point"\nreference = [[0, 0], [0]]',
        "[system]: the projection",
        "every body",
    ),
    wrong("wall of body 0", "body = 1", "body = 0", "[[wall]] 1: it names a body beyond the 2"),
    wrong("wall of body 3", "body = 1", "body = 3", "[[wall]] 1: it names a body beyond the 2"),
    wrong("wall without body", "body = 1\n", "", "[[wall]] 1, body", "missing"),
    wrong("wall without normal", "normal = [0.0, 1.0]\n", "", "[[wall]] 1, normal", "missing"),
    wrong("short normal", "[0.0, 1.0]", "[1.0]", "[[wall]] 1: it needs a normal with 2 components"),
    wrong("long normal", "[0.0, 1.0]", "[3.0, 4.0]", "[[wall]] 1: it needs a normal of length 1"),
    wrong("no normal", "[0.0, 1.0]", "[0.0, 0]", "[[wall]] 1: it needs a normal of length 1"),
    wrong("nan normal", "[0.0, 1.0]", "[0.0, nan]", "[[wall]] 1, normal", "finite"),
    wrong("edge of nothing", "offset = 0.0", "edges = [[]]", "[[wall]] 1, edges", "at least 1"),
    wrong("edges no list", "offset = 0.0", "edges = 3", "[[wall]] 1, edges", "write a list"),
    wrong(
        "edge without offset", "offset = 0.0", "edges = [[1.0, 0.0]]", "[[wall]] 1: it needs", "2 components"
    ),
    wrong("long edge", "offset = 0.0", "edges = [[3.0, 4.0, 1.0]]", "[[wall]] 1: it needs", "length 1"),
    wrong("infinite offset", "offset = 0.0", "offset = -inf", "[[wall]] 1, offset", "finite"),
    wrong("offset of a wall", "offset = 0.0", "offset = false", "[[wall]] 1, offset", "not false"),
    wrong(
        "wall twice",
        "[[pair]]",
        "[[wall]]\nbody = 1\nnormal = [0, 1]\n[[pair]]",
        "[[wall]] 2",
        "same as [[wall]] 1",
    ),
    wrong(
        "many walls",
        "[[pair]]",
        "[[wall]]\nbody = 1\nnormal = [0, 1]\n" * 4096 + "[[pair]]",
        "wall",
        "4097",
        "4096",
    ),
    wrong("pair with itself", "second = 2", "second = 1", "[[pair]] 1: it pairs a body with itself"),
    wrong("pair of body 9", "second = 2", "second = 9", "[[pair]] 1: it names a body beyond the 2"),
    wrong("negative radii", "offset = 0.1", "offset = -0.1", "[[pair]] 1, offset", "negative"),
    wrong(
        "pair twice",
        "[columns]",
        "[[pair]]\nfirst = 1\nsecond = 2\noffset = 0.1\n[columns]",
        "[[pair]] 2",
        "same as [[pair]] 1",
    ),
    wrong("number as time", 'time = "t"', "time = 1", "[columns], time", "in quotes"),
    wrong("no name as time", 'time = "t"', 'time = ""', "[columns], time", "in quotes"),
    wrong("few positions", '["q1", "q2", "q3", "q4"]', '["q1"]', "4 position columns, not 1"),
    wrong("position alone", '["q1", "q2", "q3", "q4"]', '"q1"', "[columns], position", "write a list"),
    wrong(
        "numbers as positions",
        '["q1", "q2", "q3", "q4"]',
        "[1, 2, 3, 4]",
        "[columns], position",
        "text in quotes",
    ),
    wrong("few velocities", '["v1", "v2", "v3", "v4"]', '["v1"]', "4 velocity columns, not 1"),
    wrong("much touch", '["touch1", "touch2"]', '["a", "b", "c"]', "2 touch columns, not 3"),
    wrong("column twice", '["touch1", "touch2"]', '["touch1", "q1"]', "[columns]", "q1 is named twice"),
    wrong("time as run", 'time = "t"', 'time = "t"\nrun = "t"', "[columns]", "t is named twice"),
    wrong("step size of 0", "step_size = 0.02", "step_size = 0", "[sampling], step_size", "greater than 0"),
    wrong("step size in words", "step_size = 0.02", 'step_size = "2 ms"', "[sampling], step_size", '"2 ms"'),
    wrong("missing alone", "step_size = 0.02", 'missing = "position"', "[sampling], missing", "list"),
    wrong(
        "touch missing",
        "step_size = 0.02",
        'missing = ["touch"]',
        "[sampling], missing",
        "'position' or 'velocity'",
    ),
    wrong("learn a flag", "parameters = []", "parameters = true", "[learn], parameters", "write a list"),
    wrong("learn a word", "parameters = []", 'parameters = "masses"', "[learn], parameters", 'not "masses"'),
    wrong("learn numbers", "parameters = []", "parameters = [1]", "[learn], parameters", "not 1"),
    wrong("learn a table", "[learn]\nparameters = []", "[[learn]]", "[learn]", "must be a table"),
    wrong("date", "parameters = []", "parameters = 1979-05-27", "[learn], parameters", "1979-05-27"),
    wrong("control characters", "parameters = []", 'parameters = "a\\nb\\u001b[31m"', "[learn], parameters"),
]


def contents(folder: Path) -> dict[str, object]:
    """Everything in a folder; a large file counts by its size."""

    def content(entry: Path) -> object:
        if entry.is_symlink() or not entry.is_file():
            return entry.lstat().st_mode
        return entry.read_bytes() if entry.stat().st_size < 2**22 else entry.stat().st_size

    return {entry.name: content(entry) for entry in folder.iterdir()}


def check(case: Case, read: Callable[..., object], folder: Path) -> None:
    path = folder / case.file
    content = case.content
    if callable(content):
        content = content(path)
    if isinstance(content, str):
        content = content.encode()
    if content is not None:
        path.write_bytes(content)
    before = contents(folder)
    with pytest.raises(InputError) as caught:
        read(path, **case.options)
    message = str(caught.value)
    for fragment in (Path(case.file).stem.rstrip("\0\n"), *case.fragments):
        assert fragment in message
    assert message.isprintable(), "one line, nothing for the terminal to obey"
    assert message.endswith((".", "?"))
    assert not re.search(r"\.\s", message), "one sentence"
    assert not re.search("Traceback|Exception|Error|np\\.|<class", message)
    assert len(message) < 400 + len(str(folder))
    assert contents(folder) == before


RECORDINGS = [*FILES, *TEXTS, *COLUMNS, *VALUES, *TIMES, *BINARY]


@pytest.mark.parametrize("case", RECORDINGS, ids=lambda case: case.name)
def test_wrong_recordings_get_one_sentence(case: Case, tmp_path: Path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    check(case, read_recording, tmp_path / "work")
    assert list(tmp_path.iterdir()) == [tmp_path / "work"], "nothing in a file is run"


@pytest.mark.parametrize("case", SYSTEM_FILES, ids=lambda case: case.name)
def test_wrong_system_files_get_one_sentence(case: Case, tmp_path: Path):
    check(case, read_system_file, tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_tables_are_refused_by_their_declared_size(suffix: str, tmp_path: Path, monkeypatch):
    content = {"csv": csv, "parquet": parquet, "npz": npz}[suffix]()
    monkeypatch.setattr(carom.data.io.formats, "MAXIMUM_VALUES", 10)
    check(
        Case("large", f"ball.{suffix}", content, ("rows of 2 columns", "at most 10")),
        read_recording,
        tmp_path,
    )


def many_columns(suffix: str) -> bytes:
    """A table of a few bytes per column, with one column too many."""
    names = [f"q{number}" for number in range(MAXIMUM_COLUMNS + 1)]
    if suffix == "csv":
        return f"{','.join(names)}\n".encode()
    buffer = io.BytesIO()
    if suffix == "parquet":
        pl.DataFrame({name: [0] for name in names}).write_parquet(buffer)
        return buffer.getvalue()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", b"")
    # The end of a zip states the number of entries; a liar states one.
    return buffer.getvalue()[:-14] + b"\1\0\1\0" + buffer.getvalue()[-10:]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("read", [read_recording, guess_columns])
def test_too_many_columns_are_refused_before_any_work(read, suffix: str, tmp_path: Path):
    content = many_columns(suffix)
    began = process_time()
    check(Case("wide", f"ball.{suffix}", content, (f"more than {MAXIMUM_COLUMNS} columns",)), read, tmp_path)
    assert process_time() - began < 2


def test_a_system_file_that_is_a_link_to_nothing(tmp_path: Path):
    (tmp_path / "ball.toml").symlink_to(tmp_path / "gone.toml")
    with pytest.raises(InputError, match="no such file"):
        read_system_file(tmp_path / "ball.toml")


def test_columns_have_one_meaning():
    with pytest.raises(InputError, match="q1 is named twice"):
        Columns(("q1",), velocity=("q1",))
    with pytest.raises(InputError, match="at least one position"):
        Columns(())
