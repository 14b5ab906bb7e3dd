"""Recordings in files: CSV, Parquet and NPZ, one row per sample."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from carom.data.io import checks
from carom.data.io.columns import Columns, match_columns, standard_columns
from carom.data.io.formats import FORMATS, MAXIMUM_BYTES, Format, require_size
from carom.data.recording import Channel, Recording, Run
from carom.data.steps import TOLERANCE
from carom.mechanics import Scene
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file, shown, unreadable


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
    starts = checks.find_runs(path, labels, rows=len(frame))
    samples = checks.require_values(path, frame, columns, missing)
    checks.require_measured(path, samples, columns, starts)
    bounds = [*starts.tolist(), len(frame)]
    if columns.time is None:
        assert step_size is not None, "without one a time column is required"
        time = step_size * np.concatenate([np.arange(end - start) for start, end in pairwise(bounds)])
    else:
        time = samples.time[:, 0]
        found = checks.find_step_size(path, columns.time, time, starts)
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
