"""What is measured, one case in a process of its own: `python -m carom.bench.cases CASE [quick]`.

Its last line of output is a JSON object. CPU seconds count from the start of the process, imports included.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from carom.data import Recording, simulate
from carom.estimation import Settings, fit_recording
from carom.evaluation import paper_rmse
from carom.models import MODELS, AbstractModel, CDLagrangeNetwork, forecast, forecast_many
from carom.storage.program_cache import configure
from carom.systems import AbstractSystem, BouncingBall, NewtonsCradle, Pendulum
from carom.training import TrainingSettings, train
from carom.types import State

FORECAST_STEPS = 500
PUBLISHED_FIT_CPU_SECONDS, PUBLISHED_EPOCHS = 300, 3000
"""Duration of the published code's training of the ball's CD-Lagrange network, and the number of epochs."""
SETTINGS = TrainingSettings(
    learning_rate=1e-2, schedule="constant", reduction="sum", contact_inputs="predicted", l2=5e-3
)
"""The training of the published code, batch 32 and horizon 10."""
_SOFTPLUS = {"activation": "softplus"}
_STORMER = {**_SOFTPLUS, "scheme": "stormer_verlet"}
SYSTEMS: dict[str, tuple[AbstractSystem, dict[str, Any]]] = {
    # The radius of the published code's ball: its centre bounces at 0.01.
    "ball": (BouncingBall(radius=0.01), {"steps": 500, "step_size": 0.02, "noise": 0.2, "truth": "scheme"}),
    "cradle": (
        NewtonsCradle(),
        {"steps": 540, "step_size": 0.01, "noise": 0.02, "truth": "scheme", "projection": "reference_point"},
    ),
    "pendulum": (Pendulum(), {"steps": 200, "step_size": 0.02, "noise": 0.2}),
}
"""With the published code's recordings: 501, 541 and 201 samples."""


class ModelCase(NamedTuple):
    """A model to train on a recording and to forecast with.

    Arguments:
        title: for tables.
        system: what is recorded.
        model: its name in `carom.models.MODELS`.
        published: training steps per CPU-second of the published code, lowest and highest measured.
        options: of its constructor.
    """

    title: str
    system: str
    model: str
    published: str = ""
    options: dict[str, Any] = _SOFTPLUS


MODEL_CASES = {
    "ball-cd-lagrange": ModelCase("ball, CD-Lagrange", "ball", "cd-lagrange", "160–200"),
    "ball-resnet": ModelCase("ball, ResNet", "ball", "resnet", "250–275", {}),
    "ball-contact-resnet": ModelCase("ball, ResNetContact", "ball", "contact-resnet", "185–230", {}),
    "cradle-cd-lagrange": ModelCase("cradle, CD-Lagrange", "cradle", "cd-lagrange", "125"),
    "pendulum-velocity-verlet": ModelCase("pendulum, VIN velocity Verlet", "pendulum", "vin", "118"),
    "pendulum-stormer-verlet": ModelCase("pendulum, VIN Störmer–Verlet", "pendulum", "vin", "", _STORMER),
    # Fitted by Gauss–Newton, not trained by gradient descent: only its forecasts are measured.
    "ball-impact": ModelCase("ball, network of the recipe carom", "ball", "mechanism", "", {}),
}
FIT_CASES = {"fit-carom": "ball, recipe carom", "fit-paper": "ball, recipe paper, 3000 epochs"}
NAMES = (*MODEL_CASES, *FIT_CASES)


def measure(name: str, *, quick: bool) -> dict[str, float]:
    """Do the work of a case."""
    if name == "fit-carom":
        return fit_by_carom()
    if name == "fit-paper":
        return fit_by_paper(epochs=20 if quick else PUBLISHED_EPOCHS)
    if sys.platform == "linux":
        # One core, so that a second of CPU time is a second of work.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    case = MODEL_CASES[name]
    system, recorded = SYSTEMS[case.system]
    recording = simulate(system, velocity_grid="sample", **recorded)
    model = MODELS[case.model].for_recording(recording, key=jax.random.key(0), **case.options)
    training: dict[str, float] = {"compile_seconds": 0.0}
    if case.model != "mechanism":
        training = measure_training(model, recording, quick=quick)
    forecasts = measure_forecasts(model, system.start, quick=quick)
    compiled = training["compile_seconds"] + forecasts["compile_seconds"]
    return training | forecasts | {"compile_seconds": compiled}


def fit_by_carom() -> dict[str, float]:
    """Fit the ball of the paper's Figure 5 without touch; restitution and floor unknown, the start known."""
    ball, steps, step_size = SYSTEMS["ball"][0], 519, 0.02
    recording = simulate(ball, steps=steps, step_size=step_size, noise=0.2, seed=0)
    settings = Settings(learn=("restitution", "surfaces"))
    # The published code knows the start too, so that the two errors compare.
    fit = fit_recording(recording, settings, starts=[ball.start], seed=0)
    truth = ball.exact(ball.start, np.arange(steps + 1) * step_size)
    return {"error": paper_rmse(forecast(fit.model, _single(ball.start), steps), truth)}


def fit_by_paper(*, epochs: int) -> dict[str, float]:
    """Train on the same ball as published: touch, restitution and masses given."""
    ball, recorded = SYSTEMS["ball"]
    recording = simulate(ball, velocity_grid="sample", **recorded)
    model = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0), activation="softplus")
    fit = train(model, recording, replace(SETTINGS, epochs=epochs))
    steps = recording.samples - 1
    truth = ball.scheme(ball.start, steps=steps, step_size=recording.step_size, velocity_grid="sample")
    error = paper_rmse(forecast(fit.model, _single(ball.start), steps), truth)
    return {"error": error}


def measure_training(model: AbstractModel, recording: Recording, *, quick: bool) -> dict[str, float]:
    """Training steps per second and per CPU-second, the best of several trainings after compilation."""
    epochs, repeats = (20, 1) if quick else (200, 3)
    settings = replace(SETTINGS, epochs=epochs)
    # Windows start at every sample that leaves a whole horizon; the last batch may be smaller.
    steps = epochs * -(-(recording.samples - settings.horizon) // settings.batch_size)
    first, seconds, cpu = _first_and_best(lambda: train(model, recording, settings), repeats)
    return {
        "training_steps_per_second": steps / seconds,
        "training_steps_per_cpu_second": steps / cpu,
        "compile_seconds": max(first - seconds, 0.0),
    }


def measure_forecasts(model: AbstractModel, start: State, *, quick: bool) -> dict[str, float]:
    """Model steps per second, the best of several forecasts after compilation.

    The many start at fractions of `start` from a half to one, so that no two are the same.
    """
    steps, many, repeats = (50, 100, 1) if quick else (FORECAST_STEPS, 10_000, 2)
    # Weights are in single precision, and so must states be.
    one = _single(start)
    scale = jnp.linspace(0.5, 1.0, many)[:, None, None]
    starts = State(scale * one.position[None], scale * one.velocity[None])
    # A single forecast takes milliseconds, which a few repetitions do not time well.
    first, seconds, _ = _first_and_best(lambda: forecast(model, one, steps), max(repeats, 5))
    first_of_many, seconds_of_many, _ = _first_and_best(lambda: forecast_many(model, starts, steps), repeats)
    return {
        "forecast_one_steps_per_second": steps / seconds,
        "forecast_many_steps_per_second": many * steps / seconds_of_many,
        "compile_seconds": max(first - seconds + first_of_many - seconds_of_many, 0.0),
    }


def _first_and_best(run: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Seconds of the first run, the least seconds of the others, and their least CPU-seconds."""
    # The best, not the mean: machines are shared, and other work only adds time.
    walls, cpus = [], []
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(run())
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return walls[0], min(walls[1:]), min(cpus[1:])


def _single(state: State) -> State:
    return jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), state)


def _peak_memory() -> float | None:
    """Peak memory in bytes of the device, or of the process where the device does not report it."""
    statistics = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        return float(statistics["peak_bytes_in_use"])
    if sys.platform == "win32":
        return None
    import resource  # not on Windows

    # In bytes on macOS, in kilobytes on Linux.
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def main() -> None:
    """Measure one case and print the figures."""
    configure()
    figures = measure(sys.argv[1], quick=sys.argv[2:] == ["quick"])
    memory = _peak_memory()
    if memory is not None:
        figures["peak_memory_bytes"] = memory
    device = f"{jax.devices()[0].platform}: {jax.devices()[0].device_kind}"
    report = {"figures": figures, "cpu_seconds": time.process_time(), "device": device}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
