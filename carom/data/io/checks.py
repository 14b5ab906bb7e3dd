"""Checks of a recording's columns that need no knowledge of the mechanics."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from carom.data.io.columns import Columns
from carom.data.io.formats import cell, first_true
from carom.data.recording import Channel
from carom.data.steps import constant_step, median_step
from carom.errors import InputError, require_choice
from carom.storage.input_file import complaint, shown

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


class Samples(NamedTuple):
    """The columns of numbers by their meaning; NaN where a value is missing, no columns where none were."""

    time: Float[np.ndarray, "samples times"]
    position: Float[np.ndarray, "samples coordinates"]
    velocity: Float[np.ndarray, "samples velocities"]
    touch: Float[np.ndarray, "samples sensors"]


def require_values(path: Path, frame: pl.DataFrame, columns: Columns, missing: Sequence[Channel]) -> Samples:
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
    return Samples(*np.split(values, ends, axis=1))


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


def require_measured(path: Path, samples: Samples, columns: Columns, starts: Starts) -> None:
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


def find_runs(path: Path, labels: pl.Series | None, *, rows: int) -> Starts:
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


def find_step_size(path: Path, name: str, time: Float[np.ndarray, "samples"], starts: Starts) -> float:
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
