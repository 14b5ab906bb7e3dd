"""Short recordings, and an executor that makes fits in this process."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from carom.cli import main
from carom.execution.executor import AbstractExecutor, Function
from carom.sweeps.run import RESULTS, TABLE, SweepResult, run_sweep
from carom.sweeps.sweep_file import read_sweep_file

SWEEP = """
[sweep]
recording = ["ball.csv", "low.csv"]
seeds = 2

[fit]
recipe = "paper"
model = "vin"
hidden = 4
epochs = 2
"""
"""Four fits by one compiled program."""


class Here(AbstractExecutor):
    """Runs tasks in this process, possibly backwards, and is interrupted after some."""

    def __init__(self, *, backwards: bool = False, stop_after: int | None = None):
        self.backwards, self.stop_after = backwards, stop_after
        self.made: list[str] = []

    def run(
        self, functions: Sequence[Function], report: Callable[[int, float], None]
    ) -> Iterator[tuple[int, Any]]:
        order = range(len(functions))
        for index in reversed(order) if self.backwards else order:
            if len(self.made) == self.stop_after:
                raise KeyboardInterrupt
            row = functions[index](lambda fraction: None)
            self.made.append(row["run"])
            yield index, row

    def close(self) -> None:
        pass


def run(file: Path, out: Path, executor: AbstractExecutor | None = None, **options: Any) -> SweepResult:
    """A sweep as the command makes it."""
    with executor or Here() as used:
        return run_sweep(read_sweep_file(file), out, used, **options)


def tables(out: Path) -> tuple[bytes, bytes]:
    """What is the same whoever makes the fits."""
    return (out / TABLE).read_bytes(), (out / RESULTS).read_bytes()


@pytest.fixture(scope="session")
def recordings(tmp_path_factory) -> Path:
    """A directory with two recordings and their system files."""
    directory = tmp_path_factory.mktemp("recordings")
    for name, start in (("ball", "1,0"), ("low", "0.8,0")):
        options = ["--steps", "40", "--noise", "0.02", "--start", start]
        main(["simulate", "ball", *options, "--out", str(directory / f"{name}.csv")])
    return directory


@pytest.fixture
def file(recordings, tmp_path) -> Path:
    """A sweep file of four fits beside the recordings that it names."""
    shutil.copytree(recordings, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path
