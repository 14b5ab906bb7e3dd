"""Recordings in files: CSV, Parquet and NPZ, one row per sample; all that needs no mechanics is checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from carom.data.io.columns import Columns, match_columns, require_distinct, standard_columns
from carom.data.io.formats import FORMATS, MAXIMUM_BYTES, Format, cell, require_size
from carom.data.recording import Channel, Recording, Run
from carom.data.steps import TOLERANCE, constant_step, median_step
from carom.errors import require_choice
from carom.mechanics import Scene
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file, shown, unreadable

MINIMUM_SAMPLES = 3
"""A shorter run has no acceleration."""
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
    labels = None
    if columns.run is not None:
        # As in CSV files, so that every format distinguishes the same runs.
        plain = frame[columns.run].str.replace_all("\0", "", literal=True).str.strip_chars()
        labels = plain.replace("", None)
    starts = _find_runs(path, labels, rows=len(frame))
    time, position, velocity, touch = _require_values(path, frame, columns, missing, starts)
    bounds = [*starts.tolist(), len(frame)]
    if columns.time is None:
        assert step_size is not None, "without one a time column is required"
        time = step_size * np.concatenate([np.arange(end - start) for start, end in pairwise(bounds)])
    else:
        time = time[:, 0]
        found = _find_step_size(path, columns.time, time, starts)
        if step_size is not None and abs(found - step_size) > TOLERANCE * found:
            problem = f"times step by {found:.6g} s, but a step size of {step_size:g} s was given"
            raise complaint(path, f"{problem}; correct one", f"column {columns.time}")
        # What was stated wins within the tolerance, as times may be rounded.
        step_size = step_size or found
    # Columns are body-major: the coordinates of a body are neighbours.
    shape = (len(frame), -1, 1 if scene is None else scene.dimension)
    velocity = velocity.reshape(shape) if columns.velocity else None
    whole = Run(time, position.reshape(shape), velocity, touch == 1 if columns.touch else None)
    names = [None if labels is None else labels[start] for start in bounds[:-1]]
    spans = zip(pairwise(bounds), names, strict=True)
    runs = tuple(replace(whole.part(slice(*span)), label=name) for span, name in spans)
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
    """The format of a file and the names of its columns: different ones, of a limited number."""
    table = table_format(path)
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    try:
        names = list(table.names(path))
    except OSError as error:
        raise unreadable(path, error) from error
    require_size(path, columns=len(names))
    require_distinct(path, names)
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
    numbers = range(len(recording.runs))
    labels = numbers if recording.labels == tuple(map(str, numbers)) else recording.labels
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


def _require_values(
    path: Path, frame: pl.DataFrame, columns: Columns, missing: Sequence[Channel], starts: Starts
) -> list[Float[np.ndarray, "samples columns"]]:
    """Times, positions, velocities and touch; NaN where a value is missing, no columns where none were.

    Refused are cells that are empty or not finite, except in channels that may have missing values, and
    columns that hold no measurement.
    """
    for channel in missing:
        require_choice("missing", channel, Channel)
    names = {
        "time": () if columns.time is None else (columns.time,),
        "position": columns.position,
        "velocity": columns.velocity or (),
        "touch": columns.touch or (),
    }
    # One array for all columns: a hundred calls of Polars per column would take seconds for thousands.
    values = frame.select(columns.numbers).to_numpy(writable=True)
    parts = np.split(values, np.cumsum([len(group) for group in names.values()])[:-1], axis=1)
    for (channel, group), part in zip(names.items(), parts, strict=True):
        problem = "the value is empty or not finite; correct it or remove the row"
        if channel in get_args(Channel):
            problem += f' (empty cells need missing = ["{channel}"] under [sampling] in the system file)'
        elif channel == "touch":
            problem += ", or write 0 and fit with imperfect touch"
        _refuse(path, np.isinf(part) if channel in missing else ~np.isfinite(part), group, problem)
    _, position, velocity, touch = parts
    none = np.atleast_2d(np.isnan(velocity).all(axis=0))
    _refuse(path, none, names["velocity"], "every value is missing; leave the velocities out")
    problem = "touch is neither 0 nor 1; write 1 where the body touched and 0 elsewhere"
    _refuse(path, ~np.isin(touch, (0.0, 1.0)), names["touch"], problem)
    counts = np.add.reduceat(~np.isnan(position), starts, axis=0, dtype=np.int64)
    problem = "the run that starts here has too few values in this column; leave out runs with fewer than "
    _refuse(path, counts < MINIMUM_SAMPLES, names["position"], f"{problem}{MINIMUM_SAMPLES}", rows=starts)
    # One body may well be at rest, as the balls within a cradle are; if all are, no sensor was connected.
    # Exactly equal: any sensor that works has noise.
    still = np.nanmin(position, axis=0, keepdims=True) == np.nanmax(position, axis=0, keepdims=True)
    problem = "nothing moves: neither this position nor any other changes; record it again"
    _refuse(path, np.logical_and(still, still.all()), names["position"], problem)
    return parts


def _refuse(
    path: Path,
    wrong: Bool[np.ndarray, "rows columns"],
    names: Sequence[str],
    problem: str,
    rows: Starts | None = None,
) -> None:
    """Raise an error at the first entry that is true, column by column; `rows` are those of the table."""
    if wrong.any():
        column = int(wrong.any(axis=0).argmax())
        row = int(wrong[:, column].argmax())
        raise complaint(path, problem, *cell(row if rows is None else int(rows[row]), names[column]))


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
        if len(empty := labels.is_null().arg_true()):
            problem = "the value is empty; fill it in or remove the row"
            raise complaint(path, problem, *cell(empty[0], labels.name))
        names = labels.gather(starts)
        if len(again := names.is_first_distinct().not_().arg_true()):
            problem = f"run {shown(names[again[0]])} comes back after another run; keep its rows together"
            raise complaint(path, problem, *cell(int(starts[again[0]]), labels.name))
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
            row = int((steps <= 0).argmax()) + 1
            problem = f"the time goes from {time[row - 1]:g} to {time[row]:g}; sort the rows, remove one of "
            raise complaint(path, problem + "two at the same time, or add a column run", *cell(row, name))
        if not SHORTEST_STEP <= median <= LONGEST_STEP:
            raise complaint(path, f"the times step by {median:g}; write them in seconds", f"column {name}")
        if steps.max() > LONGEST_GAP * median:
            row = int((steps > LONGEST_GAP * median).argmax()) + 1
            problem = f"the step is {steps[row - 1]:.6g} s, but the median step {median:.6g} s, so there is "
            problem += "a gap; start a new run after it, or fill it with rows whose cells are empty"
            raise complaint(path, problem, *cell(row, name))
        runs = [time[start:end] for start, end in pairwise([*starts.tolist(), len(time)])]
        return constant_step(runs) or median
