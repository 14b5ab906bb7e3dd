"""`kill -9` at any moment, the same command again: the same bytes, and at most one round made twice."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carom.cli import main
from carom.learning.run_folder import MODEL, TIMING
from tests.data.test_bad_files import contents

ROOT = Path(__file__).parents[2]
PAPER = ["--recipe", "paper", "--ensemble", "2", "--epochs", "400", "--hidden", "16"]
COMMANDS = {
    "carom": ["--hidden", "8"],
    "both schemes": ["--hidden", "4", "--learn", "restitution"],
    "paper, ensemble": PAPER,
}
"""Options of `carom fit`. The second is given a recording of the CD-Lagrange step, which both schemes try."""


class Fit:
    """A fit by the command line that is killed and started again."""

    def __init__(self, name: str, folder: Path):
        self.folder, self.options = folder, COMMANDS[name]
        self.recording = folder / "ball.csv"
        scheme = ["--truth", "scheme", "--velocity-grid", "sample"] if name == "both schemes" else []
        simulate = ["simulate", "ball", "--steps", "60", "--noise", "0.02", "--start", "1,0", *scheme]
        main([*simulate, "--out", str(self.recording)])
        self.processes = 0

    def start(self, out: Path) -> tuple[subprocess.Popen, Path]:
        """A process, and the file in which it notes the rounds that it begins."""
        self.processes += 1
        log = self.folder / f"{self.processes}.log"
        log.touch()
        command = [sys.executable, "-m", "tests.cli.counted_rounds", str(log), "fit", str(self.recording)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [*command, "--out", str(out), *self.options],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return process, log

    def whole(self, out: Path) -> tuple[dict, list[str], float]:
        """What an uninterrupted fit leaves, the rounds it makes, and its seconds."""
        began = time.monotonic()
        process, log = self.start(out)
        _, error = process.communicate()
        assert process.returncode == 0, error
        return result(out), log.read_text().splitlines(), time.monotonic() - began


def result(out: Path) -> dict:
    """All that must not depend on how often a fit was killed."""
    kept = contents(out)
    assert MODEL in kept
    return {name: value for name, value in kept.items() if name != TIMING}


def wait_for_lines(process: subprocess.Popen, log: Path, lines: int) -> None:
    """Until a process has begun so many rounds, or ended."""
    while process.poll() is None and len(log.read_text().splitlines()) < lines:
        time.sleep(0.002)


def kill_often(name: str, folder: Path, kills: int, seed: int) -> tuple[int, int, int]:
    """Kill a fit at random moments until that was done `kills` times, and count the rounds made twice.

    Half of the moments are anywhere in the life of a process, imports included; the other half are some
    rounds after its first, so that every run also gets on. Returns kills while rounds were made, rounds made
    twice, and fits finished.
    """
    generator = random.Random(seed)
    fit = Fit(name, folder)
    expected, rounds, seconds = fit.whole(folder / "whole")
    out, done, killed, hit, twice, finished = folder / "run0", -1, 0, 0, 0, 0
    under_way = True
    while killed < kills or under_way:
        under_way = True
        process, log = fit.start(out)
        if killed < kills:
            if generator.random() < 0.5:
                time.sleep(generator.uniform(0, seconds))
            else:
                wait_for_lines(process, log, generator.randint(1, 8))
                time.sleep(generator.uniform(0, 0.1))
            process.kill()  # nothing happens where it has ended
        _, error = process.communicate()
        made = [rounds.index(line) for line in log.read_text().splitlines()]
        assert made == list(range(made[0], made[0] + len(made))) if made else True
        if made:
            # The round that was under way is made again; those before it are not.
            assert done <= made[0] <= done + 1
            twice += made[0] == done
            hit += process.returncode == -9
            done = made[-1]
        if process.returncode == -9:
            killed += 1
            continue
        assert process.returncode == 0 or (MODEL in contents(out) and "--overwrite" in error), error
        assert result(out) == expected
        finished += 1
        under_way = False
        out, done = folder / f"run{finished}", -1
    return hit, twice, finished


@pytest.mark.parametrize(("name", "kills"), [("carom", 3), ("paper, ensemble", 3)])
@pytest.mark.timeout(600)
def test_a_killed_fit_continues(name, kills, tmp_path):
    _, twice, finished = kill_often(name, tmp_path, kills, seed=1)
    assert finished >= 1
    assert twice <= kills


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "kills"), [("carom", 100), ("both schemes", 50), ("paper, ensemble", 50)])
@pytest.mark.timeout(7200)
def test_two_hundred_kills(name, kills, tmp_path, record_property):
    hit, twice, finished = kill_often(name, tmp_path, kills, seed=2)
    for key, value in {"kills": kills, "while fitting": hit, "made twice": twice, "fits": finished}.items():
        record_property(key, value)
    print(f"{name}: {kills} kills, {hit} of them while fitting, {twice} rounds made twice, {finished} fits")
    assert hit >= kills // 4
    assert twice <= hit
