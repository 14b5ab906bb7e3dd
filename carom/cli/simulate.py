"""`carom simulate`: recordings of known systems."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import tyro

from carom.cli.console import (
    MAXIMUM_STEPS,
    WriterCommon,
    parse_numbers,
    parse_state,
    print_json,
    require_output,
)
from carom.data import Camera, SystemFile, Truth, film, read_camera, write_recording, write_system_file
from carom.data import simulate as simulate_system
from carom.data.io.recording_file import table_format
from carom.digits import counted
from carom.errors import InputError, require_range
from carom.forces import QuadraticDrag
from carom.mechanics import Projection
from carom.storage.input_file import shown
from carom.systems import (
    SYSTEMS,
    AbstractBoxedBalls,
    AbstractSystem,
    ComposedSystem,
    Laboratory,
    fitting_radius,
)
from carom.types import State, VelocityGrid

_SAMPLING = {"ball": (500, 0.02), "cradle": (540, 0.01), "pendulum": (200, 0.02)}
"""Steps and step size of each system by default; those of ball, cradle and pendulum are the paper's."""
MAXIMUM_BALLS = 64
"""System files list every pair of balls, and are to be read by people too."""
MAXIMUM_RUNS = 100_000
_IMPERFECTIONS = ("contact_time", "restitution_loss", "restitution_scatter")


@dataclass(frozen=True)
class SystemOptions:
    """Parameters of systems by the names of their options; None leaves the system's own.

    Args:
        gravity: Acceleration of gravity, 9.81 by default.
        restitution: Fraction of the speed that a bounce keeps, 1 by default.
        friction: Coulomb's coefficient of billiards, box and stairs, 0 by default.
        damping: Damping of the pendulum, 0 by default.
        drag: Quadratic drag of every body, an inverse length, 0 by default.
        contact_time: How long a contact lasts, in seconds, 0 by default.
        restitution_loss: How much restitution falls per unit of closing speed, 0 by default.
        restitution_scatter: Relative scatter of restitution from hit to hit, 0 by default.
        balls: Number of balls: of the cradle (2 by default), of billiards (5) or in the box (3).
        dimension: Of billiards or box: 1, 2 or 3; 2 by default.
        size: Lengths of the box along its axes, separated by commas; the last one is its height.
        radius: Of every ball of billiards or box; by default 0.1 or what leaves them room.
        masses: Of the balls of billiards or box, separated by commas; all 1 by default.
    """

    gravity: float | None = None
    restitution: float | None = None
    friction: float | None = None
    damping: float | None = None
    drag: float | None = None
    contact_time: float | None = None
    restitution_loss: float | None = None
    restitution_scatter: float | None = None
    balls: int | None = None
    dimension: int | None = None
    size: str | None = None
    radius: float | None = None
    masses: str | None = None


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
    camera: str | None = None,
    parameters: tyro.conf.OmitArgPrefixes[SystemOptions] = SystemOptions(),  # noqa: B008
    runs: int | None = None,
    speed: float | None = None,
    common: WriterCommon,
) -> None:
    """Record a known system, with noise, and write its system file beside the recording.

    Example: carom simulate ball --noise 0.2 --out ball.csv
    Example: carom simulate box --balls 20 --dimension 3 --restitution 0.9 --out box.csv
    Example: carom simulate ball --restitution 0.8 --contact-time 0.01 --camera phone-60fps --out drop.csv

    Args:
        system: What moves.
        out: The recording to write: .csv, .parquet or .npz. The system file gets the same name and .toml.
        steps: Steps of a run, by default those of the paper (cradle 540, pendulum 200) or 500.
        step_size: Seconds between samples, by default those of the paper (ball and pendulum 0.02) or 0.01.
        start: A start state: positions then velocities, separated by commas, such as 10,0; repeat it for more
            runs. Without one, balls of billiards and box start at random.
        truth: Impacts at their true instants, or the CD-Lagrange scheme.
        velocity_grid: How models are to read the velocities; "sample" is what the paper does.
        projection: How models, and the scheme, are to remove overlap between bodies.
        noise: Standard deviation of Gaussian noise on positions and velocities.
        camera: Record by a camera, positions alone: phone-30fps, phone-60fps, lab-120fps, high-speed-1000fps,
            motion-capture, or a TOML file with a table [camera].
        parameters: Parameters of the system.
        runs: Number of random starts of billiards or box, 1 by default.
        speed: Root mean square of the speeds of such starts, 1 by default.
    """
    usual_steps, usual_step_size = _SAMPLING.get(system, (500, 0.01))
    steps = usual_steps if steps is None else steps
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    truth_system = build_system(system, parameters)
    starts = start_states(truth_system, start, runs=runs, speed=speed, seed=common.seed)
    truth_system = as_in_laboratory(truth_system, parameters, seed=common.seed)
    filming = _camera(camera, plain=not noise and step_size is None and truth == "exact")
    require_output(out, overwrite=common.overwrite)
    table_format(out)  # before any work
    system_file = out.with_suffix(".toml")
    require_output(system_file, overwrite=common.overwrite)
    step_size = usual_step_size if step_size is None else step_size
    sampling: dict[str, Any] = {"steps": steps, "step_size": step_size}
    with warnings.catch_warnings(record=True) as caught:  # shown only if the motion is not refused
        if filming is not None:
            recording = film(truth_system, filming, frames=steps + 1, starts=starts, seed=common.seed)
        else:
            sampling |= {"velocity_grid": velocity_grid, "projection": projection}
            recording = simulate_system(
                truth_system, **sampling, starts=starts, truth=truth, noise=noise, seed=common.seed
            )
    for warning in caught:
        print(f"carom: {warning.message}", file=sys.stderr)
    assert recording.scene is not None
    write_recording(recording, out)
    write_system_file(SystemFile(recording.scene), system_file)
    if common.json:
        return print_json({"recording": str(out), "system": str(system_file), "samples": recording.samples})
    written, described = (shown(file, length=1000) for file in (out, system_file))
    count = f"{counted(len(recording.runs), 'run')}, {recording.samples} samples"
    print(f"{written}: {count}. {described}: its system file.")


def _camera(name: str | None, *, plain: bool) -> Camera | None:
    """A preset or that of a file; options that it replaces must be left out."""
    if name is not None and not plain:
        problem = "it states noise and frame rate and films the exact motion"
        raise InputError(f"--camera: {problem}; leave out --noise, --step-size and --truth.")
    return None if name is None else read_camera(name)


def build_system(name: str, options: SystemOptions) -> AbstractSystem:
    """A system with the given parameters, each checked for that system."""
    system = cast(Any, SYSTEMS[name])()
    given = {key: value for key, value in asdict(options).items() if value is not None}
    for key, value in given.items():
        if isinstance(value, float):
            _require_moderate(key, value)
    if options.balls is not None:
        require_range("--balls", options.balls, 1, MAXIMUM_BALLS)
    elsewhere = {"drag", *_IMPERFECTIONS}
    if isinstance(system, AbstractBoxedBalls):
        system = replace(system, **_box(system, options))
        elsewhere |= {"balls", "dimension", "size", "radius", "masses"}
    for key in given.keys() - elsewhere - system.__dataclass_fields__.keys():
        raise InputError(f"--{key}: the {name} has no such parameter.")
    return replace(system, **{key: value for key, value in given.items() if key not in elsewhere})


def _require_moderate(name: str, value: float) -> None:
    """Refuse a parameter that is negative or absurdly large; a restitution above 1."""
    most, words = (1, "1") if name == "restitution" else (1e6, "a million")
    if not 0 <= value <= most:
        raise InputError(f"--{name.replace('_', '-')} must lie between 0 and {words}, but it is {value}.")


def as_in_laboratory(system: AbstractSystem, options: SystemOptions, *, seed: int) -> AbstractSystem:
    """The same system with drag, solved by small steps, or with contacts as real ones are."""
    drag, *imperfections = (getattr(options, name) or 0.0 for name in ("drag", *_IMPERFECTIONS))
    if any(imperfections):
        time, loss, scatter = imperfections
        return Laboratory(  # pyright: ignore[reportCallIssue]
            system, drag, contact_time=time, restitution_loss=loss, scatter=scatter, seed=seed
        )
    if options.drag is None:
        return system
    force = QuadraticDrag(np.full(system.geometry.bodies, drag))
    return ComposedSystem(stated=system.scene(), acting=(*system.forces, force), begin=system.start)  # pyright: ignore


def start_states(
    system: AbstractSystem, start: Sequence[str], *, runs: int | None, speed: float | None, seed: int
) -> list[State] | None:
    """The start states that were typed, else random ones of balls in a box; None for the system's own."""
    if start or not isinstance(system, AbstractBoxedBalls):
        if runs is not None or speed is not None:
            problem = "--runs and --speed are for random starts of billiards and box, without --start."
            raise InputError(problem)
        return [_start_state(text, system) for text in start] or None
    runs, speed = 1 if runs is None else runs, 1.0 if speed is None else speed
    require_range("--runs", runs, 1, MAXIMUM_RUNS)
    _require_moderate("speed", speed)
    return [system.random_start(seed=seed + run, speed=speed) for run in range(runs)]


def _start_state(text: str, system: AbstractSystem) -> State:
    state = parse_state(text, system.scene(), option="--start")
    if (np.asarray(system.geometry.gap(state.position)) < 0).any():
        raise InputError(f"--start {text}: bodies overlap there, or lie inside a wall; move them apart.")
    return state


def _box(default: AbstractBoxedBalls, options: SystemOptions) -> dict[str, tuple[float, ...]]:
    """Size, radii and masses of equal balls in a box, or of balls with different masses."""
    masses = ()
    if options.masses is not None:
        masses = parse_numbers(options.masses, option="--masses", count=options.balls)
    count = len(masses) or options.balls or len(default.radii)
    size = default.size
    if options.dimension is not None:
        require_range("--dimension", options.dimension, 1, 3)
        *_, width, height = (default.size[0], *default.size)
        size = (width,) * (options.dimension - 1) + (height,)
    if options.size is not None:
        size = parse_numbers(options.size, option="--size", count=options.dimension)
        require_range("--dimension", len(size), 1, 3)
        if not all(0 < extent < 1e6 for extent in size):
            raise InputError(f"--size: every number must lie between 0 and a million, but it is {size}.")
    radius = fitting_radius(count, size, most=max(default.radii))
    if options.radius is not None:
        radius = options.radius
        if not 0 <= radius < 0.5 * min(size):
            raise InputError(f"--radius {radius:g}: a ball must fit into the box of {size}.")
    return {"size": size, "radii": (radius,) * count, "ball_masses": masses}
