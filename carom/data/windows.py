"""Cutting recordings into windows of a fixed horizon."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

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
    """All windows of `horizon + 1` samples that start every `stride` samples of every run.

    `stride=1` gives overlapping windows, `stride=horizon + 1` disjoint ones. A recording without touch gives
    windows without contact. Every sample must be there, at a constant step.
    """
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
    indices = [
        (run, np.arange(0, len(run) - horizon, stride)[:, None] + np.arange(horizon + 1))
        for run in recording.runs
        if len(run) > horizon
    ]
    short = len(recording.runs) - len(indices)
    if short and indices:
        message = (
            f"{short} of {len(recording.runs)} runs have fewer than {horizon + 1} samples and are left out."
        )
        warnings.warn(message, stacklevel=2)
    if not indices:
        longest = max(len(run) for run in recording.runs)
        raise InputError(
            f"The longest run has {longest} samples; a horizon of {horizon} needs at least {horizon + 1}."
        )
    return Windows(
        position=np.concatenate([run.position[index] for run, index in indices]),
        velocity=(
            np.concatenate([run.velocity[index] for run, index in indices if run.velocity is not None])
            if recording.has_velocity
            else None
        ),
        touch=np.concatenate(
            [
                np.zeros((*index.shape, recording.bodies), bool) if run.touch is None else run.touch[index]
                for run, index in indices
            ]
        ),
    )
