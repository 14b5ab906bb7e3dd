"""A short recording, and a crew that makes fits in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from carom.cli import main
from carom.storage.fingerprint import source_hash
from carom.sweeps.cells import Cell
from carom.sweeps.crew import AbstractCrew
from carom.sweeps.one_fit import make_row
from carom.sweeps.run import Outcome, swept
from carom.sweeps.sweep_file import read_sweep_file
from carom.sweeps.table import write_tables

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


class Here(AbstractCrew):
    """Makes fits in this process, in an order of its own, until it is told to stop."""

    def __init__(self, *, backwards: bool = False, stop_after: int | None = None):
        self.backwards, self.stop_after = backwards, stop_after
        self.made: list[str] = []

    def make(self, cells: Sequence[Cell], out: Path) -> Iterator[str]:
        for cell in reversed(cells) if self.backwards else cells:
            if len(self.made) == self.stop_after:
                raise KeyboardInterrupt
            name = make_row(cell, out, source_hash())
            self.made.append(name)
            yield name


def run(file: Path, out: Path, crew: AbstractCrew, *, again: bool = False) -> Outcome:
    """A sweep as the command makes it, by some crew."""

    @contextmanager
    def hire():
        yield crew

    with swept(read_sweep_file(file), out, hire, again=again, tell=lambda done, total: None) as outcome:
        write_tables(outcome, out)
    return outcome


@pytest.fixture
def file(tmp_path, capsys) -> Path:
    """A sweep file of four fits beside the recordings that it names."""
    for name, start in (("ball", "1,0"), ("low", "0.8,0")):
        options = ["--steps", "40", "--noise", "0.02", "--start", start]
        main(["simulate", "ball", *options, "--out", str(tmp_path / f"{name}.csv")])
    capsys.readouterr()
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path
