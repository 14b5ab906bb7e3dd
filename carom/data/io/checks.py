"""Checks of a recording's columns that need no knowledge of the mechanics."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from carom.data.io.columns import Columns
from carom.data.io.tables import cell, first_true
from carom.data.recording import Channel
from carom.data.steps import constant_step, median_step
from carom.errors import require_choice
from carom.storage.input_file import complaint, shown

MINIMUM_SAMPLES = 3
"""A shorter run has no acceleration."""
LONGEST_LABEL = 100
"""Characters of the name of a run, which is written with every sample."""
SHORTEST_STEP, LONGEST_STEP = 1e-12, 1e12
"""Steps beyond are not in seconds, and would overflow."""
LONGEST_GAP = 5.0
"""Median steps between two samples beyond which the motion in between is unknown."""

Column = Float[np.ndarray, "samples"]
Starts = Int[np.ndarray, "runs"]
"""The row at which every run starts."""


def require_values(
    path: Path, frame: pl.DataFrame, columns: Columns, missing: Sequence[Channel]
) -> pl.DataFrame:
    """Refuse cells that are empty or not finite, except in channels that may have missing values.

    Arguments:
        path: the file, for error messages.
        frame: the table; null where a cell is empty.
        columns: what its columns mean.
        missing: the channels that may have missing values.

    Returns the table with null for every missing value.
    """
    for channel in missing:
        require_choice("missing", channel, Channel)
    kinds = {"position": columns.position, "velocity": columns.velocity, "touch": columns.touch}
    channels = {name: kind for kind, names in kinds.items() for name in names or ()}
    optional = [name for name, channel in channels.items() if channel in missing]
    frame = frame.with_columns(pl.col(optional).fill_nan(None))
    for name in frame.columns:
        values, remedy = frame[name], _remedy(channels.get(name), missing)
        if name not in optional and (row := first_true(values.is_null())) is not None:
            raise complaint(path, f"the value is empty; fill it in{remedy}", *cell(row, name))
        # Null is neither finite nor not.
        if name != columns.run and (row := first_true(~values.is_finite())) is not None:
            if not np.isnan(values[row]):
                remedy = " or remove the row"
            problem = f"the value {values[row]} is not finite; correct it{remedy}"
            raise complaint(path, problem, *cell(row, name))
    return frame


def _remedy(channel: str | None, missing: Sequence[Channel]) -> str:
    """What else can be done about a missing value."""
    if channel == "touch":
        return ", or write 0 and fit with imperfect touch"
    if channel is None:
        return " or remove the row"
    allowed = ", ".join(f'"{name}"' for name in get_args(Channel) if name == channel or name in missing)
    return f", remove the row, or write missing = [{allowed}] under [sampling] in the system file"


def require_measured(path: Path, frame: pl.DataFrame, columns: Columns, starts: Starts) -> None:
    """Refuse columns that hold no measurement: touch other than 0 and 1, no motion, nothing but gaps."""
    for name in columns.velocity or ():
        if frame[name].null_count() == len(frame):
            raise complaint(path, "every value is missing; leave the velocities out", f"column {name}")
    for name in columns.touch or ():
        if (row := first_true(~frame[name].is_in([0.0, 1.0]))) is not None:
            problem = f"touch is {frame[name][row]:g}; write 1 where the body touched and 0 elsewhere"
            raise complaint(path, problem, *cell(row, name))
    for name in columns.position:
        known = np.add.reduceat(frame[name].is_not_null().to_numpy(), starts, dtype=np.int64)
        if (run := first_true(pl.Series(known < MINIMUM_SAMPLES))) is not None:
            problem = f"the run that starts here has too few values in this column, {known[run]}; "
            problem += f"leave out runs with fewer than {MINIMUM_SAMPLES}"
            raise complaint(path, problem, *cell(int(starts[run]), name))
    # One body may well be at rest, as the balls within a cradle are; if all are, no sensor was connected.
    known = [frame[name].drop_nulls() for name in columns.position]
    if all(column.min() == column.max() for column in known):
        problem = f"nothing moves: it is {known[0][0]:g} in every row, and no other position changes either"
        raise complaint(path, f"{problem}; record it again", f"column {columns.position[0]}")


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
        names = labels.gather(starts)
        if (long := first_true(names.str.len_chars() > LONGEST_LABEL)) is not None:
            problem = f"the name of a run has more than {LONGEST_LABEL} characters; shorten it"
            raise complaint(path, problem, *cell(int(starts[long]), labels.name))
        if (again := first_true(~names.is_first_distinct())) is not None:
            problem = f"run {shown(names[again])} comes back after another run; keep its rows together"
            raise complaint(path, problem, *cell(int(starts[again]), labels.name))
    lengths = np.diff(starts, append=rows)
    if (short := first_true(pl.Series(lengths < MINIMUM_SAMPLES))) is not None:
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


def find_step_size(path: Path, name: str, time: Column, starts: Starts) -> float:
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
        steps[between] = np.inf  # from one run to the next times may do anything
        if (i := first_true(pl.Series(steps <= 0))) is not None:
            problem = "the time is the same as in the row before; remove one of the two rows"
            if time[i + 1] < time[i]:
                problem = (
                    f"the time falls from {time[i]:g} to {time[i + 1]:g}; sort the rows or add a column run"
                )
            raise complaint(path, problem, *cell(i + 1, name))
        if not SHORTEST_STEP <= median <= LONGEST_STEP:
            raise complaint(path, f"the times step by {median:g}; write them in seconds", f"column {name}")
        steps[between] = median
        if (i := first_true(pl.Series(steps > LONGEST_GAP * median))) is not None:
            problem = f"the step is {steps[i]:.6g} s, but the median step {median:.6g} s, so there is a gap; "
            problem += "start a new run after it, or fill it with rows whose cells are empty"
            raise complaint(path, problem, *cell(i + 1, name))
        runs = [time[start:end] for start, end in pairwise([*starts.tolist(), len(time)])]
        return constant_step(runs) or median
