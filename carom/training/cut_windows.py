"""Cutting recordings into windows of a fixed horizon."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data.recording import Recording
from carom.errors import InputError


class Windows(NamedTuple):
    """Stretches of `horizon + 1` samples: a start state and `horizon` targets."""

    position: Float[np.ndarray, "windows samples bodies dimension"]
    velocity: Float[np.ndarray, "windows samples bodies dimension"] | None
    touch: Bool[np.ndarray, "windows samples bodies"]

    @property
    def horizon(self) -> int:
        return self.position.shape[1] - 1


def cut_windows(recording: Recording, *, horizon: int, stride: int = 1) -> Windows:
    """All windows of `horizon + 1` samples that start every `stride` samples of every run, as arrays.

    `stride=1` gives overlapping windows, `stride=horizon + 1` disjoint ones. A recording without touch gives
    windows without contact. Every sample must be there, at a constant step.
    """
    chosen = window_starts(recording, horizon=horizon, stride=stride)[:, None] + np.arange(horizon + 1)
    samples = all_samples(recording)
    return Windows(
        samples.position[chosen],
        None if samples.velocity is None else samples.velocity[chosen],
        samples.touch[chosen],
    )


class Samples(NamedTuple):
    """The samples of all runs, one run after another; without touch where none was measured."""

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"] | None
    touch: Bool[np.ndarray, "samples bodies"]


def all_samples(recording: Recording) -> Samples:
    """All runs as one."""
    runs = recording.runs
    velocity = [run.velocity for run in runs if run.velocity is not None]
    touch = [run.touch if run.touch is not None else np.zeros(run.position.shape[:2], bool) for run in runs]
    return Samples(
        np.concatenate([run.position for run in runs]),
        np.concatenate(velocity) if velocity else None,
        np.concatenate(touch),
    )


def window_starts(recording: Recording, *, horizon: int, stride: int = 1) -> Int[np.ndarray, "windows"]:
    """Where every window begins, counted over the samples of all runs; refuses what cannot be cut."""
    if horizon < 1 or stride < 1:
        raise InputError(f"Horizon and stride must be at least 1, but they are {horizon} and {stride}.")
    if not recording.even:
        raise InputError(
            "The paper's recipe cuts windows at a constant step, and the steps of this recording vary: "
            "resample it, or use the recipe carom, which takes steps as they are."
        )
    if recording.missing_values:
        raise InputError(
            "The paper's recipe needs every value of a window, and this recording misses some: fill them in, "
            "or use the recipe carom, which leaves them out."
        )
    lengths = np.array([len(run) for run in recording.runs])
    short = int(np.sum(lengths <= horizon))
    if short == len(lengths):
        raise InputError(
            f"The longest run has {lengths.max()} samples; a horizon of {horizon} needs at least "
            f"{horizon + 1}."
        )
    if short:
        message = f"{short} of {len(lengths)} runs have fewer than {horizon + 1} samples and are left out."
        warnings.warn(message, stacklevel=2)
    before = np.cumsum(lengths) - lengths
    return np.concatenate(
        [
            first + np.arange(0, length - horizon, stride)
            for first, length in zip(before, lengths, strict=True)
            if length > horizon
        ]
    )
