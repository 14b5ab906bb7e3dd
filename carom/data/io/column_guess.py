"""What the columns of a table from elsewhere seem to mean: by their names, and by the numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from carom.data.io.columns import STANDARD_TIME, Columns
from carom.data.io.formats import Format
from carom.data.io.recording_file import open_table, run_starts
from carom.data.recording import Channel
from carom.errors import InputError
from carom.storage.input_file import complaint, shown, unreadable

MAXIMUM_COLUMNS = 400
"""Beyond that many a person has to say which are meant."""


def _vocabulary(words: str) -> frozenset[str]:
    return frozenset(words.split())


Role = Literal["time", "position", "velocity", "touch", "other", "unknown"]
# Units at the end of a name say nothing about its meaning.
_UNITS = _vocabulary("m mm cm s ms sec px rad deg")
# Words that laboratory software uses, in the languages of its commonest versions.
_TIME = _vocabulary("t time timestamp clock seconds secs elapsed zeit tiempo temps")
_RUN = _vocabulary("run trial take episode experiment repetition series sequence trajectory")
_TOUCH = _vocabulary("touch touching contact contacts hit bump collision")
_OTHER = _vocabulary(
    "a ax ay az acc accel acceleration force fx fy fz torque mass qw quat roll pitch yaw fps frame index "
    "sample number row id confidence likelihood residual error quality temperature voltage current"
)
_AXES = ("x", "y", "z")
_VELOCITY_AXES = {word: axis for axis in _AXES for word in (f"v{axis}", f"d{axis}", f"{axis}dot")}
_RATES = {*_VELOCITY_AXES, *_vocabulary("v vel velocity velocities speed omega dq qdot thetadot rate")}
_COORDINATES = {*_AXES, *_vocabulary("q pos position coord coordinate location height angle theta phi s h")}


@dataclass(frozen=True)
class ColumnGuess:
    """The meaning of a table's columns, with a remark on everything that is a guess.

    Arguments:
        columns: the names, in the order of a recording.
        bodies, dimension: what the position columns are coordinates of.
        step_size: seconds between samples where the table has no times.
        missing: channels with empty cells.
        remarks: what was guessed and why, by table and key of the system file.
        unused: columns that are left out, with the reason.
    """

    columns: Columns
    bodies: int
    dimension: int
    step_size: float | None
    missing: tuple[Channel, ...]
    remarks: dict[str, str]
    unused: dict[str, str]


@dataclass(frozen=True)
class Coordinate:
    """A coordinate by the name of its column: of which body, along which axis."""

    name: str
    body: tuple[str, ...]
    axis: str


def guess_columns(path: Path) -> ColumnGuess:
    """Say what the columns of a table seem to mean; what is no table of motion is an `InputError`.

    Arguments:
        path: a `.csv`, `.parquet` or `.npz` file with one row per sample.
    """
    table, names = open_table(path)
    _require_header(path, names)
    # First, as runs decide where times may start again.
    run = next((name for name in names if _RUN.intersection(_words(name))), None)
    try:
        # Numbers near the largest that there are overflow, and fit nothing.
        with np.errstate(all="ignore"):
            labels = None if run is None else table.load(path, [], run)[run]
            guesser = _Guesser(path, {name: role_of(name) for name in names if name and name != run})
            guesser.load(table, labels)
            return guesser.guess(run)
    except OSError as error:
        raise unreadable(path, error) from error


def role_of(name: str) -> Role:
    """What a column is, by its name alone.

    Example:
        >>> [role_of(name) for name in ("t", "x_a", "ballPosX (mm)", "vx", "touch1", "frame", "links")]
        ['time', 'position', 'position', 'velocity', 'touch', 'other', 'unknown']
    """
    words = _words(name)
    # A single letter at the end names a body or an axis: x_a is not an acceleration.
    leading = {word for place, word in enumerate(words) if len(word) > 1 or place == 0}
    if leading & _TIME:
        return "time"
    if leading & _TOUCH:
        return "touch"
    if not words or leading & _OTHER:
        return "other"
    if _RATES.intersection(words):
        return "velocity"
    return "position" if _COORDINATES.intersection(words) else "unknown"


def coordinate_of(name: str) -> Coordinate:
    """Which coordinate of which body a column is, or is the rate of.

    Example:
        >>> coordinate_of("Ball2 PosX (mm)")
        Coordinate(name='Ball2 PosX (mm)', body=('ball', '2'), axis='x')
    """
    words = _words(name)
    axes = [axis for word in words if (axis := _VELOCITY_AXES.get(word, word)) in _AXES]
    body = tuple(word for word in words if word not in _RATES | _COORDINATES)
    return Coordinate(name, body, axes[-1] if axes else "")


def _words(name: str) -> list[str]:
    """The parts of a name, in lower case and without a unit: `Ball2 PosX (mm)` is ball, 2, pos, x."""
    plain = re.sub(r"[(\[].*?[)\]]", " ", name)
    words = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+", plain)]
    return words[:-1] if len(words) > 1 and words[-1] in _UNITS else words


def _require_header(path: Path, names: Sequence[str]) -> None:
    if len(names) > MAXIMUM_COLUMNS:
        problem = f"{len(names)} columns are too many to guess at; write a system file that names those meant"
        raise complaint(path, problem)
    if names and all(re.fullmatch(r"\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*", name) for name in names):
        raise complaint(path, "the first line has numbers; write the names of the columns there", "line 1")


@dataclass
class _Guesser:
    """The columns of one table, and what has been found out about them."""

    path: Path
    roles: dict[str, Role]
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    """Columns that hold numbers; NaN where a cell is empty."""
    bounds: list[int] = field(default_factory=list)
    """Where runs start, and where the last one ends."""
    remarks: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)

    def load(self, table: Format, labels: pl.Series | None) -> None:
        """Read what holds numbers."""
        names = [*self.roles]
        try:
            columns = table.load(self.path, names, None).to_dict()
        except InputError as error:
            # Some column is not of numbers. Which one shows when they are read one by one; what is wrong with
            # the table itself, or with a column named as a time or a coordinate, is wrong every time.
            columns: dict[str, pl.Series] = {}
            for name in names:
                try:
                    columns[name] = table.load(self.path, [name], None)[name]
                except InputError:
                    if self.roles[name] in ("position", "velocity", "time"):
                        raise
                    self.unused[name] = "it does not hold numbers"
            if not columns:
                raise error from None
        self.numbers = {name: column.fill_null(np.nan).to_numpy() for name, column in columns.items()}
        # Empty columns are left over from templates.
        self.numbers = {name: values for name, values in self.numbers.items() if not np.isnan(values).all()}
        if not self.numbers:
            problem = "there is no column of numbers with anything in it; record some samples"
            raise complaint(self.path, problem)
        self.bounds = [*run_starts(labels).tolist(), len(next(iter(self.numbers.values())))]

    def guess(self, run: str | None) -> ColumnGuess:
        """What the columns seem to mean."""
        # In this order: what is a time is no position, and bodies decide how many touch columns there are.
        time = self._time()
        bodies, dimension, position = self._bodies(self._positions(time))
        step_size = None
        if time is None:
            step_size = 1.0
            reason = "GUESS: the table has no times; write the seconds between two samples here"
            self.remarks["sampling.step_size"] = reason
        velocity = self._velocity(position, time)
        touch = self._touch(bodies)
        self.remarks.setdefault("columns.position", "GUESS, by their names")
        chosen = tuple(coordinate.name for coordinate in position)
        channels: dict[Channel, tuple[str, ...]] = {"position": chosen, "velocity": velocity}
        missing: tuple[Channel, ...] = tuple(
            channel
            for channel, names in channels.items()
            if any(np.isnan(self.numbers[name]).any() for name in names)
        )
        if missing:
            self.remarks["sampling.missing"] = "some cells are empty"
        columns = Columns(chosen, velocity, touch, time or STANDARD_TIME, run)
        for name in self.numbers.keys() - {*columns.numbers}:
            self.unused.setdefault(name, "not a coordinate, by its name")
        unused = {name: self.unused[name] for name in self.roles if name in self.unused}
        return ColumnGuess(columns, bodies, dimension, step_size, missing, self.remarks, unused)

    def _named(self, role: Role) -> list[str]:
        return [name for name in self.numbers if self.roles[name] == role]

    def _runs(self, values: np.ndarray) -> list[np.ndarray]:
        return [values[start:end] for start, end in pairwise(self.bounds) if end - start > 1]

    def _time(self) -> str | None:
        for name in self._named("time"):
            unit = re.search(r"(?:^|[^a-z])(ms|milliseconds|us|ns)(?:$|[^a-z])", name.lower())
            if unit:
                reason = f"GUESS: {unit[1]} by its name, not seconds; rates are per {unit[1]}"
                self.remarks["columns.time"] = reason
            return name
        return None

    def _positions(self, time: str | None) -> list[Coordinate]:
        """Columns that are coordinates by name; where there are none, those whose names say nothing else."""
        for role in ("position", "unknown"):
            named = [name for name in self._named(role) if name != time]
            # A coordinate that never changes was not measured.
            moving = [name for name in named if np.nanmin(self.numbers[name]) < np.nanmax(self.numbers[name])]
            self.unused |= {name: "it never changes" for name in named if name not in moving}
            if moving:
                known = role == "position"
                return [coordinate_of(name) if known else Coordinate(name, (name,), "") for name in moving]
        listed = ", ".join(shown(name) for name in [*self.roles][:12])
        problem = (
            f"no column seems to be a position that changes (the columns are {listed}); name one q1 or x"
        )
        raise complaint(self.path, problem)

    def _bodies(self, positions: list[Coordinate]) -> tuple[int, int, list[Coordinate]]:
        """Bodies, dimension, and the coordinates body by body."""
        along = [coordinate for coordinate in positions if coordinate.axis]
        if not along:
            count, touches = len(positions), len(self._named("touch"))
            # A touch sensor belongs to a body; without any, bodies on a line are the commonest experiment.
            bodies = touches if touches and count % touches == 0 else count
            if count > 1:
                each = "touch column" if bodies == touches else "position"
                self.remarks["system.bodies"] = f"GUESS: a body for every {each}"
            return bodies, count // bodies, positions
        by_body: dict[tuple[str, ...], dict[str, Coordinate]] = {}
        for coordinate in along:
            if coordinate.axis in by_body.setdefault(coordinate.body, {}):
                problem = "it seems to be the same coordinate as another column; write a system file"
                raise complaint(self.path, problem, f"column {coordinate.name}")
            by_body[coordinate.body][coordinate.axis] = coordinate
        axes = [axis for axis in _AXES if all(axis in of_body for of_body in by_body.values())]
        if not axes:
            listed = ", ".join(shown(coordinate.name) for coordinate in along[:8])
            problem = f"the bodies have no coordinate in common ({listed}); write a system file that says"
            raise complaint(self.path, problem)
        for coordinate in positions:
            if coordinate.axis not in axes:
                self.unused[coordinate.name] = "no coordinate that every body has and that changes"
        self.remarks["system.bodies"] = "GUESS, by the names of the columns"
        self.remarks["system.dimension"] = f"GUESS: {', '.join(axes)}"
        return len(by_body), len(axes), [of_body[axis] for of_body in by_body.values() for axis in axes]

    def _velocity(self, position: list[Coordinate], time: str | None) -> tuple[str, ...]:
        """The velocity of every coordinate, if all are there and are rates of the positions."""
        rates = [coordinate_of(name) for name in self._named("velocity")]
        named = {(rate.body, rate.axis): rate.name for rate in rates}
        found, reason = [], ""
        for place in position if named else ():
            name = named.get((place.body, place.axis))
            if name is None:
                reason = f"there is no velocity for {shown(place.name)}, and all are needed"
            # Noise lowers the slope a little; a wrong unit is off by a factor of ten or more.
            elif not 0.7 < self._rate(self.numbers[place.name], self.numbers[name], time) < 1.4:
                reason = f"{shown(name)} is not the rate of {shown(place.name)}, by its numbers"
            found.append(name)
        if reason:
            self.unused |= {rate.name: reason for rate in rates}
            return ()
        if found:
            self.remarks["columns.velocity"] = "they are the rates of the positions"
        return tuple(found)

    def _rate(self, position: np.ndarray, velocity: np.ndarray, time: str | None) -> float:
        """How many times as fast the position changes as the velocity says.

        Positions are regressed on the integral of velocities: over a long distance noise hardly counts, where
        differences from sample to sample would be mostly noise.
        """
        seconds = np.arange(len(position), dtype=float) if time is None else self.numbers[time]
        product = square = 0.0
        for q, v, t in zip(*map(self._runs, (position, velocity, seconds)), strict=True):
            step = np.nan_to_num(0.5 * (v[1:] + v[:-1])) * np.diff(t)
            distance = np.concatenate([[0.0], np.cumsum(step)])
            known = np.isfinite(q)
            # Two points always lie on a line.
            if known.sum() >= 3:
                distance, q = distance[known] - distance[known].mean(), q[known] - q[known].mean()
                product += float(distance @ q)
                square += float(distance @ distance)
        return product / square if square > 0 else float("nan")

    def _touch(self, bodies: int) -> tuple[str, ...]:
        named = self._named("touch")
        binary = [name for name in named if np.isin(self.numbers[name], (0.0, 1.0)).all()]
        reason = "touch is 0 or 1 in every row, and this is not"
        self.unused |= {name: reason for name in named if name not in binary}
        if len(binary) not in (0, bodies):
            self.unused |= dict.fromkeys(binary, f"{bodies} bodies need a touch column each")
            return ()
        return tuple(binary)
