"""Recordings of systems, and the errors of sensors."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from carom.data.recording import Recording, Run, run_from_trajectory
from carom.errors import InputError, require_choice
from carom.mechanics import Projection
from carom.systems import AbstractSystem
from carom.types import State, Trajectory, VelocityGrid


def add_noise(recording: Recording, standard_deviation: float, *, seed: int) -> Recording:
    """Add independent Gaussian noise to all positions and velocities, start states included; not to touch.

    The same seed gives the same noise; NumPy's generator keeps it independent of JAX's version and device.
    """
    if not (np.isfinite(standard_deviation) and standard_deviation >= 0):
        raise InputError(f"The noise must be a standard deviation ≥ 0, but it is {standard_deviation}.")
    # One generator for all runs, in their order: every run has noise of its own.
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
                # A report cannot come before the recording begins or after it ends.
                reading[np.clip(place, 0, len(run) - 1), body] = True
        return replace(run, touch=reading)

    return replace(recording, runs=tuple(disturb(run) for run in recording.runs))


Truth = Literal["exact", "scheme"]
"""`exact`: impacts at their true instants. `scheme`: the CD-Lagrange step at the sample step size, which
flatters models that use the same step."""
LONGEST_RUN = 1e9
"""Seconds; some thirty years, at whose end double precision resolves a tenth of a microsecond."""


def simulate(
    system: AbstractSystem,
    *,
    steps: int,
    step_size: float,
    starts: Sequence[State] | None = None,
    truth: Truth = "exact",
    velocity_grid: VelocityGrid = "half",
    projection: Projection = "none",
    noise: float = 0.0,
    seed: int = 0,
) -> Recording:
    """Record a system: `steps` steps, one run per start state.

    Arguments:
        system: the true mechanics.
        steps: steps per run; a run has `steps + 1` samples.
        step_size: time between samples, in seconds.
        starts: start states, by default the system's own.
        truth: which solution is recorded.
        velocity_grid: how velocities relate to the samples, noted in the recording's scene for models to use.
        projection: the same for the removal of overlap at body–body contacts.
        noise: standard deviation of Gaussian noise on positions and velocities.
        seed: seed of the noise.

    Example:
        >>> import carom
        >>> recording = carom.simulate(carom.systems.Pendulum(), steps=200, step_size=0.02, noise=0.2, seed=1)
        >>> recording.runs[0].position.shape
        (201, 1, 1)
    """
    if steps < 1:
        raise InputError(f"A simulation needs at least 1 step, not {steps}.")
    if not (np.isfinite(step_size) and step_size > 0):
        raise InputError(f"The step size must be positive, but it is {step_size}.")
    if steps * step_size > LONGEST_RUN:
        raise InputError(f"The run would last {steps * step_size:g} s; choose fewer or smaller steps.")
    require_choice("truth", truth, Truth)
    scene = system.scene(velocity_grid=velocity_grid, projection=projection)

    def motion(start: State) -> Trajectory:
        if truth == "exact":
            return system.exact(start, np.arange(steps + 1) * step_size)
        return system.scheme(
            start, steps=steps, step_size=step_size, velocity_grid=velocity_grid, projection=projection
        )

    try:
        with np.errstate(all="ignore"):  # what overflows is refused below
            runs = tuple(run_from_trajectory(motion(start), scene) for start in starts or (system.start,))
            recording = add_noise(Recording(runs, step_size, scene), noise, seed=seed)
    except RuntimeError as error:  # too many impacts, or too little memory
        reason = (str(error).splitlines() or ["unknown"])[0].rstrip(".")
        problem = f"The motion cannot be computed ({reason}); choose fewer or smaller steps."
        raise InputError(problem) from error
    channels = [channel for run in recording.runs for channel in (run.position, run.velocity)]
    if not all(np.isfinite(channel).all() for channel in channels if channel is not None):
        raise InputError("The motion leaves all bounds; choose smaller numbers or fewer steps.")
    return recording
