"""Checks of what users type, before any work begins."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax.numpy as jnp
import tyro

from carom.errors import InputError, require_seed
from carom.mechanics import Scene
from carom.storage.input_file import complaint, shown
from carom.types import State

MAXIMUM_STEPS = 10_000_000


@dataclass(frozen=True)
class CommonOptions:
    """What commands have in common.

    Args:
        seed: Seed of whatever is random.
        json: Print one JSON object instead of sentences and tables.
    """

    seed: int = 0
    json: bool = False

    def __post_init__(self):
        require_seed(self.seed)


@dataclass(frozen=True)
class CommonOptionsOfWriters(CommonOptions):
    """What commands that write files have in common.

    Args:
        overwrite: Replace files that exist.
    """

    overwrite: bool = False


Common = Annotated[CommonOptions, tyro.conf.arg(name="")]
WriterCommon = Annotated[CommonOptionsOfWriters, tyro.conf.arg(name="")]
MAXIMUM_NUMBER = 1e38
"""States are in single precision, whose numbers end at 3.4e38."""


def require_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a directory, and an existing file unless it is to be replaced."""
    with suppress(OSError):  # an impossible name is reported by whatever writes the file
        if path.is_dir():
            raise complaint(path, "this is a folder; name a file in it")
        if path.is_file() and not overwrite:
            raise complaint(path, "this file exists; choose another name or pass --overwrite")


def parse_numbers(text: str, *, option: str, count: int | None = None) -> tuple[float, ...]:
    """Numbers separated by commas; `count` is how many there must be, where that is known."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{option}: “{shown(text)}” is not a list of numbers; separate them by commas."
        ) from None
    if count is not None and len(numbers) != count:
        raise InputError(f"{option}: {len(numbers)} numbers were given, but {count} are needed.")
    if not all(abs(number) < MAXIMUM_NUMBER for number in numbers):
        raise InputError(f"{option}: every number must be finite and smaller than {MAXIMUM_NUMBER:g}.")
    return numbers


def parse_state(text: str, scene: Scene, *, option: str) -> State:
    """Positions then velocities of all bodies, separated by commas."""
    return state_of(parse_numbers(text, option=option, count=2 * scene.coordinates), scene)


def state_of(numbers: Sequence[float], scene: Scene) -> State:
    """A state from positions then velocities."""
    return State(*jnp.array(numbers).reshape(2, scene.bodies, scene.dimension))
