"""Cost of the paper's training loop: `python -m benchmarks.training --out FILE [--before FILE]`.

Every kind of trial that `carom reproduce` trains, five seeds in one program, pinned to one core. Because
machines are shared, compare two versions by running this for each in turn, and read the ratios.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import carom
from carom.reproduction.paper.data import record
from carom.reproduction.paper.experiments import EXPERIMENTS, PROTOCOLS
from carom.reproduction.paper.run import Trial, plan, untrained
from carom.training import train_many

SEEDS = (0, 1, 2, 3, 4)
MEASURED = {
    "pendulum": ("pendulum",),
    "ball": ("ball", "ball-table", "inelastic-ball", "inelastic-ball-0.8"),
    "cradle": ("cradle", "cradle-table"),
    "damped-pendulum": ("damped-pendulum",),
}
"""Experiments to measure, and those whose steps cost the same, since only data and length differ."""


def _alike(trial: Trial, other: Trial) -> bool:
    """Whether a step of `other` costs the same as one of the measured `trial`."""
    same = (other.protocol, other.model_name) == (trial.protocol, trial.model_name)
    return same and other.experiment_name in MEASURED[trial.experiment_name]


def measure(trial: Trial, *, steps: int, repeats: int) -> dict[str, float]:
    """Milliseconds of CPU time per gradient step of one seed, and seconds of compilation."""
    settings = trial.settings
    recordings = [record(trial.experiment, trial.protocol, seed) for seed in trial.seeds]
    models = [
        untrained(trial.experiment, trial.protocol, trial.model_name, recording, seed)
        for recording, seed in zip(recordings, trial.seeds, strict=True)
    ]
    steps_per_epoch = trial.gradient_steps // (settings.epochs * len(trial.seeds))
    # A multiple of 20, so that every chunk of the fit is the same program.
    settings = replace(settings, epochs=20 * max(1, round(steps / steps_per_epoch / 20)))
    work = settings.epochs * steps_per_epoch * len(trial.seeds)

    def timed() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        train_many(models, recordings, settings, seeds=trial.seeds)
        return time.perf_counter() - wall, time.process_time() - cpu

    first, _ = timed()
    times = [timed() for _ in range(repeats)]
    return {
        "milliseconds": 1e3 * min(cpu for _, cpu in times) / work,
        "compile_seconds": max(0.0, first - min(wall for wall, _ in times)),
    }


def main() -> None:
    """Measure every kind of trial, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/training.json"))
    parser.add_argument("--before", type=Path, help="the file of the version to compare with")
    parser.add_argument("--steps", type=int, default=600, help="gradient steps per seed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of `experiment, protocol, model` to measure")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are those of a first run
    before = {}
    if given.before is not None:
        before = {row["case"]: row for row in json.loads(given.before.read_text())["training"]}

    table = Table(title="Training, five seeds in one program, one core")
    for heading in ("", "seed-steps", "ms per seed-step", "before", "ratio", "compile / s"):
        table.add_column(heading, justify="left" if not heading else "right")
    trials = plan(EXPERIMENTS, PROTOCOLS, SEEDS)
    rows = []
    for trial in trials:
        label = f"{trial.experiment_name}, {trial.protocol}, {trial.model_name}"
        if trial.experiment_name not in MEASURED or given.only not in label:
            continue
        total = sum(other.gradient_steps for other in trials if _alike(trial, other))
        measured = measure(trial, steps=given.steps, repeats=given.repeats)
        row: dict[str, Any] = {"case": label, "seed_steps": total, **measured}
        if label in before:
            row["milliseconds_before"] = before[label]["milliseconds"]
            row["ratio"] = row["milliseconds_before"] / row["milliseconds"]
        rows.append(row)
        table.add_row(
            label,
            f"{total}",
            f"{row['milliseconds']:.3f}",
            f"{row['milliseconds_before']:.3f}" if "ratio" in row else "",
            f"{row['ratio']:.2f}" if "ratio" in row else "",
            f"{row['compile_seconds']:.1f}",
        )
        print(json.dumps(row), flush=True)
    Console().print(table)
    seconds = {
        key: sum(1e-3 * row[key] * row["seed_steps"] for row in rows if key in row)
        for key in ("milliseconds", "milliseconds_before")
    }
    print(f"All trials of these kinds: {seconds['milliseconds']:.0f} s of CPU", end="")
    print(f", before {seconds['milliseconds_before']:.0f} s." if before else ".")
    document = {
        "command": f"python -m benchmarks.training --only {given.only!r} --steps {given.steps}",
        "machine": {"processor": platform.processor() or platform.machine(), "cores_used": 1},
        "versions": {"carom": carom.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "cpu_seconds_of_these_trials": seconds,
        "training": rows,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
