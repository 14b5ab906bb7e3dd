"""`kill -9` at any moment, the same command again: the same bytes, and at most one round made twice."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from carom.cli import main
from carom.fits.fit_directory import MANIFEST

ROOT = Path(__file__).parents[2]
FITS = {
    "carom": ["--hidden", "8"],
    "no potential": [
        *("--potential", "none", "--learn", "gravity", "restitution"),
        *("--stepper", "constraint_exact", "--horizons", "100"),
    ],
    "both schemes": ["--hidden", "4", "--learn", "restitution"],
    "paper, ensemble": ["--recipe", "paper", "--ensemble", "2", "--epochs", "100", "--hidden", "16"],
}
"""Options of `carom fit`. The third is given a recording of the CD-Lagrange step, which both schemes try."""
REPRODUCTIONS = {
    "reproduce": ["damped", "--quick"],
    "reproduce, carom": ["recipe", "pendulum.exact.start"],
}
"""Names and options of `carom reproduce`."""


class Command:
    """A command that is killed and started again."""

    def __init__(self, name: str, folder: Path):
        self.folder = folder
        self.processes = 0
        if name in REPRODUCTIONS:
            self.arguments = ["reproduce", *REPRODUCTIONS[name], "--runs", "1", "--workers", "1"]
            return
        recording = folder / "ball.csv"
        scheme = ["--truth", "scheme", "--velocity-grid", "sample"] if name == "both schemes" else []
        simulate = ["simulate", "ball", "--steps", "50", "--noise", "0.02", "--start", "1,0", *scheme]
        main([*simulate, "--out", str(recording)])
        self.arguments = ["fit", str(recording), *FITS[name]]

    def start(self, out: Path) -> tuple[subprocess.Popen, Path]:
        """A process, and the file in which it notes the rounds that it begins."""
        self.processes += 1
        log = self.folder / f"{self.processes}.log"
        log.touch()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.counted_rounds", str(log), *self.arguments, "--out", str(out)],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        return process, log

    def whole(self, out: Path) -> tuple[dict, list[str], float]:
        """What an uninterrupted process leaves, the rounds it makes, and its seconds."""
        began = time.monotonic()
        process, log = self.start(out)
        _, error = process.communicate()
        assert process.returncode == 0, error
        return result(out), log.read_text().splitlines(), time.monotonic() - began


def result(out: Path) -> dict:
    """All that must not depend on how often a command was killed: bytes, and numbers but for times."""
    files = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    found: dict = {name: path.read_bytes() for name, path in files.items() if name != MANIFEST}
    if MANIFEST in files:
        return found
    for name, path in files.items():
        if path.suffix == ".json":
            found[name] = timeless(json.loads(path.read_text()))
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                found[name] = {key: (array.shape, array.tobytes()) for key, array in arrays.items()}
        else:  # pictures and pages hold the day
            found[name] = None
    assert found
    return found


def timeless(value):
    """JSON without times, and without hashes of what has times in it."""
    if isinstance(value, dict):
        times = {"seconds", "sha256", "value" if value.get("metric") == "seconds" else "sha256"}
        return {key: timeless(part) for key, part in value.items() if key not in times}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def wait_for_lines(process: subprocess.Popen, log: Path, lines: int) -> None:
    """Until a process has begun so many rounds, or ended."""
    while process.poll() is None and len(log.read_text().splitlines()) < lines:
        time.sleep(0.002)


def kill_often(name: str, folder: Path, kills: int, seed: int) -> tuple[int, int, int]:
    """Kill a command at random moments until that was done `kills` times, and count the rounds made twice.

    Half of the moments are anywhere in the life of a process, imports included; the other half are some
    rounds after its first, so that every run also gets on. Returns kills while rounds were made, rounds made
    twice, and commands finished.
    """
    generator = random.Random(seed)
    command = Command(name, folder)
    expected, rounds, seconds = command.whole(folder / "whole")
    out, done, killed, hit, twice, finished = folder / "run0", -1, 0, 0, 0, 0
    under_way = True
    while killed < kills or under_way:
        under_way = True
        process, log = command.start(out)
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
        assert process.returncode == 0 or "--overwrite" in error, error
        assert result(out) == expected
        finished += 1
        under_way = False
        out, done = folder / f"run{finished}", -1
    return hit, twice, finished


@pytest.mark.parametrize(("name", "kills"), [("no potential", 1)])
@pytest.mark.timeout(600)
def test_a_killed_fit_continues(name, kills, tmp_path):
    _, twice, finished = kill_often(name, tmp_path, kills, seed=1)
    assert finished >= 1
    assert twice <= kills


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("carom", 100),
        ("both schemes", 50),
        ("paper, ensemble", 50),
        ("reproduce", 15),
        ("reproduce, carom", 15),
    ],
)
@pytest.mark.timeout(7200)
def test_two_hundred_kills(name, kills, tmp_path, record_property):
    hit, twice, finished = kill_often(name, tmp_path, kills, seed=2)
    for key, value in {"kills": kills, "while fitting": hit, "made twice": twice, "fits": finished}.items():
        record_property(key, value)
    print(f"{name}: {kills} kills, {hit} of them while fitting, {twice} rounds made twice, {finished} fits")
    assert hit >= kills // 4
    assert twice <= hit
