"""Checks of a recording's columns that need no knowledge of the mechanics."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from carom.data.files.input_file import complaint, shown
from carom.data.files.tables import cell, first_true

TOLERANCE = 0.01
"""How far a step may be from the median step, as a fraction of it."""
MINIMUM_SAMPLES = 3
"""A shorter run has no acceleration."""
SHORTEST_STEP, LONGEST_STEP = 1e-12, 1e12
"""Steps beyond are no seconds, and would overflow."""

Column = Float[np.ndarray, "samples"]
Starts = Int[np.ndarray, "runs"]
"""The row at which every run starts."""


def require_finite(path: Path, frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse NaN and infinite values."""
    for name in names:
        if (row := first_true(~frame[name].is_finite())) is not None:
            problem = f"the value {frame[name][row]} is not finite; correct it or remove the row"
            raise complaint(path, problem, *cell(row, name))


def require_binary(path: Path, frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse touch other than 0 and 1."""
    for name in names:
        if (row := first_true(~frame[name].is_in([0.0, 1.0]))) is not None:
            problem = f"touch is {frame[name][row]:g}; write 1 where the body touched and 0 elsewhere"
            raise complaint(path, problem, *cell(row, name))


def require_motion(path: Path, frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse positions that never change: a sensor that was not connected."""
    for name in names:
        if frame[name].min() == frame[name].max():
            problem = (
                f"it never moves, being {frame[name][0]:g} in every row; leave it out or record it again"
            )
            raise complaint(path, problem, f"column {name}")


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
    """The constant step of all runs.

    Arguments:
        path: the file, for complaints.
        name: the time column, for complaints.
        time: finite times in seconds.
        starts: where runs start, each with several samples.
    """
    runs = list(pairwise([*starts.tolist(), len(time)]))
    with np.errstate(over="ignore", invalid="ignore"):
        _require_rising(path, name, time, starts)
        step = _median(np.diff(time[: runs[0][1]]))
        if not SHORTEST_STEP <= step <= LONGEST_STEP:
            raise complaint(path, f"the times step by {step:g}; write them in seconds", f"column {name}")
        unit = _last_decimal(time, step)
        for start, end in runs:
            _require_constant(path, name, time[start:end], start, unit)
    counts = np.array([end - start - 1 for start, end in runs])
    durations = np.array([time[end - 1] - time[start] for start, end in runs])
    differences = np.abs(durations / counts - durations[0] / counts[0])
    tolerance = TOLERANCE * step + unit / counts + unit / counts[0]
    if (run := first_true(pl.Series(differences > tolerance))) is not None:
        other = durations[run] / counts[run]
        problem = f"the step is {other:.6g} s in this run but {step:.6g} s in the first; resample to one step"
        raise complaint(path, problem, *cell(runs[run][0], name))
    return _shortest(float(durations.sum() / counts.sum()), time)


def _require_rising(path: Path, name: str, time: Column, starts: Starts) -> None:
    falling = np.diff(time) <= 0
    falling[starts[1:] - 1] = False
    if (i := first_true(pl.Series(falling))) is not None:
        problem = "the time is the same as in the row before; remove one of the two rows"
        if time[i + 1] < time[i]:
            problem = f"the time falls from {time[i]:g} to {time[i + 1]:g}; sort the rows or add a column run"
        raise complaint(path, problem, *cell(i + 1, name))


def _require_constant(path: Path, name: str, time: Column, start: int, unit: float) -> None:
    """Refuse irregular steps of one run, unless they come from rounding times to `unit`."""
    steps = np.diff(time)
    median = _median(steps)
    regular = np.abs(steps - median) <= TOLERANCE * median
    if regular.all() or (np.abs(_departure(time)) <= 0.75 * unit).all():
        return
    i = int(np.argmin(regular))
    problem = f"the step is {steps[i]:.6g} s, but the median step {median:.6g} s"
    if steps[i] > 1.5 * median:
        problem += ", so there is a gap; fill it or start a new run after it"
    else:
        problem += ", so the steps are irregular; resample at a constant step"
    raise complaint(path, problem, *cell(start + i + 1, name))


def _median(steps: Column) -> float:
    """The median, and of two middle steps the shorter one: missing samples make steps longer."""
    return float(np.sort(steps)[(len(steps) - 1) // 2])


def _last_decimal(time: Column, step: float) -> float:
    """The unit that times are rounded to if it is about a tenth or a hundredth of a step, and 0 otherwise.

    A camera's 60 Hz in milliseconds are steps of 0.016 and 0.017 s: irregular by 6 %, yet a constant step.
    """
    unit = 10.0 ** np.floor(np.log10(0.1 * step))
    counts = time / unit
    return unit if np.all(np.abs(counts - np.rint(counts)) < 1e-3) else 0.0


def _departure(time: Column) -> Column:
    """Times less the straight line through them, by least squares."""
    number = np.arange(len(time)) - (len(time) - 1) / 2
    centred = time - time.mean()
    return centred - number * (number @ centred) / (number @ number)


def _shortest(step: float, time: Column) -> float:
    """The step with 9 digits if the times cannot tell the difference: 0.02 for 0.020000000000000004."""
    short = float(f"{step:.9g}")
    return short if abs(short - step) <= 4 * np.spacing(np.abs(time).max()) else step
