"""How cost grows with the length of a recording, bodies, simultaneous forecasts and ensemble members.

    python -m benchmarks.growth

Every point runs in its own process, so that its peak memory can be measured. Unless stated otherwise, seconds
are CPU seconds of the work alone, because machines are shared. `--only NAME` repeats one kind of measurement
and keeps the others; `--figures` draws docs/images/growth from the stored numbers.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import carom
from benchmarks.growth_figures import write_growth_figures
from carom.models import CDLagrangeNetwork, forecast_many
from carom.systems import BouncingBall, NewtonsCradle
from carom.training import train_many
from carom.types import State

STEP_SIZE, NOISE = 0.02, 0.05


def paper_length(samples: int) -> dict[str, float]:
    """The paper's recipe, one model of 500 units, batches of 32: the second of two epochs."""
    recording = _bouncing(samples)
    model = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
    return _last_epochs([model], recording, epochs=2)


def paper_command(samples: int) -> dict[str, float]:
    """`carom fit --recipe paper --epochs 1` on a CSV file, the whole process."""
    command = [sys.executable, "-m", "carom"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ball.csv"
        steps, noise = str(samples - 1), str(NOISE)
        simulate = [*command, "simulate", "ball", "--steps", steps, "--noise", noise, "--out", str(path)]
        subprocess.run(simulate, check=True, capture_output=True)
        started = resource.getrusage(resource.RUSAGE_CHILDREN)
        fit = [*command, "fit", str(path), "--recipe", "paper", "--epochs", "1", "--out", f"{folder}/run"]
        subprocess.run(fit, check=True, capture_output=True)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = path.stat().st_size
    seconds = ended.ru_utime + ended.ru_stime - started.ru_utime - started.ru_stime
    return {"seconds": seconds, "child_memory": ended.ru_maxrss * 1024, "file_bytes": size}


def carom_length(samples: int) -> dict[str, float]:
    """The recipe carom with unknown restitution and floor, compilation included."""
    recording = _bouncing(samples)
    cpu = time.process_time()
    fit = carom.fit(recording, learn=["restitution"])
    restitution = fit.parameters[0]
    return {
        "seconds": time.process_time() - cpu,
        "rounds": len(fit.history),
        "error": abs(restitution.value - 1.0) if restitution.value is not None else float("nan"),
    }


def bodies(balls: int) -> dict[str, float]:
    """The paper's recipe on a cradle: time per gradient step, after the epochs that compile."""
    recording = carom.simulate(NewtonsCradle(balls=balls), steps=330, step_size=0.01, noise=0.01, seed=1)
    model = CDLagrangeNetwork.for_recording(recording, hidden=100, key=jax.random.key(0))
    return _last_epochs([model], recording, epochs=200)


def batch(starts: int) -> dict[str, float]:
    """Forecasts of 500 steps from many starts at once, by a model of 500 units."""
    recording = _bouncing(200)
    model = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
    at = State(
        jax.random.uniform(jax.random.key(1), (starts, 1, 1), minval=1.0, maxval=9.0),
        jax.numpy.zeros((starts, 1, 1)),
    )
    steps = 500
    jax.block_until_ready(jax.tree.leaves(forecast_many(model, at, steps)))
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(jax.tree.leaves(forecast_many(model, at, steps)))
    seconds = time.process_time() - cpu
    return {
        "seconds": seconds,
        "wall": time.perf_counter() - wall,
        "steps_per_second": starts * steps / seconds,
    }


def ensemble(members: int) -> dict[str, float]:
    """The paper's recipe, models of 500 units on one recording of 500 samples: the second of two epochs."""
    recording = _bouncing(500)
    models = [CDLagrangeNetwork.for_recording(recording, key=jax.random.key(i)) for i in range(members)]
    return _last_epochs(models, recording, epochs=2)


KINDS: dict[str, tuple[Callable[[int], dict[str, float]], tuple[int, ...]]] = {
    "paper_length": (paper_length, (1000, 10_000, 100_000, 1_000_000)),
    "paper_command": (paper_command, (1000, 100_000, 1_000_000)),
    "carom_length": (carom_length, (500, 2000, 8000, 32_000, 100_000, 1_000_000)),
    "bodies": (bodies, (2, 3, 4, 8, 16)),
    "batch": (batch, (1, 10, 100, 1000, 10_000)),
    "ensemble": (ensemble, (1, 4, 16, 64, 256)),
}
"""The measurements, and the sizes they are made at."""


def _bouncing(samples: int):
    """An elastic ball, which bounces for as long as the recording lasts."""
    ball = BouncingBall(restitution=1.0)
    return carom.simulate(ball, steps=samples - 1, step_size=STEP_SIZE, noise=NOISE, seed=1)


def _last_epochs(models, recording, *, epochs: int) -> dict[str, float]:
    """Seconds per epoch, over those after the first report of progress, when everything is compiled."""
    settings = carom.TrainingSettings(epochs=epochs)
    reports = [(0.0, time.process_time(), time.perf_counter())]
    fits = train_many(
        models,
        [recording],
        settings,
        seeds=range(len(models)),
        progress=lambda done: reports.append((done, time.process_time(), time.perf_counter())),
    )
    assert not any(fit.failed for fit in fits)
    windows = sum(len(run) - settings.horizon for run in recording.runs)
    steps = len(models) * -(-windows // settings.batch_size)
    counted = (1 - reports[1][0]) * epochs
    seconds, wall = ((reports[-1][k] - reports[1][k]) / counted for k in (1, 2))
    return {
        "seconds": seconds,
        "wall": wall,
        "until_first_report": reports[1][1] - reports[0][1],
        "microseconds_per_step": 1e6 * seconds / steps,
    }


def measure(kind: str, size: int) -> dict[str, Any]:
    """One point in its own process, with its peak memory in bytes.

    The compilation cache is off, so that the memory that compiling takes is counted at every point.
    """
    code = f"from benchmarks.growth import point; point({kind!r}, {size})"
    environment = os.environ | {"CAROM_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return json.loads(done.stdout.splitlines()[-1])


def point(kind: str, size: int) -> None:
    """Measure in this process, and print the result."""
    found = KINDS[kind][0](size)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts it in kilobytes
    print(json.dumps({"size": size, "peak_bytes": found.pop("child_memory", own), **found}))


def main() -> None:
    """Measure, write the JSON and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/growth.json"))
    parser.add_argument("--only", choices=tuple(KINDS), help="repeat one measurement and keep the others")
    parser.add_argument("--figures", action="store_true", help="only draw the stored numbers")
    parser.add_argument("--images", type=Path, default=Path("docs/images/growth"))
    given = parser.parse_args()
    document = json.loads(given.out.read_text()) if given.out.exists() else {}
    for kind, (_, sizes) in KINDS.items():
        if given.figures or (given.only is not None and given.only != kind):
            continue
        rows = []
        for size in sizes:
            rows.append(measure(kind, size))
            print(kind, json.dumps(rows[-1]), flush=True)
        document[kind] = rows
        document |= {
            "command": "python -m benchmarks.growth",
            "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
            "versions": {
                "carom": carom.__version__,
                "jax": jax.__version__,
                "python": platform.python_version(),
            },
        }
        given.out.write_text(json.dumps(document, indent=2) + "\n")
    if all(kind in document for kind in KINDS):
        for path in write_growth_figures(document, given.images):
            print(path)


if __name__ == "__main__":
    main()
