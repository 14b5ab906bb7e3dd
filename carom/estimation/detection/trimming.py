"""Runs cut down to what surrounds their collision."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from carom.data import Recording, Run
from carom.errors import InputError
from carom.estimation.detection.impacts import find_impacts


class Trimmed(NamedTuple):
    """What is left of a recording, and how many impacts each of its runs had."""

    recording: Recording
    impacts: tuple[int, ...]


def around_impact(recording: Recording, seconds: float, *, mask: int = 0) -> Recording:
    """Of every run what lies within some seconds of its likeliest impact, which is found in the data.

    Long before a collision hands push, and long after it something else is hit or drag adds up: what a short
    stretch either side says of the collision is free of that. A run without an impact is kept whole.

    Arguments:
        recording: runs of one collision each; its scene names the candidate contacts.
        seconds: kept before the impact, and after it.
        mask: samples either side of an impact that do not tell when it was, for contacts that last.

    Example:
        >>> import numpy as np
        >>> from carom import Pair, Scene
        >>> time = np.arange(200) * 0.01
        >>> runner = np.where(time < 1.2, time - 1.2, 0.3 * (1.2 - time))
        >>> positions = np.stack([np.zeros_like(time), runner], axis=1)[:, :, None]
        >>> noise = 1e-3 * np.random.default_rng(0).standard_normal(positions.shape)
        >>> scene = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),))
        >>> whole = Recording((Run(time, positions + noise),), 0.01, scene)
        >>> times = around_impact(whole, 0.3).runs[0].time
        >>> bool(abs(times[0] - 0.9) < 0.02), bool(abs(times[-1] - 1.5) < 0.02)
        (True, True)
    """
    return trim(recording, seconds, mask=mask).recording


def trim(recording: Recording, seconds: float, *, mask: int = 0) -> Trimmed:
    """As `around_impact`, with how many impacts there were to choose from."""
    scene = recording.scene
    if scene is None or not scene.contacts:
        raise InputError("This recording's scene has no candidate contacts to look for.")
    if not (np.isfinite(seconds) and seconds > 0):
        raise InputError(f"The time kept around an impact must be positive, but it is {seconds}.")

    def trimmed(run: Run) -> tuple[Run, int]:
        found = find_impacts(run, scene, sensor=None, masses_known=False, mask=mask)
        if not found.chosen.any():
            return run, 0
        step = int(np.argmax(np.where(found.chosen, found.log_odds, -np.inf).max(axis=1)))
        instant = 0.5 * (run.time[step] + run.time[step + 1])
        instants = int(found.chosen.any(axis=1).sum())
        return run.part(np.abs(run.time - instant) <= seconds), instants

    runs, impacts = zip(*(trimmed(run) for run in recording.runs), strict=True)
    return Trimmed(replace(recording, runs=runs), impacts)
