"""`carom simulate`: recordings of known systems."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import tyro

from carom.cli.arguments import MAXIMUM_STEPS, parse_state, require_output, require_range, require_seed
from carom.cli.output import print_json
from carom.data import (
    Recording,
    SystemFile,
    Truth,
    write_recording,
    write_system_file,
)
from carom.data import simulate as simulate_system
from carom.errors import InputError
from carom.mechanics import Projection
from carom.systems import SYSTEMS, AbstractSystem
from carom.types import State, VelocityGrid


class _Sampling(NamedTuple):
    steps: int
    step_size: float


_SAMPLING = {
    "ball": _Sampling(500, 0.02),
    "cradle": _Sampling(540, 0.01),
    "pendulum": _Sampling(200, 0.02),
}
"""What the paper records of each system."""


def simulate(
    system: Annotated[Literal["ball", "cradle", "pendulum"], tyro.conf.Positional],
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
    damping: float | None = None,
    balls: int | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Record a known system, with noise, and write its system file beside the recording.

    Example: carom simulate ball --noise 0.2 --out ball.csv

    Args:
        system: What moves.
        out: The recording to write: .csv, .parquet or .npz. The system file gets the same name and .toml.
        steps: Steps of a run, by default those of the paper (ball 500, cradle 540, pendulum 200).
        step_size: Seconds between samples, by default those of the paper (0.02, cradle 0.01).
        start: A start state: positions then velocities, separated by commas, such as 10,0; repeat it for more
            runs.
        truth: Impacts at their true instants, the CD-Lagrange scheme, or a physics engine.
        velocity_grid: How models are to read the velocities; "sample" is what the paper does.
        projection: How models, and the scheme, are to remove overlap between bodies.
        noise: Standard deviation of Gaussian noise on positions and velocities.
        gravity: Acceleration of gravity, 9.81 by default.
        restitution: Share of the speed that a bounce keeps, 1 by default.
        damping: Damping of the pendulum, 0 by default.
        balls: Number of balls of the cradle, 2 by default.
        overwrite: Replace the recording and the system file if they exist.
        seed: Seed of the noise.
        json: Print one JSON object instead of sentences.
    """
    require_seed(seed)
    default = _SAMPLING[system]
    steps = default.steps if steps is None else steps
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    step_size = default.step_size if step_size is None else step_size
    if steps * step_size > 1e9:
        raise InputError(f"The run would last {steps * step_size:g} s; choose fewer or smaller steps.")
    truth_system = _build(system, gravity=gravity, restitution=restitution, damping=damping, balls=balls)
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
            starts=[_state(text, truth_system) for text in start] or None,
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


def _build(name: str, **parameters: float | int | None) -> AbstractSystem:
    """A system with the parameters that were given, each checked for that system."""
    system = cast(Any, SYSTEMS[name])()
    for key, value in parameters.items():
        if value is None:
            continue
        if key not in system.__dataclass_fields__:
            raise InputError(f"--{key}: the {name} has no such parameter.")
        if key == "restitution" and not 0 <= value <= 1:
            raise InputError(f"--restitution must lie between 0 and 1, but it is {value}.")
        if key in ("gravity", "damping") and not 0 <= value <= 1e6:
            raise InputError(f"--{key} must lie between 0 and a million, but it is {value}.")
        system = replace(system, **{key: value})
    return system


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
