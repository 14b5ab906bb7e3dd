"""What commands print: tables, one JSON object with --json, and progress on standard error."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from carom.digits import finite


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
