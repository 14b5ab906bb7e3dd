"""Recordings that are whole and read well, but are of no motion that anybody would want to fit."""

import numpy as np

from carom.data import Recording, Run
from carom.mechanics import Scene

SAMPLES = 40
"""One length for all, so that programs are compiled once."""


def odd_motion(number: int, scene: Scene) -> Recording:
    """The recording of a number: a kind of motion, at a scale, with something done to it."""
    generator = np.random.default_rng(number)
    time = np.arange(SAMPLES) * 10.0 ** generator.integers(-11, 11)
    shape = (SAMPLES, scene.bodies, scene.dimension)
    steps = np.arange(SAMPLES)[:, None, None]
    kinds = (
        lambda: generator.normal(size=shape),
        lambda: generator.normal(size=shape).cumsum(axis=0),
        lambda: np.broadcast_to((-1.0) ** steps, shape),
        lambda: np.broadcast_to(steps * 1.0, shape),
        lambda: np.abs(np.broadcast_to(steps % 7 - 3.0, shape)),
        lambda: np.broadcast_to(1.0 * (steps == generator.integers(SAMPLES)), shape),
        lambda: np.broadcast_to(2.0 ** (-steps), shape),
        lambda: np.broadcast_to(np.sign(steps - SAMPLES / 2), shape),
        lambda: np.where(generator.random(shape) < 0.1, 1e3, generator.normal(size=shape)),
        lambda: generator.standard_cauchy(size=shape).clip(-1e10, 1e10),
    )
    position = np.array(kinds[generator.integers(len(kinds))](), float)
    position = position * 10.0 ** generator.integers(-15, 16) + generator.choice([0, 0, 1, -1e6, 1e12])
    velocity = touch = None
    if generator.random() < 0.6:
        rate = np.gradient(position, time, axis=0)
        noise = generator.normal(size=shape) * (1 + np.abs(rate)) * 10.0 ** generator.integers(-3, 3)
        velocity = np.clip(rate + noise * (generator.random() < 0.5), -1e18, 1e18)
    if generator.random() < 0.4:
        touch = generator.random((SAMPLES, scene.bodies)) < generator.choice([0, 0.1, 0.9, 1])
    if generator.random() < 0.3:
        position[generator.random(shape) < generator.choice([0.05, 0.5, 0.9])] = np.nan
        position[:3] = generator.normal(size=(3, *shape[1:]))  # something of each must be known
    if generator.random() < 0.2:
        time = time + 0.3 * (time[1] - time[0]) * generator.random(SAMPLES)
    return Recording((Run(time, position, velocity, touch),), float(np.median(np.diff(time))), scene)
