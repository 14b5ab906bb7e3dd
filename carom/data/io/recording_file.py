"""Recordings in files: CSV, Parquet and NPZ, one row per sample."""

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from carom.data.io.checks import (
    find_runs,
    find_step_size,
    require_binary,
    require_known,
    require_motion,
    require_values,
)
from carom.data.io.columns import Columns, Layout, find_layout, standard_columns
from carom.data.io.csv_table import CSV
from carom.data.io.npz_table import NPZ
from carom.data.io.parquet_table import PARQUET
from carom.data.io.tables import MAXIMUM_BYTES, Table, require_size
from carom.data.recording import Channel, Recording, Run
from carom.data.steps import TOLERANCE
from carom.mechanics import Scene
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file, shown, unreadable

FORMATS = {".csv": CSV, ".parquet": PARQUET, ".npz": NPZ}


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
    table = table_format(path)
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    if step_size is not None and not (np.isfinite(step_size) and step_size > 0):
        raise complaint(path, f"the step size must be positive, but {step_size} was given")
    try:
        layout = find_layout(path, table.names(path), columns=columns, scene=scene, timed=step_size is None)
        frame = table.load(path, layout.numbers, layout.run)
    except OSError as error:
        raise unreadable(path, error) from error

    if layout.run is not None:
        # As CSV files have them, so that what one format tells apart another one does too.
        plain = pl.col(layout.run).str.replace_all("\0", "", literal=True).str.strip_chars()
        frame = frame.with_columns(plain.replace("", None))
    frame = require_values(path, frame, layout, missing)
    starts = find_runs(path, None if layout.run is None else frame[layout.run], rows=len(frame))
    require_known(path, frame, layout, starts)
    require_binary(path, frame, layout.touch)
    require_motion(path, frame, layout.position)
    time = None
    if layout.time is not None:
        time = frame[layout.time].to_numpy(writable=True)
        found = find_step_size(path, layout.time, time, starts)
        if step_size is not None and abs(found - step_size) > TOLERANCE * found:
            problem = (
                f"times step by {found:.6g} s, but a step size of {step_size:g} s was given; correct one"
            )
            raise complaint(path, problem, f"column {layout.time}")
        step_size = step_size or found
    assert step_size is not None, "without a step size the layout has times"
    return Recording(_runs(frame, layout, starts, time, step_size), float(step_size), scene)


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
    frame = _frame(recording).with_columns(**dict(further or {}))
    require_size(path, rows=frame.height, columns=frame.width)  # what could not be read again
    with atomic_write(path) as temporary:
        try:
            with temporary.open("wb") as file:
                table.save(frame, file)
        except pl.exceptions.PolarsError as error:
            # Polars reports a full disk by its own errors in Parquet files.
            raise OSError(shown(error, length=120)) from error


def table_format(path: Path) -> Table:
    """The format that a file's name tells."""
    table = FORMATS.get(path.suffix.lower())
    if table is None:
        raise complaint(path, "recordings end in .csv, .parquet or .npz; rename or convert the file")
    return table


def _runs(
    frame: pl.DataFrame, layout: Layout, starts: np.ndarray, time: np.ndarray | None, step_size: float
) -> tuple[Run, ...]:
    def stack(names: tuple[str, ...]) -> np.ndarray:
        return np.stack([frame[name].to_numpy() for name in names], axis=1)

    coordinates = (len(frame), layout.bodies, layout.dimension)
    position = stack(layout.position).reshape(coordinates)
    velocity = stack(layout.velocity).reshape(coordinates) if layout.velocity else None
    touch = stack(layout.touch) == 1 if layout.touch else None
    return tuple(
        Run(
            time=np.arange(end - start) * step_size if time is None else time[start:end],
            position=position[start:end],
            velocity=None if velocity is None else velocity[start:end],
            touch=None if touch is None else touch[start:end],
            label=None if layout.run is None else frame[layout.run][start],
        )
        for start, end in pairwise([*starts.tolist(), len(frame)])
    )


def _frame(recording: Recording) -> pl.DataFrame:
    names = standard_columns(
        recording.bodies,
        recording.dimension,
        velocity=recording.has_velocity,
        touch=recording.has_touch,
    )

    def flat(channel: str) -> np.ndarray:
        return np.concatenate([getattr(run, channel).reshape(len(run), -1) for run in recording.runs])

    data: dict[str, np.ndarray] = {
        "run": np.repeat(_labels(recording), [len(run) for run in recording.runs]),
        "t": np.concatenate([run.time for run in recording.runs]),
    }
    for channel, columns in (("position", names.position), ("velocity", names.velocity)):
        if columns:
            data |= dict(zip(columns, flat(channel).T, strict=True))
    if names.touch:
        data |= dict(zip(names.touch, flat("touch").astype(np.uint8).T, strict=True))
    return pl.DataFrame(data)


def _labels(recording: Recording) -> np.ndarray:
    """What the runs are called, as numbers where these say the same."""
    labels = recording.labels
    numbers = all(label.isdecimal() and len(label) < 19 and label == str(int(label)) for label in labels)
    return np.array(labels).astype(np.int64 if numbers else np.str_)
