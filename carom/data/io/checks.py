"""Checks of a recording's columns that need no knowledge of the mechanics."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from carom.data.io.columns import Layout
from carom.data.io.tables import cell, first_true
from carom.data.recording import Channel
from carom.data.steps import constant_step, median_step
from carom.errors import require_choice
from carom.storage.input_file import complaint, shown

MINIMUM_SAMPLES = 3
LONGEST_LABEL = 100
"""Characters of the name of a run, which is written with every sample."""
"""A shorter run has no acceleration."""
SHORTEST_STEP, LONGEST_STEP = 1e-12, 1e12
"""Steps beyond are no seconds, and would overflow."""
LONGEST_GAP = 5.0
"""Median steps beyond which the motion from one sample to the next is anybody's guess."""

Column = Float[np.ndarray, "samples"]
Starts = Int[np.ndarray, "runs"]
"""The row at which every run starts."""


def require_values(
    path: Path, frame: pl.DataFrame, layout: Layout, missing: Sequence[Channel]
) -> pl.DataFrame:
    """Refuse cells that are empty or not finite, but for those of channels that may miss values.

    Arguments:
        path: the file, for complaints.
        frame: the table; null where a cell is empty.
        layout: what its columns mean.
        missing: the channels that may miss values.

    Returns the table with null for every missing value.
    """
    for channel in missing:
        require_choice("missing", channel, Channel)
    channels = layout.channels
    optional = [name for name, channel in channels.items() if channel in missing]
    frame = frame.with_columns(pl.col(optional).fill_nan(None))
    for name in frame.columns:
        row = first_true(frame[name].is_null())
        if row is not None and name not in optional:
            problem = f"the value is empty; fill it in{_or_allow(channels.get(name), missing)}"
            raise complaint(path, problem, *cell(row, name))
    for name in layout.numbers:
        row = first_true(~frame[name].is_finite())  # null is neither finite nor not
        if row is not None:
            value = frame[name][row]
            remedy = _or_allow(channels.get(name), missing) if np.isnan(value) else " or remove the row"
            raise complaint(path, f"the value {value} is not finite; correct it{remedy}", *cell(row, name))
    return frame


def _or_allow(channel: str | None, missing: Sequence[Channel]) -> str:
    """What else can be done about a missing value."""
    if channel == "touch":
        return ", or write 0 and fit with imperfect touch"
    if channel is None:
        return " or remove the row"
    allowed = ", ".join(f'"{name}"' for name in get_args(Channel) if name == channel or name in missing)
    return f", remove the row, or write missing = [{allowed}] under [sampling] in the system file"


def require_binary(path: Path, frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse touch other than 0 and 1."""
    for name in names:
        if (row := first_true(~frame[name].is_in([0.0, 1.0]))) is not None:
            problem = f"touch is {frame[name][row]:g}; write 1 where the body touched and 0 elsewhere"
            raise complaint(path, problem, *cell(row, name))


def require_motion(path: Path, frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse a recording in which nothing moves: a sensor that was not connected.

    One body may well be at rest, as the balls within a cradle are.
    """
    known = [frame[name].drop_nulls() for name in names]
    if all(column.min() == column.max() for column in known):
        problem = f"nothing moves: it is {known[0][0]:g} in every row, and no other position changes either"
        raise complaint(path, f"{problem}; record it again", f"column {names[0]}")


def require_known(path: Path, frame: pl.DataFrame, layout: Layout, starts: Starts) -> None:
    """Refuse a run with too few positions in a column, and a column of velocities without any."""
    for name in layout.velocity:
        if frame[name].null_count() == len(frame):
            raise complaint(path, "every value is missing; leave the velocities out", f"column {name}")
    for name in layout.position:
        known = np.add.reduceat(frame[name].is_not_null().to_numpy(), starts, dtype=np.int64)
        if (run := first_true(pl.Series(known < MINIMUM_SAMPLES))) is not None:
            problem = f"the run that starts here has {known[run]} values in this column and needs at least "
            problem += f"{MINIMUM_SAMPLES}; leave the run out"
            raise complaint(path, problem, *cell(int(starts[run]), name))


def find_runs(path: Path, labels: pl.Series | None, *, rows: int) -> Starts:
    """Where runs start, each in one piece and long enough. Without labels there is one run.

    Arguments:
        path: the file, for complaints.
        labels: the name of every row's run.
        rows: number of rows.
    """
    if rows == 0:
        raise complaint(path, f"the table has no rows; record at least {MINIMUM_SAMPLES} samples")
    starts = np.zeros(1, np.int64)
    if labels is not None:
        starts = np.flatnonzero((labels != labels.shift()).fill_null(True))
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


def find_step_size(path: Path, name: str, time: Column, starts: Starts) -> float:
    """The constant step of all runs; where steps vary, their median.

    Arguments:
        path: the file, for complaints.
        name: the time column, for complaints.
        time: finite times in seconds.
        starts: where runs start, each with several samples.
    """
    runs = [time[start:end] for start, end in pairwise([*starts.tolist(), len(time)])]
    with np.errstate(over="ignore", invalid="ignore"):
        _require_rising(path, name, time, starts)
        steps = np.diff(time)
        within = np.delete(steps, starts[1:] - 1)
        median = median_step(within)
        if not SHORTEST_STEP <= median <= LONGEST_STEP:
            raise complaint(path, f"the times step by {median:g}; write them in seconds", f"column {name}")
        steps[starts[1:] - 1] = median
        if (i := first_true(pl.Series(steps > LONGEST_GAP * median))) is not None:
            problem = f"the step is {steps[i]:.6g} s, but the median step {median:.6g} s, so there is a gap; "
            problem += "start a new run after it, or fill it with rows whose cells are empty"
            raise complaint(path, problem, *cell(i + 1, name))
        return constant_step(runs) or median


def _require_rising(path: Path, name: str, time: Column, starts: Starts) -> None:
    falling = np.diff(time) <= 0
    falling[starts[1:] - 1] = False
    if (i := first_true(pl.Series(falling))) is not None:
        problem = "the time is the same as in the row before; remove one of the two rows"
        if time[i + 1] < time[i]:
            problem = f"the time falls from {time[i]:g} to {time[i + 1]:g}; sort the rows or add a column run"
        raise complaint(path, problem, *cell(i + 1, name))
