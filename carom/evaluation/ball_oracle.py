"""The oracle of many short runs of balls: true equations and starts, only parameters fitted."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from carom.data import Recording
from carom.systems.balls import AbstractBalls
from carom.types import State

DIFFERENCE = 1e-5
"""Step of the differences by which the motion's derivatives are found."""


def fit_ball_oracle(
    make: Callable[[Float[np.ndarray, "parameters"]], AbstractBalls],
    guess: Float[np.ndarray, "parameters"],
    recording: Recording,
    starts: State,
    *,
    iterations: int = 3,
) -> Float[np.ndarray, "parameters"]:
    """Parameters of balls by least squares over positions and velocities, all runs together (Gauss–Newton).

    With the true start states and equal Gaussian noise that is maximum likelihood: no learner, who has to
    find the starts too, can be expected to do better.

    Arguments:
        make: the system with these parameters.
        guess: where to begin, such as the true values: the oracle may know them.
        recording: runs of one length with velocities, in the order of the starts.
        starts: noise-free start states, with a leading axis of runs.
    """
    observed = np.stack([np.stack([run.position, run.velocity]) for run in recording.runs], axis=2)  # pyright: ignore

    def away(values: np.ndarray) -> np.ndarray:
        motion = make(values).motions(starts, steps=observed.shape[1] - 1, step_size=recording.step_size)
        return (np.stack([motion.position, motion.velocity]) - observed).ravel()

    values = np.array(guess, float)
    for _ in range(iterations):
        here = away(values)
        # Backwards: a restitution of 1 has nothing above it.
        columns = [(here - away(values - DIFFERENCE * unit)) / DIFFERENCE for unit in np.eye(len(values))]
        values = values - np.linalg.lstsq(np.stack(columns, axis=1), here, rcond=None)[0]
    return values
