"""Training by the paper's recipe: steps per second, and what compilation takes."""

import time
from dataclasses import replace

from carom.bench.cases import SETTINGS
from carom.data import Recording
from carom.models import AbstractModel
from carom.training import train


def measure_training(
    model: AbstractModel, recording: Recording, *, epochs: int, repeats: int
) -> dict[str, float]:
    """Training steps per second and per CPU-second, the best of several trainings after compilation."""
    settings = replace(SETTINGS, epochs=epochs)
    steps = epochs * -(-(recording.samples - settings.horizon) // settings.batch_size)

    def timed() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        train(model, recording, settings)
        return time.perf_counter() - wall, time.process_time() - cpu

    first, _ = timed()
    walls, cpus = zip(*(timed() for _ in range(repeats)), strict=True)
    return {
        "training_steps_per_second": steps / min(walls),
        "training_steps_per_cpu_second": steps / min(cpus),
        "training_compile_seconds": max(first - min(walls), 0.0),
    }
