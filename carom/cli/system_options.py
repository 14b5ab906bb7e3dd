"""Systems from what users type."""

from dataclasses import replace
from typing import Any, NamedTuple, cast

from carom.cli.arguments import parse_numbers
from carom.errors import InputError, require_range
from carom.systems import SYSTEMS, AbstractBoxedBalls, AbstractSystem, fitting_radius

MAXIMUM_BALLS = 64
"""System files list every pair of balls, and are to be read by people too."""


class Options(NamedTuple):
    """Parameters of systems by the names of their options; None where the system's own is to stay."""

    gravity: float | None
    restitution: float | None
    friction: float | None
    damping: float | None
    balls: int | None
    dimension: int | None
    size: str | None
    radius: float | None
    masses: str | None


def build_system(name: str, options: Options) -> AbstractSystem:
    """A system with the parameters that were given, each checked for that system."""
    system = cast(Any, SYSTEMS[name])()
    given = {key: value for key, value in options._asdict().items() if value is not None}
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


_BOX_OPTIONS = ("balls", "dimension", "size", "radius", "masses")


def _box(default: AbstractBoxedBalls, options: Options) -> dict[str, tuple[float, ...]]:
    """Size, radii and masses of equal balls in a box, or of balls with masses of their own."""
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
