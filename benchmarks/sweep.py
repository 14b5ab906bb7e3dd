"""A sweep whose workers are killed: `python -m benchmarks.sweep`.

The same fits twice: one by one, and by several processes, some of them killed at random moments.
Fit directories are watched from outside. Nothing is lost if every fit has its row, nothing is made twice if
every model was put in place once, and the tables are compared byte for byte.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

import carom
from carom.cli import main as command_line
from carom.fits.fit_directory import MODEL, UNFINISHED
from carom.sweeps.run import RESULTS, ROWS, TABLE

FITS, WORKERS, KILLS = 200, 4, 10
HIDDEN, RATES = (4, 6), (0.01, 0.02)
"""What varies besides the seed: four compiled programs, and as many seeds as make up the number of fits."""
LOOK = 0.05
"""Seconds between two looks at the fit directories; a fit takes several times as long."""


def sweep_text(fits: int, epochs: int) -> str:
    """The sweep file."""
    seeds = fits // (len(HIDDEN) * len(RATES))
    return f"""
[sweep]
recording = "ball.csv"
seeds = {seeds}

[fit]
recipe = "paper"
epochs = {epochs}

[grid]
hidden = {list(HIDDEN)}
learning_rate = {list(RATES)}
"""


def start(file: Path, out: Path, *options: str) -> subprocess.Popen:
    """A sweep in a process of its own, with the programs that earlier ones have compiled."""
    command = [sys.executable, "-m", "carom", "sweep", str(file), "--out", str(out), "--json", *options]
    environment = os.environ | {"CAROM_CACHE": str(file.parent / "cache")}
    with out.with_suffix(".log").open("w") as log:  # a pipe that nobody reads would fill
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)


def finish(process: subprocess.Popen) -> dict[str, Any]:
    """What a sweep has printed; that it has failed is an error here."""
    printed, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args} has ended with {process.returncode}")
    return json.loads(printed)


class Watch:
    """Sees which models are put in place, and how often."""

    def __init__(self, out: Path):
        self._out = out
        self._models: dict[str, set[tuple[int, int]]] = {}

    def look(self) -> None:
        """Note every model that is there."""
        for path in self._out.glob(f"*/{MODEL}"):
            status = path.stat()
            self._models.setdefault(path.parent.name, set()).add((status.st_ino, status.st_mtime_ns))

    @property
    def made(self) -> int:
        """Fits with a model."""
        return len(self._models)

    @property
    def twice(self) -> int:
        """Fits whose model was replaced by another one."""
        return sum(len(seen) > 1 for seen in self._models.values())


def workers_of(process: subprocess.Popen) -> list[psutil.Process]:
    """The worker processes of a sweep on this machine."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if any("spawn_main" in word for word in child.cmdline()):
                found.append(child)
        except psutil.Error:  # it has just ended
            continue
    return found


def killed_sweep(file: Path, out: Path, *, workers: int, fits: int, kills: int, seed: int) -> dict[str, Any]:
    """A sweep by local processes with a worker killed after every so many fits, at a random moment."""
    generator = random.Random(seed)
    process, watch = start(file, out, "--workers", str(workers)), Watch(out)
    # The number of fits that are there when each worker is killed; all before the last fits begin.
    moments = sorted(generator.sample(range(1, max(kills + 1, fits - 2 * workers)), kills))
    done, under_way = 0, 0
    while process.poll() is None:
        time.sleep(LOOK)
        watch.look()
        if done < kills and watch.made >= moments[done]:
            time.sleep(generator.uniform(0, 0.5))
            alive = workers_of(process)
            if not alive:
                continue
            generator.choice(alive).kill()
            done += 1
            under_way += len(list(out.glob(f"*/{UNFINISHED}")))
    printed = finish(process)
    watch.look()
    return {
        "fits": printed["fits"],
        "without_score": printed["without_score"],
        "workers_killed": done,
        "fits_under_way_at_kills": under_way,
        "rows": len(list((out / ROWS).glob("*.json"))),
        "models": watch.made,
        "made_twice": watch.twice,
        "left_unfinished": len(list(out.glob(f"*/{UNFINISHED}"))),
    }


def measure(
    folder: Path, *, fits: int, workers: int, kills: int, epochs: int, seed: int = 0
) -> dict[str, Any]:
    """Both sweeps, and whether their tables are the same."""
    file, recording = folder / "sweep.toml", folder / "ball.csv"
    simulate = ["simulate", "ball", "--steps", "60", "--noise", "0.02", "--start", "1,0"]
    command_line([*simulate, "--out", str(recording)])
    file.write_text(sweep_text(len(HIDDEN) * len(RATES), epochs))
    finish(start(file, folder / "compiled", "--serial"))
    file.write_text(sweep_text(fits, epochs))
    began = time.perf_counter()
    finish(start(file, folder / "serial", "--serial"))
    serial = time.perf_counter() - began
    began = time.perf_counter()
    found = killed_sweep(file, folder / "killed", workers=workers, fits=fits, kills=kills, seed=0)
    same = {
        name: (folder / "serial" / name).read_bytes() == (folder / "killed" / name).read_bytes()
        for name in (TABLE, RESULTS)
    }
    seconds = {"serial": serial, "killed": time.perf_counter() - began}
    return {**found, "same_bytes": same, "seconds": seconds}


def main() -> None:
    """Measure, print and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/sweep.json"))
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), fits=FITS, workers=WORKERS, kills=KILLS, epochs=200)
    document = {
        "command": "python -m benchmarks.sweep",
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": {
            **{name: version(name) for name in ("jax", "distributed")},
            "carom": carom.__version__,
            "python": platform.python_version(),
        },
        "workers": WORKERS,
        **result,
    }
    print(json.dumps(document, indent=2))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
