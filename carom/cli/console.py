"""What commands have in common: options and checks of what users type, and what is printed."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import tyro
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from carom.digits import finite
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


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    # What goes to a file or another program is not wrapped at a terminal's width.
    console = Console(width=None if sys.stdout.isatty() else 200)
    with console.capture() as rendered:  # rich would end the process itself on a closed pipe
        console.print(table)
    print(rendered.get(), end="")


def print_json(values: Mapping[str, Any]) -> None:
    """One object on one line; numbers that are not finite, which JSON does not have, are null."""
    print(json.dumps(finite(values), allow_nan=False))


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A callback for the share of work done: a bar on a terminal, a line per fifth elsewhere."""
    # A bar that redraws itself fills log files with control characters.
    if not sys.stderr.isatty():
        yield _plain_progress(label)
        return
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _plain_progress(label: str) -> Callable[[float], None]:
    started = time.monotonic()
    printed = -1

    def update(share: float) -> None:
        nonlocal printed
        fifth = int(5 * share)
        if fifth > printed:
            printed = fifth
            print(f"{label}: {100 * share:.0f} % after {time.monotonic() - started:.0f} s", file=sys.stderr)

    return update


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
