"""Time steps between samples: constant up to rounding, or varying."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

TOLERANCE = 0.01
"""Relative deviation from the median step up to which steps count as constant."""

Times = Float[np.ndarray, "_"]


def constant_step(runs: Sequence[Times]) -> float | None:
    """The step of all runs, None where steps vary within a run or from one to the next.

    Arguments:
        runs: increasing times in seconds, at least two per run.

    Example:
        >>> constant_step([np.array([0.0, 0.1, 0.2]), np.array([5.0, 5.1, 5.2, 5.3])])
        0.1
        >>> constant_step([np.array([0.0, 0.1, 0.25])]) is None
        True
    """
    step = median_step(np.diff(runs[0]))
    unit = _last_decimal(np.concatenate(runs), step)
    if not all(_is_constant(time, unit) for time in runs):
        return None
    counts = np.array([len(time) - 1 for time in runs])
    durations = np.array([time[-1] - time[0] for time in runs])
    differences = np.abs(durations / counts - durations[0] / counts[0])
    if (differences > TOLERANCE * step + unit / counts + unit / counts[0]).any():
        return None
    largest = max(float(np.abs(time).max()) for time in runs)
    return _shortest(float(durations.sum() / counts.sum()), largest)


def median_step(steps: Float[np.ndarray, "steps"]) -> float:
    """The median; of two middle steps the shorter one, because missing samples make steps longer."""
    return float(np.sort(steps)[(len(steps) - 1) // 2])


def regular_clock(time: Times) -> Times:
    """The nearest times of even frames, some of which may be missing; the same times where there are none.

    Example:
        >>> regular_clock(np.array([0.0, 0.11, 0.19, 0.4])).round(2)
        array([0. , 0.1, 0.2, 0.4])
    """
    if len(time) < 3:
        return time
    centred = time - time.mean()
    # The median of steps with jitter is not exact enough to count the frames of a long run.
    about = (time[-1] - time[0]) / median_step(np.diff(time))
    best, least = time, np.inf
    for frames in range(max(round(0.95 * about), len(time) - 1), round(1.05 * about) + 2):
        step = (time[-1] - time[0]) / frames
        frame = centred
        for _ in range(2):
            middle = float(np.angle(np.mean(np.exp(2j * np.pi * centred / step)))) / (2 * np.pi) * step
            frame = np.rint((centred - middle) / step)
            frame -= frame.mean()
            step = float(frame @ centred / max(float(frame @ frame), 1e-300))
        residual = float(np.sum((centred - step * frame) ** 2)) / step**2
        if residual < least and bool(np.all(np.diff(frame) > 0.5)):
            best, least = time.mean() + step * frame, residual
    return best


def _is_constant(time: Times, unit: float) -> bool:
    """Whether one run has a constant step, or would but for the rounding of its times to `unit`."""
    steps = np.diff(time)
    median = median_step(steps)
    # Rounding errs by half a unit, and the line through rounded times by less than a quarter.
    regular = np.abs(steps - median) <= TOLERANCE * median
    return bool(regular.all() or (np.abs(_departure(time)) <= 0.75 * unit).all())


def _last_decimal(time: Times, step: float) -> float:
    """The unit that times are rounded to if it is about a tenth or a hundredth of a step, and 0 otherwise.

    A camera's 60 Hz in milliseconds are steps of 0.016 and 0.017 s: irregular by 6 %, yet a constant step.
    """
    unit = 10.0 ** np.floor(np.log10(0.1 * step))
    counts = time / unit
    return unit if np.all(np.abs(counts - np.rint(counts)) < 1e-3) else 0.0


def _departure(time: Times) -> Times:
    """Times less the straight line through them, by least squares."""
    number = np.arange(len(time)) - (len(time) - 1) / 2
    centred = time - time.mean()
    return centred - number * (number @ centred) / (number @ number)


def _shortest(step: float, largest: float) -> float:
    """The step to 9 digits if the times do not resolve more: 0.02 for 0.020000000000000004."""
    short = float(f"{step:.9g}")
    return short if abs(short - step) <= 4 * np.spacing(largest) else step
