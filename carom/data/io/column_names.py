"""What the name of a column says: a time, a coordinate of a body, its rate, or something else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Role = Literal["time", "position", "velocity", "touch", "other", "unknown"]
_UNITS = {"m", "mm", "cm", "s", "ms", "sec", "px", "rad", "deg"}
_TIME = {"t", "time", "timestamp", "seconds", "secs", "elapsed", "zeit", "tiempo", "temps"}
_RUN = {"run", "trial", "take", "episode", "experiment", "repetition", "series", "sequence", "trajectory"}
_TOUCH = {"touch", "touching", "contact", "contacts", "hit", "bump", "collision"}
_SPEED = {"v", "vel", "velocity", "velocities", "speed", "omega", "dq", "qdot", "thetadot", "rate"}
_PLACE = {
    "q",
    "pos",
    "position",
    "coord",
    "coordinate",
    "location",
    "height",
    "angle",
    "theta",
    "phi",
    "s",
    "h",
}
_OTHER = {
    *("a", "ax", "ay", "az", "acc", "accel", "acceleration", "force", "fx", "fy", "fz", "torque"),
    *("frame", "index", "sample", "number", "row", "id", "confidence", "likelihood", "residual", "error"),
    *("quality", "temperature", "voltage", "current", "mass", "qw", "quat", "roll", "pitch", "yaw", "fps"),
}
AXES = ("x", "y", "z")
_SPEED_AXES = {f"{mark}{axis}": axis for mark in ("v", "d") for axis in AXES} | {
    f"{axis}dot": axis for axis in AXES
}


@dataclass(frozen=True)
class Meaning:
    """A coordinate by its name: of which body, along which axis."""

    name: str
    body: tuple[str, ...]
    axis: str


def _words(name: str) -> list[str]:
    """The parts of a name, in small letters and without a unit: `Ball2 PosX (mm)` is ball, 2, pos, x."""
    plain = re.sub(r"[(\[].*?[)\]]", " ", name)
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+", plain)
    words = [part.lower() for part in parts]
    return words[:-1] if len(words) > 1 and words[-1] in _UNITS else words


def role_of(name: str) -> Role:
    """What a column is, by its name alone.

    Example:
        >>> [role_of(name) for name in ("t", "x_a", "ballPosX (mm)", "vx", "touch1", "frame", "links")]
        ['time', 'position', 'position', 'velocity', 'touch', 'other', 'unknown']
    """
    words = _words(name)
    if not words:
        return "other"
    certain: tuple[tuple[Role, set[str]], ...] = (("time", _TIME), ("touch", _TOUCH), ("other", _OTHER))
    for role, known in certain:
        # A single letter at the end names a body or an axis: x_a is not an acceleration.
        if any(word in known and (len(word) > 1 or place == 0) for place, word in enumerate(words)):
            return role
    if any(word in _SPEED or word in _SPEED_AXES for word in words):
        return "velocity"
    if any(word in _PLACE or word in AXES for word in words):
        return "position"
    return "unknown"


def meaning_of(name: str) -> Meaning:
    """Which coordinate of which body a column is.

    Example:
        >>> meaning_of("Ball2 PosX (mm)").body, meaning_of("Ball2 PosX (mm)").axis
        (('ball', '2'), 'x')
    """
    axis, body = "", []
    for word in _words(name):
        if word in AXES:
            axis = word
        elif word in _SPEED_AXES:
            axis = _SPEED_AXES[word]
        elif word not in _PLACE and word not in _SPEED:
            body.append(word)
    return Meaning(name, tuple(body), axis)


def run_column(names: Sequence[str]) -> str | None:
    """The first column that seems to tell runs apart."""
    return next((name for name in names if any(word in _RUN for word in _words(name))), None)
