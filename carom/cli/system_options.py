"""Systems and start states from what users type."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np

from carom.cli.arguments import parse_numbers, parse_state
from carom.errors import InputError, require_range
from carom.systems import SYSTEMS, AbstractBoxedBalls, AbstractSystem, fitting_radius
from carom.types import State

MAXIMUM_BALLS = 64
"""System files list every pair of balls, and are to be read by people too."""
MAXIMUM_RUNS = 100_000
_BOX_OPTIONS = ("balls", "dimension", "size", "radius", "masses")


@dataclass(frozen=True)
class SystemOptions:
    """Parameters of systems by the names of their options; None leaves the system's own.

    Args:
        gravity: Acceleration of gravity, 9.81 by default.
        restitution: Fraction of the speed that a bounce keeps, 1 by default.
        friction: Coulomb's coefficient of billiards, box and stairs, 0 by default.
        damping: Damping of the pendulum, 0 by default.
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
    balls: int | None = None
    dimension: int | None = None
    size: str | None = None
    radius: float | None = None
    masses: str | None = None


def build_system(name: str, options: SystemOptions) -> AbstractSystem:
    """A system with the given parameters, each checked for that system."""
    system = cast(Any, SYSTEMS[name])()
    given = {key: value for key, value in asdict(options).items() if value is not None}
    if options.balls is not None:
        require_range("--balls", options.balls, 1, MAXIMUM_BALLS)
    if isinstance(system, AbstractBoxedBalls):
        system = replace(system, **_box(system, options))
        given = {key: given[key] for key in given if key not in _BOX_OPTIONS}
    for key, value in given.items():
        if key not in system.__dataclass_fields__:
            raise InputError(f"--{key}: the {name} has no such parameter.")
        if key == "restitution" and not 0 <= value <= 1:
            raise InputError(f"--restitution must lie between 0 and 1, but it is {value}.")
        if key in ("gravity", "damping", "friction", "radius") and not 0 <= value <= 1e6:
            raise InputError(f"--{key} must lie between 0 and a million, but it is {value}.")
        system = replace(system, **{key: value})
    return system


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
    if not 0 <= speed <= 1e6:
        raise InputError(f"--speed must lie between 0 and a million, but it is {speed}.")
    return [system.random_start(seed=seed + run, speed=speed) for run in range(runs)]


def _start_state(text: str, system: AbstractSystem) -> State:
    geometry = system.geometry
    state = parse_state(text, bodies=geometry.bodies, dimension=geometry.dimension, option="--start")
    if (np.asarray(geometry.gap(state.position)) < 0).any():
        raise InputError(f"--start {text}: bodies overlap there, or lie inside a wall; move them apart.")
    return state


def _box(default: AbstractBoxedBalls, options: SystemOptions) -> dict[str, tuple[float, ...]]:
    """Size, radii and masses of equal balls in a box, or of balls with different masses."""
    masses = () if options.masses is None else parse_numbers(options.masses, option="--masses")
    if masses and options.balls not in (None, len(masses)):
        raise InputError(f"--masses: {len(masses)} masses were given for {options.balls} balls.")
    count = len(masses) or options.balls or len(default.radii)
    size = default.size
    if options.dimension is not None:
        require_range("--dimension", options.dimension, 1, 3)
        *_, width, height = (default.size[0], *default.size)
        size = (width,) * (options.dimension - 1) + (height,)
    if options.size is not None:
        size = parse_numbers(options.size, option="--size")
        if len(size) not in ((1, 2, 3) if options.dimension is None else (options.dimension,)):
            wanted = "1 to 3" if options.dimension is None else options.dimension
            raise InputError(f"--size: {len(size)} numbers were given, but {wanted} are needed.")
        if not all(0 < extent < 1e6 for extent in size):
            raise InputError(f"--size: every number must lie between 0 and a million, but it is {size}.")
    radius = fitting_radius(count, size, most=max(default.radii))
    if options.radius is not None:
        radius = options.radius
        if not 0 <= radius < 0.5 * min(size):
            raise InputError(f"--radius {radius:g}: a ball must fit into the box of {size}.")
    return {"size": size, "radii": (radius,) * count, "ball_masses": masses}
