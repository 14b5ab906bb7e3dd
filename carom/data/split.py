"""Held-out data: what a fit does not see, to measure its forecasts."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from carom.data.recording import Recording, Run
from carom.errors import InputError

ENOUGH_RUNS = 5
"""From this number on whole runs are held out; of fewer runs, the end of each."""
LEAST_SAMPLES = 8
"""Samples that a fit needs of a run, and that a forecast needs as history."""
KNOWN_SAMPLES = 30
"""The longest history, in samples, of a run that is held out whole: it determines the start state."""


class HeldOut(NamedTuple):
    """A part of a run that no fit has seen.

    Arguments:
        number: its run in the recording, counted from 0.
        history: the samples before it, which a forecast may use.
        future: the samples to forecast, from one step after the end of the history.
    """

    number: int
    history: Run
    future: Run


class Split(NamedTuple):
    """A recording in the part that is fitted and the parts that are held out."""

    training: Recording
    held_out: tuple[HeldOut, ...]


def hold_out(recording: Recording, share: float) -> Split:
    """Hold out a fraction of a recording: whole runs, evenly spread, where there are five or more.

    Of fewer runs the end of each is held out, and the part before it is both fitted and the history of its
    forecast.

    Arguments:
        recording: what was measured.
        share: fraction of the runs, or of the samples of every run; 0 holds out nothing.

    Example:
        >>> import carom
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=99, step_size=0.02)
        >>> training, (kept,) = hold_out(recording, 0.2)
        >>> training.samples, len(kept.history), len(kept.future)
        (80, 80, 20)
    """
    if not 0 <= share < 1:
        raise InputError(f"The fraction to hold out must be at least 0 and less than 1, but it is {share:g}.")
    if share == 0:
        return Split(recording, ())
    split = _whole_runs if len(recording.runs) >= ENOUGH_RUNS else _ends
    training, kept = split(recording.runs, share)
    if not (training and kept):
        raise InputError(
            f"The runs are too short to hold out a fraction of {share:g}; record more, or hold out nothing."
        )
    return Split(replace(recording, runs=tuple(training)), tuple(kept))


def _whole_runs(runs: tuple[Run, ...], share: float) -> tuple[list[Run], list[HeldOut]]:
    count = min(max(1, round(share * len(runs))), len(runs) - 1)
    # From the middle of equal parts: conditions that drift during a session are in both sets.
    numbers = np.floor((np.arange(count) + 0.5) * len(runs) / count).astype(int)
    kept = []
    for number in numbers.tolist():
        run = runs[number]
        # A third of a short run at most: most of it is to be forecast.
        known = min(KNOWN_SAMPLES, len(run) // 3)
        if known >= LEAST_SAMPLES:
            kept.append(HeldOut(number, run.part(slice(0, known)), run.part(slice(known, None))))
    training = [run for number, run in enumerate(runs) if number not in {part.number for part in kept}]
    return training, kept


def _ends(runs: tuple[Run, ...], share: float) -> tuple[list[Run], list[HeldOut]]:
    training, kept = [], []
    for number, run in enumerate(runs):
        # At least one sample, however small the share.
        cut = len(run) - max(1, round(share * len(run)))
        if cut < LEAST_SAMPLES:
            training.append(run)
            continue
        history = run.part(slice(0, cut))
        training.append(history)
        kept.append(HeldOut(number, history, run.part(slice(cut, None))))
    return training, kept
