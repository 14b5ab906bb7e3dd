"""What the columns of somebody's table seem to mean: by their names, and by the numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from carom.data.io.column_names import AXES, Meaning, meaning_of, role_of, run_column
from carom.data.io.columns import STANDARD_TIME, Columns, repeated, require_separated
from carom.data.io.recording_file import table_format
from carom.data.io.tables import MAXIMUM_BYTES, Table
from carom.data.recording import Channel
from carom.data.steps import constant_step
from carom.errors import InputError
from carom.storage.input_file import complaint, require_file, shown, unreadable

MAXIMUM_COLUMNS = 400


@dataclass(frozen=True)
class ColumnGuess:
    """The meaning of a table's columns, with a remark on everything that is a guess.

    Arguments:
        columns: the names, in the order that a recording wants them.
        bodies, dimension: what the position columns are coordinates of.
        step_size: seconds between samples where the table has no times.
        missing: channels with empty cells.
        remarks: what was guessed and why, by key of the system file.
        unused: columns that are left out, with the reason.
    """

    columns: Columns
    bodies: int
    dimension: int
    step_size: float | None
    missing: tuple[Channel, ...]
    remarks: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)


def guess_columns(path: Path) -> ColumnGuess:
    """Look at a table and say what its columns seem to mean; what is no table of motion is an `InputError`.

    Arguments:
        path: a `.csv`, `.parquet` or `.npz` file with one row per sample.
    """
    table = table_format(path)
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    try:
        with np.errstate(all="ignore"):  # numbers near the largest that there are overflow, and fit nothing
            return _guess(path, table)
    except OSError as error:
        raise unreadable(path, error) from error


def _guess(path: Path, table: Table) -> ColumnGuess:
    names = list(table.names(path))
    _require_header(path, names)
    remarks: dict[str, str] = {}
    unused: dict[str, str] = {}
    run = run_column(names)
    roles = {name: role_of(name) for name in names if name != run}
    numbers = _load(path, table, [name for name in roles if name], unused)
    rows = len(next(iter(numbers.values()), []))
    if rows == 0:
        raise complaint(path, "there is no column of numbers with anything in it; record some samples")
    labels = None if run is None else table.load(path, [], run)[run]
    starts = _starts(labels, rows)
    time = _time(numbers, roles, starts, remarks)
    usable = {name: values for name, values in numbers.items() if name != time}
    positions = _positions(usable, roles, unused)
    if not positions:
        listed = ", ".join(shown(name) for name in names[:12])
        problem = (
            f"no column seems to be a position that changes (the columns are {listed}); name one q1 or x"
        )
        raise complaint(path, problem)
    touches = [name for name in usable if roles[name] == "touch"]
    bodies, dimension, chosen = _bodies(path, positions, len(touches), remarks, unused)
    step_size = None
    if time is None:
        step_size = 1.0
        remarks["step_size"] = "GUESS: the table has no times; write the seconds between two samples here"
    seconds = numbers[time] if time is not None else np.arange(rows, dtype=float)
    velocity = _velocities(usable, roles, chosen, seconds, starts, remarks, unused)
    touch = _touches(usable, touches, bodies, unused)
    remarks.setdefault("position", "GUESS, by their names")
    missing: list[Channel] = []
    members_of: dict[Channel, list[str]] = {"position": [m.name for m in chosen], "velocity": velocity}
    for channel, members in members_of.items():
        if any(np.isnan(usable[name]).any() for name in members):
            missing.append(channel)
            remarks["missing"] = "some cells are empty"
    columns = Columns(
        tuple(meaning.name for meaning in chosen), tuple(velocity), tuple(touch), time or STANDARD_TIME, run
    )
    for name in numbers:
        if name not in columns.numbers:
            unused.setdefault(name, "not a coordinate, by its name")
    return ColumnGuess(columns, bodies, dimension, step_size, tuple(missing), remarks, unused)


def _require_header(path: Path, names: Sequence[str]) -> None:
    require_separated(path, names)
    if twice := repeated(names):
        raise complaint(path, "two columns have this name; rename one", f"column {twice}")
    if len(names) > MAXIMUM_COLUMNS:
        problem = f"{len(names)} columns are too many to guess at; write a system file that names those meant"
        raise complaint(path, problem)
    if names and all(_is_number(name) for name in names):
        raise complaint(path, "the first line has numbers; write the names of the columns there", "line 1")


def _load(path: Path, table: Table, names: Sequence[str], unused: dict[str, str]) -> dict[str, np.ndarray]:
    """The columns that hold numbers; NaN where a cell is empty."""
    try:
        columns = table.load(path, names, None).to_dict()
    except InputError as error:
        # Some column is not of numbers. Which one shows when they are read one by one; what is wrong with the
        # table itself, or with a column that a name makes a time or a coordinate, is wrong every time.
        columns: dict[str, pl.Series] = {}
        for name in names:
            try:
                columns[name] = table.load(path, [name], None)[name]
            except InputError:
                if role_of(name) in ("position", "velocity", "time"):
                    raise
                unused[name] = "it does not hold numbers"
        if not columns:
            raise error from None
    return {
        name: column.fill_null(np.nan).to_numpy()
        for name, column in columns.items()
        if column.is_not_null().any()
    }


def _starts(labels: pl.Series | None, rows: int) -> np.ndarray:
    if labels is None:
        return np.array([0, rows])
    return np.append(np.flatnonzero((labels != labels.shift()).fill_null(True)), rows)


def _pieces(values: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    return [values[a:b] for a, b in pairwise(starts) if b - a > 1]


def _time(
    numbers: dict[str, np.ndarray], roles: dict[str, str], starts: np.ndarray, remarks: dict[str, str]
) -> str | None:
    named = [name for name in numbers if roles[name] == "time"]
    if named:
        unit = re.search(r"(?:^|[^a-z])(ms|milliseconds|us|ns)(?:$|[^a-z])", named[0].lower())
        if unit:
            remarks["time"] = f"GUESS: {unit[1]} by its name, not seconds; rates come out per {unit[1]}"
        return named[0]
    for name, values in numbers.items():
        pieces = _pieces(values, starts)
        rising = roles[name] == "unknown" and all((np.diff(piece) > 0).all() for piece in pieces)
        if rising and pieces and constant_step(pieces) is not None:
            remarks["time"] = "GUESS: it rises by even steps"
            return name
    return None


def _positions(usable: dict[str, np.ndarray], roles: dict[str, str], unused: dict[str, str]) -> list[Meaning]:
    """Columns that are coordinates by name; where there are none, those whose names say nothing else."""
    for role in ("position", "unknown"):
        named = [name for name in usable if roles[name] == role]
        moving = [name for name in named if np.nanmin(usable[name]) < np.nanmax(usable[name])]
        for name in named:
            if name not in moving:
                unused[name] = "it never changes"
        if moving and role == "unknown":
            return [Meaning(name, (name,), "") for name in moving]
        if moving:
            return [meaning_of(name) for name in moving]
    return []


def _bodies(
    path: Path, positions: list[Meaning], touches: int, remarks: dict[str, str], unused: dict[str, str]
) -> tuple[int, int, list[Meaning]]:
    """Bodies, dimension, and the coordinates body by body."""
    along = [meaning for meaning in positions if meaning.axis]
    if not along:
        count = len(positions)
        bodies = touches if touches and count % touches == 0 else count
        if count > 1:
            other = f"one body in {count} dimensions" if bodies == count else "another number"
            reason = "one touch column each" if bodies == touches else f"every position its own; or {other}?"
            remarks["bodies"] = f"GUESS: {reason}"
        return bodies, count // bodies, positions
    for meaning in positions:
        if not meaning.axis:
            unused[meaning.name] = "others are coordinates along x, y or z, this is not"
    by_body: dict[tuple[str, ...], dict[str, Meaning]] = {}
    for meaning in along:
        if meaning.axis in by_body.setdefault(meaning.body, {}):
            problem = "it seems to be the same coordinate as another column; write a system file that says"
            raise complaint(path, problem, f"column {meaning.name}")
        by_body[meaning.body][meaning.axis] = meaning
    axes = [axis for axis in AXES if all(axis in of_body for of_body in by_body.values())]
    if not axes:
        listed = ", ".join(shown(meaning.name) for meaning in along[:8])
        problem = f"the bodies have no coordinate in common ({listed}); write a system file that says"
        raise complaint(path, problem)
    for meaning in along:
        if meaning.axis not in axes:
            unused[meaning.name] = "it never changes for other bodies, or they have none"
    remarks["bodies"] = "GUESS, by the names of the columns"
    remarks["dimension"] = f"GUESS: {', '.join(axes)}"
    return len(by_body), len(axes), [of_body[axis] for of_body in by_body.values() for axis in axes]


def _velocities(
    usable: dict[str, np.ndarray],
    roles: dict[str, str],
    chosen: list[Meaning],
    seconds: np.ndarray,
    starts: np.ndarray,
    remarks: dict[str, str],
    unused: dict[str, str],
) -> list[str]:
    """The velocity of every coordinate, if all are there and are rates of the positions."""
    named = [meaning_of(name) for name in usable if roles[name] == "velocity"]
    if not named:
        return []
    found = []
    for place in chosen:
        match = [speed.name for speed in named if (speed.body, speed.axis) == (place.body, place.axis)]
        if len(match) != 1:
            reason = f"there is no velocity for {shown(place.name)}, and all are needed"
            unused.update({speed.name: reason for speed in named})
            return []
        ratio = _rate(usable[place.name], usable[match[0]], seconds, starts)
        if not 0.7 < ratio < 1.4:
            reason = (
                f"{shown(match[0])} is not the rate of {shown(place.name)}, which is {ratio:.3g} times that"
            )
            unused.update({speed.name: reason for speed in named})
            return []
        found.append(match[0])
    remarks["velocity"] = "they are the rates of the positions"
    return found


def _rate(position: np.ndarray, velocity: np.ndarray, seconds: np.ndarray, starts: np.ndarray) -> float:
    """How many times as fast the position changes as the velocity says, by the way travelled since the start.

    Over a long way noise hardly counts, where differences from sample to sample would be mostly noise.
    """
    product = square = 0.0
    for q, v, t in zip(*(_pieces(part, starts) for part in (position, velocity, seconds)), strict=True):
        step = np.nan_to_num(0.5 * (v[1:] + v[:-1])) * np.diff(t)
        way = np.concatenate([[0.0], np.cumsum(step)])
        known = np.isfinite(q)
        if known.sum() < 3:
            continue
        way, q = way[known] - way[known].mean(), q[known] - q[known].mean()
        product += float(way @ q)
        square += float(way @ way)
    return product / square if square > 0 else float("nan")


def _touches(
    usable: dict[str, np.ndarray], touches: list[str], bodies: int, unused: dict[str, str]
) -> list[str]:
    binary = [name for name in touches if np.isin(usable[name], (0.0, 1.0)).all()]
    for name in touches:
        if name not in binary:
            unused[name] = "touch is 0 or 1 in every row, and this is not"
    if len(binary) not in (0, bodies):
        unused.update(dict.fromkeys(binary, f"{bodies} bodies need a touch column each"))
        return []
    return binary


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
