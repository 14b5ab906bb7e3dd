"""`carom simulate`: recordings of known systems."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import jax.numpy as jnp
import tyro

from carom.cli.output import parse_numbers, print_json
from carom.data import (
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
    start: tuple[str, ...] = (),
    truth: Truth = "exact",
    velocity_grid: VelocityGrid = "half",
    projection: Projection = "none",
    noise: float = 0.0,
    gravity: float | None = None,
    restitution: float | None = None,
    damping: float | None = None,
    balls: int | None = None,
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
        start: Start states, one run each: positions then velocities, separated by commas, such as 10,0.
        truth: Impacts at their true instants, the CD-Lagrange scheme, or a physics engine.
        velocity_grid: How models are to read the velocities; "sample" is what the paper does.
        projection: How models, and the scheme, are to remove overlap between bodies.
        noise: Standard deviation of Gaussian noise on positions and velocities.
        gravity: Acceleration of gravity, 9.81 by default.
        restitution: Share of the speed that a bounce keeps, 1 by default.
        damping: Damping of the pendulum, 0 by default.
        balls: Number of balls of the cradle, 2 by default.
        seed: Seed of the noise.
        json: Print one JSON object instead of sentences.
    """
    truth_system = _build(system, gravity=gravity, restitution=restitution, damping=damping, balls=balls)
    default = _SAMPLING[system]
    if out.suffix == ".toml":
        raise InputError(
            f"{out}: the recording needs another suffix; .toml is for the system file beside it."
        )
    recording = simulate_system(
        truth_system,
        steps=default.steps if steps is None else steps,
        step_size=default.step_size if step_size is None else step_size,
        starts=[_state(text, truth_system) for text in start] or None,
        truth=truth,
        velocity_grid=velocity_grid,
        projection=projection,
        noise=noise,
        seed=seed,
    )
    assert recording.scene is not None
    system_file = out.with_suffix(".toml")
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
        if key in ("gravity", "damping") and not 0 <= value < float("inf"):
            raise InputError(f"--{key} must be a number ≥ 0, but it is {value}.")
        system = replace(system, **{key: value})
    return system


def _state(text: str, system: AbstractSystem) -> State:
    shape = (system.geometry.bodies, system.geometry.dimension)
    size = shape[0] * shape[1]
    numbers = parse_numbers(text, count=2 * size, meaning="--start")
    return State(jnp.array(numbers[:size]).reshape(shape), jnp.array(numbers[size:]).reshape(shape))
