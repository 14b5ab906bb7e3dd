"""Measurement noise."""

from dataclasses import replace

import numpy as np

from carom.data.recording import Recording, Run
from carom.errors import InputError


def add_noise(recording: Recording, standard_deviation: float, *, seed: int) -> Recording:
    """Add independent Gaussian noise to all positions and velocities, start states included; not to touch.

    The same seed gives the same noise; NumPy's generator keeps it independent of JAX's version and device.
    """
    if not (np.isfinite(standard_deviation) and standard_deviation >= 0):
        raise InputError(f"The noise must be a standard deviation ≥ 0, but it is {standard_deviation}.")
    generator = np.random.default_rng(seed)

    def disturb(run: Run) -> Run:
        position = run.position + standard_deviation * generator.standard_normal(run.position.shape)
        velocity = run.velocity
        if velocity is not None:
            velocity = velocity + standard_deviation * generator.standard_normal(velocity.shape)
        return replace(run, position=position, velocity=velocity)

    return replace(recording, runs=tuple(disturb(run) for run in recording.runs))


def disturb_touch(recording: Recording, *, missed: float, false: float, shift: int, seed: int) -> Recording:
    """Replace touch by the readings of an imperfect sensor.

    Arguments:
        missed: probability that a touch is not reported.
        false: probability of a report at any other sample.
        shift: a report is early or late by up to this many samples, uniformly distributed.
        seed: seed of the random numbers.
    """
    generator = np.random.default_rng(seed)

    def disturb(run: Run) -> Run:
        if run.touch is None:
            raise InputError("This recording has no touch readings to disturb.")
        reading = generator.random(run.touch.shape) < false
        for sample, body in np.argwhere(run.touch):
            if generator.random() >= missed:
                place = sample + generator.integers(-shift, shift + 1)
                reading[np.clip(place, 0, len(run) - 1), body] = True
        return replace(run, touch=reading)

    return replace(recording, runs=tuple(disturb(run) for run in recording.runs))
