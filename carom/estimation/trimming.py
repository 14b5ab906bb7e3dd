"""Trimming of runs to the surroundings of their collision."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from carom.data import Recording, Run
from carom.errors import InputError
from carom.estimation.detection.impacts import Impacts, find_impacts


class Trimmed(NamedTuple):
    """A trimmed recording, and the number of impacts detected in each of its runs."""

    recording: Recording
    impacts: tuple[int, ...]


def around_impact(recording: Recording, seconds: float, *, mask: int = 0) -> Recording:
    """Trim every run to the time around its likeliest impact, which is detected in the data.

    Long before a collision bodies may be pushed by hand, and long after it they hit something else or drag
    accumulates; a short time either side is free of that. A run without an impact is kept whole.

    Arguments:
        recording: runs of one collision each; its scene names the candidate contacts.
        seconds: kept before the impact, and after it.
        mask: samples either side of an impact to ignore in its detection, for contacts of finite duration.

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
    """As `around_impact`, with the number of impacts in each run."""
    scene = recording.scene
    if scene is None or not scene.contacts:
        raise InputError("The scene of this recording has no candidate contacts; add a wall or a pair to it.")
    if not (np.isfinite(seconds) and seconds > 0):
        raise InputError(f"The time kept around an impact must be positive, but it is {seconds}.")

    def trimmed(run: Run, found: Impacts) -> tuple[Run, int]:
        if not found.chosen.any():
            return run, 0
        step = int(np.argmax(np.where(found.chosen, found.log_odds, -np.inf).max(axis=1)))
        instant = 0.5 * (run.time[step] + run.time[step + 1])
        instants = int(found.chosen.any(axis=1).sum())
        return run.part(np.abs(run.time - instant) <= seconds), instants

    detected = find_impacts(recording.runs, scene, masses_known=False, surfaces="per run", mask=mask)
    runs, impacts = zip(*map(trimmed, recording.runs, detected), strict=True)
    return Trimmed(replace(recording, runs=runs), impacts)
