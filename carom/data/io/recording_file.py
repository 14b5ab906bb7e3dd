"""Recordings in files: CSV, Parquet and NPZ, one row per sample; all that needs no mechanics is checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from carom.data.io.columns import Columns, match_columns, standard_columns
from carom.data.io.formats import FORMATS, MAXIMUM_BYTES, Format, cell, first_true, require_size
from carom.data.recording import Channel, Recording, Run
from carom.data.steps import TOLERANCE, constant_step, median_step
from carom.errors import InputError, require_choice
from carom.mechanics import Scene
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file, shown, unreadable

MINIMUM_SAMPLES = 3
"""A shorter run has no acceleration."""
LONGEST_LABEL = 100
"""Characters of the name of a run, which is written with every sample."""
SHORTEST_STEP, LONGEST_STEP = 1e-12, 1e12
"""Steps beyond are not in seconds, and would overflow."""
LONGEST_GAP = 5.0
"""Median steps between two samples beyond which the motion in between is unknown."""

Starts = Int[np.ndarray, "runs"]
"""The row at which every run starts."""


def read_recording(
    path: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    scene: Scene | None = None,
    step_size: float | None = None,
    missing: Sequence[Channel] = (),
) -> Recording:
    """Read a recording and check all of it; what cannot be used is an `InputError` that says where.

    Arguments:
        path: a `.csv`, `.parquet` or `.npz` file with one row per sample.
        columns: the names of its columns; by default `run`, `t`, `q1`…, `v1`…, `touch1`….
        scene: gives bodies and dimension; by default every position column is a body in one dimension.
        step_size: time between samples in seconds, for files without times. With times it must agree with
            their step, which is the default: the constant one, or the median where steps vary.
        missing: channels whose cells may be empty or nan, "position" or "velocity" or both; they are read as
            NaN.

    Example:
        >>> recording = read_recording("track.csv", columns=Columns(("x_a", "x_b")))  # doctest: +SKIP
    """
    path = Path(path)
    table, names = open_table(path)
    # Before reading: a table can take seconds.
    if step_size is not None and not (np.isfinite(step_size) and step_size > 0):
        raise complaint(path, f"the step size must be positive, but {step_size} was given")
    # Before the numbers are read: a missing column is the commonest mistake.
    columns = match_columns(path, names, columns, scene=scene, timed=step_size is None)
    try:
        frame = table.load(path, columns.numbers, columns.run)
    except OSError as error:
        raise unreadable(path, error) from error
    if columns.run is not None:
        # As in CSV files, so that every format distinguishes the same runs.
        plain = pl.col(columns.run).str.replace_all("\0", "", literal=True).str.strip_chars()
        frame = frame.with_columns(plain.replace("", None))
    labels = None if columns.run is None else frame[columns.run]
    starts = _find_runs(path, labels, rows=len(frame))
    samples = _require_values(path, frame, columns, missing)
    _require_measured(path, samples, columns, starts)
    bounds = [*starts.tolist(), len(frame)]
    if columns.time is None:
        assert step_size is not None, "without one a time column is required"
        time = step_size * np.concatenate([np.arange(end - start) for start, end in pairwise(bounds)])
    else:
        time = samples.time[:, 0]
        found = _find_step_size(path, columns.time, time, starts)
        if step_size is not None and abs(found - step_size) > TOLERANCE * found:
            problem = f"times step by {found:.6g} s, but a step size of {step_size:g} s was given"
            raise complaint(path, f"{problem}; correct one", f"column {columns.time}")
        # What was stated wins within the tolerance, as times may be rounded.
        step_size = step_size or found
    # Columns are body-major: the coordinates of a body are neighbours.
    shape = (len(frame), -1, 1 if scene is None else scene.dimension)
    whole = Run(
        time,
        samples.position.reshape(shape),
        samples.velocity.reshape(shape) if columns.velocity else None,
        samples.touch == 1 if columns.touch else None,
    )
    runs = tuple(
        replace(whole.part(slice(start, end)), label=None if labels is None else labels[start])
        for start, end in pairwise(bounds)
    )
    return Recording(runs, float(step_size), scene)


def write_recording(
    recording: Recording, path: str | os.PathLike[str], *, further: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write a recording as `run, t, q1…, v1…, touch1…`, so that reading gives the same numbers bit for bit.

    The file is written whole or not at all.

    Arguments:
        recording: the recording; runs without labels are numbered from 0.
        path: a `.csv`, `.parquet` or `.npz` file, replaced if it exists.
        further: columns after the others by name, a value per sample; no recording reads them.
    """
    path = Path(path)
    table = table_format(path)
    # After all others, so that readers of positions by number find them where they were.
    frame = _frame(recording).with_columns(**dict(further or {}))
    require_size(path, rows=frame.height, columns=frame.width)  # what could not be read again
    with atomic_write(path) as temporary:
        try:
            with temporary.open("wb") as file:
                table.save(frame, file)
        except pl.exceptions.PolarsError as error:
            # Polars reports a full disk by its own errors in Parquet files.
            raise OSError(shown(error, length=120)) from error


def open_table(path: Path) -> tuple[Format, list[str]]:
    """The format of a file and the names of its columns, of which there is a limited number."""
    table = table_format(path)
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    try:
        names = list(table.names(path))
    except OSError as error:
        raise unreadable(path, error) from error
    require_size(path, columns=len(names))
    return table, names


def table_format(path: Path) -> Format:
    """The format by the suffix of a file."""
    table = FORMATS.get(path.suffix.lower())
    if table is None:
        raise complaint(path, "recordings end in .csv, .parquet or .npz; rename or convert the file")
    return table


def _frame(recording: Recording) -> pl.DataFrame:
    names = standard_columns(
        recording.bodies, recording.dimension, velocity=recording.has_velocity, touch=recording.has_touch
    )
    labels = np.array(recording.labels)
    # Numbers where these say the same: 7, but not 007.
    if all(label.isdecimal() and len(label) < 19 and label == str(int(label)) for label in recording.labels):
        labels = labels.astype(np.int64)
    data: dict[str, np.ndarray] = {
        "run": np.repeat(labels, [len(run) for run in recording.runs]),
        "t": np.concatenate([run.time for run in recording.runs]),
    }
    for channel in ("position", "velocity", "touch"):
        if columns := getattr(names, channel):
            values = np.concatenate([getattr(run, channel).reshape(len(run), -1) for run in recording.runs])
            values = values.astype(np.uint8) if channel == "touch" else values
            data |= dict(zip(columns, values.T, strict=True))
    return pl.DataFrame(data)


class _Samples(NamedTuple):
    """The columns of numbers by their meaning; NaN where a value is missing, no columns where none were."""

    time: Float[np.ndarray, "samples times"]
    position: Float[np.ndarray, "samples coordinates"]
    velocity: Float[np.ndarray, "samples velocities"]
    touch: Float[np.ndarray, "samples sensors"]


def _require_values(
    path: Path, frame: pl.DataFrame, columns: Columns, missing: Sequence[Channel]
) -> _Samples:
    """Refuse cells that are empty or not finite, except in channels that may have missing values.

    Arguments:
        path: the file, for error messages.
        frame: the table; null where a cell is empty.
        columns: what its columns mean.
        missing: the channels that may have missing values.
    """
    for channel in missing:
        require_choice("missing", channel, Channel)
    groups = {
        "time": () if columns.time is None else (columns.time,),
        "position": columns.position,
        "velocity": columns.velocity or (),
        "touch": columns.touch or (),
    }
    # One array for all columns: a hundred calls of Polars per column would take seconds for thousands.
    values = frame.select(columns.numbers).to_numpy(writable=True)
    channels = [channel for channel, names in groups.items() for _ in names]
    wrong = ~np.isfinite(values)
    wrong[:, np.isin(channels, missing)] &= np.isinf(values[:, np.isin(channels, missing)])
    if wrong.any():
        place = int(wrong.any(axis=0).argmax())
        name, row = columns.numbers[place], int(wrong[:, place].argmax())
        raise _wrong_value(path, frame[name][row], channels[place], missing, *cell(row, name))
    ends = np.cumsum([len(names) for names in groups.values()])[:-1]
    return _Samples(*np.split(values, ends, axis=1))


def _wrong_value(
    path: Path, value: float | None, channel: str, missing: Sequence[Channel], *places: str
) -> InputError:
    remedy = " or remove the row"
    if value is None or np.isnan(value):
        if channel == "touch":
            remedy = ", or write 0 and fit with imperfect touch"
        elif channel != "time":
            allowed = ", ".join(f'"{one}"' for one in get_args(Channel) if one == channel or one in missing)
            remedy = f", remove the row, or write missing = [{allowed}] under [sampling] in the system file"
    problem = (
        "the value is empty; fill it in" if value is None else f"the value {value} is not finite; correct it"
    )
    return complaint(path, problem + remedy, *places)


def _require_measured(path: Path, samples: _Samples, columns: Columns, starts: Starts) -> None:
    """Refuse columns that hold no measurement: touch other than 0 and 1, no motion, nothing but gaps."""
    known = ~np.isnan(samples.velocity).all(axis=0)
    if not known.all():
        place = f"column {(columns.velocity or ())[known.argmin()]}"
        raise complaint(path, "every value is missing; leave the velocities out", place)
    if (wrong := _first(~np.isin(samples.touch, (0.0, 1.0)))) is not None:
        problem = f"touch is {samples.touch[wrong]:g}; write 1 where the body touched and 0 elsewhere"
        raise complaint(path, problem, *cell(wrong[0], (columns.touch or ())[wrong[1]]))
    counts = np.add.reduceat(~np.isnan(samples.position), starts, axis=0, dtype=np.int64)
    if (wrong := _first(counts < MINIMUM_SAMPLES)) is not None:
        problem = f"the run that starts here has too few values in this column, {counts[wrong]}; "
        problem += f"leave out runs with fewer than {MINIMUM_SAMPLES}"
        raise complaint(path, problem, *cell(int(starts[wrong[0]]), columns.position[wrong[1]]))
    # One body may well be at rest, as the balls within a cradle are; if all are, no sensor was connected.
    lowest = np.nanmin(samples.position, axis=0)
    # Exactly equal: any sensor that works has noise.
    if (lowest == np.nanmax(samples.position, axis=0)).all():
        problem = f"nothing moves: it is {lowest[0]:g} in every row, and no other position changes either"
        raise complaint(path, f"{problem}; record it again", f"column {columns.position[0]}")


def _first(wrong: Bool[np.ndarray, "rows columns"]) -> tuple[int, int] | None:
    """Row and column of the first entry that is true, column by column."""
    if not wrong.any():
        return None
    column = int(wrong.any(axis=0).argmax())
    return int(wrong[:, column].argmax()), column


def _find_runs(path: Path, labels: pl.Series | None, *, rows: int) -> Starts:
    """Where runs start, each contiguous and long enough. Without labels there is one run.

    Arguments:
        path: the file, for error messages.
        labels: the name of every row's run.
        rows: number of rows.
    """
    if rows == 0:
        raise complaint(path, f"the table has no rows; record at least {MINIMUM_SAMPLES} samples")
    starts = run_starts(labels)
    if labels is not None:
        if (empty := first_true(labels.is_null())) is not None:
            problem = "the value is empty; fill it in or remove the row"
            raise complaint(path, problem, *cell(empty, labels.name))
        names = labels.gather(starts)
        if (long := first_true(names.str.len_chars() > LONGEST_LABEL)) is not None:
            problem = f"the name of a run has more than {LONGEST_LABEL} characters; shorten it"
            raise complaint(path, problem, *cell(int(starts[long]), labels.name))
        if (again := first_true(~names.is_first_distinct())) is not None:
            problem = f"run {shown(names[again])} comes back after another run; keep its rows together"
            raise complaint(path, problem, *cell(int(starts[again]), labels.name))
    lengths = np.diff(starts, append=rows)
    if lengths.min() < MINIMUM_SAMPLES:
        short = int((lengths < MINIMUM_SAMPLES).argmax())
        start = int(starts[short])
        which = "the recording" if labels is None else f"run {shown(labels[start])}"
        problem = f"{which} has too few samples, {lengths[short]}; every run needs at least {MINIMUM_SAMPLES}"
        raise complaint(path, problem, f"row {start + 1}")
    return starts


def run_starts(labels: pl.Series | None) -> Starts:
    """Rows whose label differs from that of the row before; the first row where there are no labels."""
    if labels is None:
        return np.zeros(1, np.int64)
    return np.flatnonzero((labels != labels.shift()).fill_null(True))


def _find_step_size(path: Path, name: str, time: Float[np.ndarray, "samples"], starts: Starts) -> float:
    """The constant step of all runs; where steps vary, their median.

    Arguments:
        path: the file, for error messages.
        name: the time column, for error messages.
        time: finite times in seconds.
        starts: where runs start, each with several samples.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        steps, between = np.diff(time), starts[1:] - 1
        median = median_step(np.delete(steps, between))
        steps[between] = median if median > 0 else 1.0  # from one run to the next times may do anything
        if (steps <= 0).any():
            i = int((steps <= 0).argmax())
            problem = "the time is the same as in the row before; remove one of the two rows"
            if time[i + 1] < time[i]:
                problem = f"the time falls from {time[i]:g} to {time[i + 1]:g}"
                problem += "; sort the rows or add a column run"
            raise complaint(path, problem, *cell(i + 1, name))
        if not SHORTEST_STEP <= median <= LONGEST_STEP:
            raise complaint(path, f"the times step by {median:g}; write them in seconds", f"column {name}")
        if steps.max() > LONGEST_GAP * median:
            i = int((steps > LONGEST_GAP * median).argmax())
            problem = f"the step is {steps[i]:.6g} s, but the median step {median:.6g} s, so there is a gap; "
            problem += "start a new run after it, or fill it with rows whose cells are empty"
            raise complaint(path, problem, *cell(i + 1, name))
        runs = [time[start:end] for start, end in pairwise([*starts.tolist(), len(time)])]
        return constant_step(runs) or median
