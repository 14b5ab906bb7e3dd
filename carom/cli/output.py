"""What commands print: tables for people, one JSON object for machines, progress on standard error."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from carom.errors import InputError


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    Console().print(table)


def print_json(values: Mapping[str, Any]) -> None:
    """One object on one line."""
    print(json.dumps(values))


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A callback that takes the share of work done: a bar on a terminal, a line per fifth elsewhere."""
    if not sys.stderr.isatty():
        yield _plain_progress(label)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def parse_numbers(text: str, *, count: int, meaning: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{meaning}: “{text}” is not a list of numbers; separate {count} by commas."
        ) from None
    if len(numbers) != count:
        raise InputError(f"{meaning}: {len(numbers)} numbers were given, but {count} are needed.")
    if not all(abs(number) < float("inf") for number in numbers):
        raise InputError(f"{meaning}: every number must be finite.")
    return numbers


def _plain_progress(label: str) -> Callable[[float], None]:
    started = time.monotonic()
    told = 0

    def tell(share: float) -> None:
        nonlocal told
        fifth = int(5 * share)
        if fifth > told:
            told = fifth
            print(f"{label}: {100 * share:.0f} % after {time.monotonic() - started:.0f} s", file=sys.stderr)

    return tell


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
