"""Checks of what users type, before any work begins."""

import re
from contextlib import suppress
from pathlib import Path

import jax.numpy as jnp

from carom.errors import InputError
from carom.storage.input_file import complaint, shown
from carom.types import State

MAXIMUM_STEPS = 10_000_000
_MAXIMUM_NUMBER = 1e38
"""States are in single precision, whose numbers end at 3.4e38."""


def as_options(message: str) -> str:
    """A message that names fields in backquotes, with the options of the command line in their place.

    Example:
        >>> as_options("`learning_rate` must be positive, but it is 0.")
        '--learning-rate must be positive, but it is 0.'
    """
    return re.sub(r"`([a-z0-9_.]+)`", lambda field: "--" + field[1].replace("_", "-"), message)


def require_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a directory, and an existing file unless it is to be replaced."""
    with suppress(OSError):  # an impossible name is reported by whatever writes the file
        if path.is_dir():
            raise complaint(path, "this is a folder; name a file in it")
        if path.is_file() and not overwrite:
            raise complaint(path, "this file exists; choose another name or pass --overwrite")


def parse_numbers(text: str, *, option: str, count: int | None = None) -> tuple[float, ...]:
    """Numbers separated by commas; `count` is how many there should be, where that is known."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        wanted = "them" if count is None else str(count)
        problem = f"“{shown(text)}” is not a list of numbers; separate {wanted} by commas"
        raise InputError(f"{option}: {problem}.") from None


def parse_state(text: str, *, bodies: int, dimension: int, option: str) -> State:
    """Positions then velocities, separated by commas."""
    # Positions then velocities, as everywhere.
    count = 2 * bodies * dimension
    numbers = list(parse_numbers(text, option=option, count=count))
    if len(numbers) != count:
        raise InputError(f"{option}: {len(numbers)} numbers were given, but {count} are needed.")
    state = state_from_numbers(numbers, bodies=bodies, dimension=dimension)
    if state is None:
        raise InputError(f"{option}: every number must be finite and smaller than {_MAXIMUM_NUMBER:g}.")
    return state


def state_from_numbers(numbers: object, *, bodies: int, dimension: int) -> State | None:
    """A state from positions then velocities; None unless that is a list of as many finite numbers."""
    size, shape = bodies * dimension, (bodies, dimension)
    # Also for starts that are stored in model files, where anything may stand.
    if not isinstance(numbers, list) or len(numbers) != 2 * size or not all(map(_is_number, numbers)):
        return None
    values = jnp.array([float(number) for number in numbers])
    return State(values[:size].reshape(shape), values[size:].reshape(shape))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAXIMUM_NUMBER
