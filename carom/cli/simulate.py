"""`carom simulate`: recordings of known systems."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import tyro

from carom.cli.arguments import MAXIMUM_STEPS, parse_state, require_output
from carom.cli.output import print_json
from carom.cli.system_options import Options, build_system
from carom.data import (
    Recording,
    SystemFile,
    Truth,
    write_recording,
    write_system_file,
)
from carom.data import simulate as simulate_system
from carom.errors import InputError, require_range, require_seed
from carom.mechanics import Projection
from carom.systems import AbstractBoxedBalls, AbstractSystem
from carom.types import State, VelocityGrid

MAXIMUM_RUNS = 100_000


class _Sampling(NamedTuple):
    steps: int
    step_size: float


_SAMPLING = {
    "ball": _Sampling(500, 0.02),
    "billiards": _Sampling(500, 0.01),
    "box": _Sampling(500, 0.01),
    "cradle": _Sampling(540, 0.01),
    "pendulum": _Sampling(200, 0.02),
    "stairs": _Sampling(500, 0.01),
}
"""What is recorded of each system, for ball, cradle and pendulum as in the paper."""


def simulate(
    system: Annotated[
        Literal["ball", "billiards", "box", "cradle", "pendulum", "stairs"], tyro.conf.Positional
    ],
    /,
    *,
    out: Path,
    steps: int | None = None,
    step_size: float | None = None,
    start: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    truth: Truth = "exact",
    velocity_grid: VelocityGrid = "half",
    projection: Projection = "none",
    noise: float = 0.0,
    gravity: float | None = None,
    restitution: float | None = None,
    friction: float | None = None,
    damping: float | None = None,
    balls: int | None = None,
    dimension: int | None = None,
    size: str | None = None,
    radius: float | None = None,
    masses: str | None = None,
    runs: int | None = None,
    speed: float | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Record a known system, with noise, and write its system file beside the recording.

    Example: carom simulate ball --noise 0.2 --out ball.csv
    Example: carom simulate box --balls 20 --dimension 3 --restitution 0.9 --out box.csv

    Args:
        system: What moves.
        out: The recording to write: .csv, .parquet or .npz. The system file gets the same name and .toml.
        steps: Steps of a run, by default those of the paper (cradle 540, pendulum 200) or 500.
        step_size: Seconds between samples, by default those of the paper (ball and pendulum 0.02) or 0.01.
        start: A start state: positions then velocities, separated by commas, such as 10,0; repeat it for more
            runs. Balls of billiards and box start at random places where none is given.
        truth: Impacts at their true instants, the CD-Lagrange scheme, or a physics engine.
        velocity_grid: How models are to read the velocities; "sample" is what the paper does.
        projection: How models, and the scheme, are to remove overlap between bodies.
        noise: Standard deviation of Gaussian noise on positions and velocities.
        gravity: Acceleration of gravity, 9.81 by default.
        restitution: Share of the speed that a bounce keeps, 1 by default.
        friction: Coulomb's coefficient of billiards, box and stairs, 0 by default.
        damping: Damping of the pendulum, 0 by default.
        balls: Number of balls: of the cradle (2 by default), of billiards (5) or in the box (3).
        dimension: Of billiards or box: 1, 2 or 3; 2 by default.
        size: Lengths of the box along its axes, separated by commas; the last one is its height.
        radius: Of every ball of billiards or box; by default 0.1 or what leaves them room.
        masses: Of the balls of billiards or box, separated by commas; all 1 by default.
        runs: Number of random starts of billiards or box, 1 by default.
        speed: Root of the mean square of the speeds of such starts, 1 by default.
        overwrite: Replace the recording and the system file if they exist.
        seed: Seed of the noise and of random starts.
        json: Print one JSON object instead of sentences.
    """
    require_seed(seed)
    default = _SAMPLING[system]
    steps = default.steps if steps is None else steps
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    step_size = default.step_size if step_size is None else step_size
    if steps * step_size > 1e9:
        raise InputError(f"The run would last {steps * step_size:g} s; choose fewer or smaller steps.")
    truth_system = build_system(
        system,
        Options(gravity, restitution, friction, damping, balls, dimension, size, radius, masses),
    )
    starts = [_state(text, truth_system) for text in start] or None
    if isinstance(truth_system, AbstractBoxedBalls) and starts is None:
        starts = _random_starts(truth_system, seed, runs=runs, speed=speed)
    elif runs is not None or speed is not None:
        raise InputError("--runs and --speed are for random starts of billiards and box, without --start.")
    if out.suffix == ".toml":
        raise InputError(
            f"{out}: the recording needs another suffix; .toml is for the system file beside it."
        )
    require_output(out, overwrite=overwrite)
    system_file = out.with_suffix(".toml")
    require_output(system_file, overwrite=overwrite)
    with _computing():
        recording = simulate_system(
            truth_system,
            steps=steps,
            step_size=step_size,
            starts=starts,
            truth=truth,
            velocity_grid=velocity_grid,
            projection=projection,
            noise=noise,
            seed=seed,
        )
        _require_finite(recording)
    assert recording.scene is not None
    write_recording(recording, out)
    write_system_file(SystemFile(recording.scene), system_file)
    if json:
        print_json({"recording": str(out), "system": str(system_file), "samples": recording.samples})
    else:
        count = f"{len(recording.runs)} run(s), {recording.samples} samples"
        print(f"{out}: {count}. {system_file}: its system file.")


def _random_starts(
    system: AbstractBoxedBalls, seed: int, *, runs: int | None, speed: float | None
) -> list[State]:
    """One start per run, each by a seed of its own."""
    runs, speed = 1 if runs is None else runs, 1.0 if speed is None else speed
    require_range("--runs", runs, 1, MAXIMUM_RUNS)
    if not 0 <= speed <= 1e6:
        raise InputError(f"--speed must lie between 0 and a million, but it is {speed}.")
    return [system.random_start(seed=seed + run, speed=speed) for run in range(runs)]


def _state(text: str, system: AbstractSystem) -> State:
    geometry = system.geometry
    state = parse_state(text, bodies=geometry.bodies, dimension=geometry.dimension, option="--start")
    if (np.asarray(geometry.gap(state.position)) < 0).any():
        raise InputError(f"--start {text}: bodies overlap there, or lie inside a wall; move them apart.")
    return state


@contextmanager
def _computing() -> Iterator[None]:
    """Turn what stops a computation into a sentence; warnings wait, as they are idle where it is refused."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(record=True) as caught:
            yield
    except RuntimeError as error:  # too many impacts, or too little memory
        reason = (str(error).splitlines() or ["unknown"])[0].rstrip(".")
        raise InputError(
            f"The motion cannot be computed ({reason}); choose fewer or smaller steps."
        ) from error
    for warning in caught:
        print(f"carom: {warning.message}", file=sys.stderr)


def _require_finite(recording: Recording) -> None:
    for run in recording.runs:
        channels = [channel for channel in (run.time, run.position, run.velocity) if channel is not None]
        if not all(np.isfinite(channel).all() for channel in channels):
            raise InputError("The motion leaves all bounds; choose smaller numbers or fewer steps.")
