"""A run of `carom bench` with round numbers."""

from pathlib import Path

from carom.evaluation.results import Results, tidy_rows, write_results

MODEL = {
    "training_steps_per_second": 1500.0,
    "training_steps_per_cpu_second": 1600.0,
    "forecast_one_steps_per_second": 5e5,
    "forecast_many_steps_per_second": 1.2e6,
    "cold_compile_seconds": 5.0,
    "warm_compile_seconds": 1.5,
    "peak_memory_bytes": 4e8,
}
_FIT = {"wall_seconds": 5.0, "cpu_seconds": 10.0, "cold_wall_seconds": 20.0, "cold_cpu_seconds": 40.0}
STORED: dict[str, dict[str, float]] = {
    "ball-cd-lagrange": MODEL,
    "fit-carom": {**_FIT, "error": 0.02},
    "fit-paper": {**_FIT, "cpu_seconds": 25.0, "error": 0.5, "epochs": 3000.0},
}


def stored_run(
    path: Path | None = None,
    figures: dict[str, dict[str, float]] = STORED,
    *,
    command: str = "carom bench",
    machine: str = "a fast one, 2 cores, cpu: cpu",
) -> Results:
    """These figures as the command leaves them."""
    rows = [row for case, found in figures.items() for row in tidy_rows({"experiment": case}, found)]
    return write_results(path, rows, command=command, machine=machine)
