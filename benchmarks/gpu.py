"""Speed on a GPU: forecasts, an ensemble, the whole paper; and how closely GPU and CPU results agree.

    python -m benchmarks.gpu [--only rates forecast ensemble text published agreement]

With `--only`, the other parts of the file stay unchanged. Several processes share the GPU while the paper is
reproduced: start `nvidia-cuda-mps-control -d` first, or they take turns. The arithmetic rate beside each
figure is that of a product of 8192² matrices, measured by the part `rates`; a model takes two operations per
weight and evaluation, and three times as many in training.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import carom
from benchmarks.fused_rollout import fused_forecast
from carom.data import Recording
from carom.estimation import Settings, fit_recording
from carom.evaluation import paper_rmse
from carom.execution.executor import local_executor, run_tasks
from carom.fits import load_model, save_model
from carom.models import AbstractModel, CDLagrangeNetwork, Forecast, forecast, forecast_many
from carom.reproduction.paper.data import motion_of, record
from carom.reproduction.paper.experiments import EXPERIMENTS, ORACLE, REPORTED_SEED, Protocol
from carom.reproduction.paper.run import Trial, paper_tasks, plan, untrained
from carom.storage.tensor_file import read_arrays, write_arrays
from carom.systems import BouncingBall
from carom.training import TrainingSettings, train_many
from carom.types import State, Trajectory

BALLS, STEPS = 132 * 128 * 16, 500
MODELS_TOGETHER = 256
SIDE = 8192
HEIGHTS, SEEDS, EPOCHS = 4096, 4, 50
TOLERANCES = {"forecast": 1e-3, "training": 1e-5, "parameters": 1e-4}
"""The largest differences allowed between GPU and CPU: of positions in metres, over 500 steps from many
heights; of both losses of several models, relative, over 50 epochs; of the estimates of the recipe carom in
standard errors. After 60 to 300 epochs a spike of the loss amplifies rounding errors to per cents, on one
device too: the weights of a whole training cannot be compared, only its scores."""

EXPERIMENT = EXPERIMENTS["ball"]
SETTINGS: TrainingSettings = EXPERIMENT.settings("published", "CD-Lagrange")


def ball_model(recording: Recording, seed: int) -> CDLagrangeNetwork:
    """The paper's network: 500 hidden units in the potential, 2 × 100 in the contact signal."""
    options = EXPERIMENT.options("published", "CD-Lagrange")
    return CDLagrangeNetwork.for_recording(recording, key=jax.random.key(seed), **options)


def operations(model: AbstractModel) -> int:
    """Floating-point operations of one step: two per weight, and twice those of a potential."""

    def weights(part) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(part) if eqx.is_array(leaf) and leaf.ndim == 2)

    return 2 * (weights(model) + weights(getattr(model, "potential", None)))


def training_operations(trial: Trial) -> int:
    """Floating-point operations of training one model of the paper, all seeds."""
    experiment, protocol, name = trial.experiment, trial.protocol, trial.model_name
    settings, recording = trial.settings, record(experiment, protocol, trial.seeds[0])
    model = untrained(experiment, protocol, name, recording, 0)
    return 3 * operations(model) * trial.gradient_steps * settings.batch_size * settings.horizon


def least_time(run: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of the fastest of several runs, after one that compiles."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - started)
    return min(times)


def measure_rates() -> dict[str, float]:
    """Operations per second of matrix products, by the precision of their factors."""
    rates = {}
    for name, dtype, precision in (
        ("float32", jnp.float32, "highest"),
        ("tf32", jnp.float32, "default"),
        ("bfloat16", jnp.bfloat16, "default"),
    ):
        x = jax.random.normal(jax.random.key(0), (SIDE, SIDE), dtype)
        product = jax.jit(partial(jnp.dot, precision=precision))
        rates[name] = 2 * SIDE**3 / least_time(lambda: product(x, x))  # noqa: B023
    return rates


class _Compiled(Exception):  # noqa: N818
    """Ends a training once it is compiled."""


def measure_ensemble(rates: dict[str, float]) -> dict[str, Any]:
    """Ball models trained in one program, each on its own recording and from its own weights."""
    seeds = [REPORTED_SEED + index for index in range(MODELS_TOGETHER)]
    recordings, truth = [record(EXPERIMENT, "published", seed) for seed in seeds], true_motion()
    models = [ball_model(recording, seed) for recording, seed in zip(recordings, seeds, strict=True)]

    def stop(fraction: float) -> None:
        raise _Compiled

    started = time.perf_counter()
    with suppress(_Compiled):
        train_many(models, recordings, SETTINGS, seeds=seeds, progress=stop)
    first = time.perf_counter() - started
    started = time.perf_counter()
    fits = train_many(models, recordings, SETTINGS, seeds=seeds)
    seconds = time.perf_counter() - started
    errors = [paper_rmse(_from_the_top(fit.model), truth) for fit in fits]
    windows = recordings[0].samples - SETTINGS.horizon
    steps = SETTINGS.epochs * windows * SETTINGS.horizon * MODELS_TOGETHER
    rate = 3 * operations(models[0]) * steps / seconds
    return {
        "models": MODELS_TOGETHER,
        "epochs": SETTINGS.epochs,
        "seconds": seconds,
        "seconds_to_compile_and_a_twentieth": first,
        "median_error": float(np.median(errors)),
        "share_below_1": float(np.mean(np.array(errors) < 1)),
        "operations_per_second": rate,
        "share_of_float32_rate": rate / rates["float32"],
    }


def from_heights(count: int) -> State:
    """Balls at rest."""
    height = jnp.linspace(5.0, 10.0, count)[:, None, None]
    return State(height, jnp.zeros_like(height))


def measure_forecast(rates: dict[str, float]) -> dict[str, Any]:
    """Steps per second of a trained ball model from many heights, by the kernel and by XLA."""
    recording, truth = record(EXPERIMENT, "published", REPORTED_SEED), true_motion()
    (fit,) = train_many([ball_model(recording, REPORTED_SEED)], [recording], SETTINGS, seeds=[REPORTED_SEED])
    model = fit.model
    starts = from_heights(BALLS)
    some = jax.tree.map(lambda x: x[:: BALLS // 4096], starts)
    seconds = least_time(lambda: fused_forecast(model, starts, STEPS))
    fewer = jax.tree.map(lambda x: x[::4], starts)
    xla_seconds = least_time(lambda: forecast_many(model, fewer, STEPS), 2) * 4
    kernel, plain = (roll(model, some, STEPS) for roll in (fused_forecast, forecast_many))
    impacts = np.asarray((kernel.contact > 0.5) == (plain.contact > 0.5)).all(axis=(1, 2))
    rate = operations(model) * BALLS * STEPS / seconds
    return {
        "balls": BALLS,
        "steps": STEPS,
        "seconds": seconds,
        "steps_per_second": BALLS * STEPS / seconds,
        "steps_per_second_by_xla": BALLS * STEPS / xla_seconds,
        "error": paper_rmse(_first(fused_forecast(model, _batch_of_one(), STEPS)), truth),
        "error_by_xla": paper_rmse(_from_the_top(model), truth),
        "share_with_all_impacts_alike": float(impacts.mean()),
        "greatest_difference_of_positions": float(
            np.abs(np.asarray(kernel.position - plain.position))[impacts].max()
        ),
        "operations_per_second": rate,
        "share_of_float32_rate": rate / rates["float32"],
    }


def true_motion() -> Trajectory:
    """The noise-free motion of the ball."""
    return motion_of(EXPERIMENT, "published", EXPERIMENT.system, EXPERIMENT.start)


def _start() -> State:
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), EXPERIMENT.system.start)


def _from_the_top(model) -> Forecast:
    return forecast(model, _start(), EXPERIMENT.samples("published") - 1)


def _batch_of_one() -> State:
    return jax.tree.map(lambda x: x[None], _start())


def _first(many: Forecast) -> Forecast:
    return jax.tree.map(lambda x: x[0], many)


def measure_paper(protocol: Protocol, workers: int, rates: dict[str, float]) -> dict[str, Any]:
    """All models of all experiments, 5 runs each: trained, forecast and scored."""
    trials = plan(EXPERIMENTS, (protocol,), range(REPORTED_SEED, REPORTED_SEED + 5))
    seconds, results = [], []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            # The oracles are no part of the paper's work.
            tasks = [task for task in paper_tasks(trials, Path(folder)) if ORACLE not in str(task.path)]
            with local_executor(workers, len(tasks)) as executor:
                results = run_tasks(tasks, executor=executor)
            seconds.append(time.perf_counter() - started)
    longest = max(
        sum(row["value"] for row in result["rows"] if row["metric"] == "seconds") for result in results
    )
    rate = sum(training_operations(trial) for trial in trials) / seconds[1]
    return {
        "trials": len(trials),
        "runs": len(trials[0].seeds),
        "gradient_steps": sum(trial.gradient_steps for trial in trials),
        "seconds": seconds[1],
        "seconds_with_compilation": seconds[0],
        "longest_training_seconds": longest,
        "workers": workers,
        "operations_per_second": rate,
        "share_of_float32_rate": rate / rates["float32"],
    }


def values(model_path: Path) -> dict[str, np.ndarray]:
    """The numbers that GPU and CPU are compared by; trains and saves the model if its file is missing."""
    seeds = [REPORTED_SEED + index for index in range(SEEDS)]
    recordings = [record(EXPERIMENT, "published", seed) for seed in seeds]
    models = [ball_model(recording, seed) for recording, seed in zip(recordings, seeds, strict=True)]
    fits = train_many(models, recordings, replace(SETTINGS, epochs=EPOCHS), seeds=seeds)
    if not model_path.exists():
        (whole,) = train_many(models[:1], recordings[:1], SETTINGS, seeds=seeds[:1])
        save_model(whole.model, model_path)
    model = load_model(model_path)
    assert isinstance(model, CDLagrangeNetwork)
    roll = fused_forecast if jax.default_backend() == "gpu" else forecast_many
    motion = roll(model, from_heights(HEIGHTS), STEPS)
    ball = carom.simulate(BouncingBall(restitution=0.9), steps=400, step_size=0.02, noise=0.1, seed=1)
    found = fit_recording(ball, Settings(learn=("restitution", "surfaces"))).parameters
    return {
        "forecast": np.asarray(motion.position),
        "training": np.array([(fit.history.state, fit.history.contact) for fit in fits]),
        "parameters": np.array([(one.value, one.standard_error) for one in found]),
    }


def measure_agreement(known: tuple[Path, Path] | None) -> dict[str, Any]:
    """Largest differences between this device and a CPU: this machine's, or the one that wrote `known`."""
    with tempfile.TemporaryDirectory() as folder:
        model, other = known or (Path(folder) / "model.safetensors", Path(folder) / "values.safetensors")
        if known is None:
            command = [sys.executable, "-m", "benchmarks.gpu", "--values", str(model), str(other)]
            subprocess.run(command, check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        here = values(model)
        there = read_arrays(other)
        difference = {
            "forecast": float(np.abs(here["forecast"] - there["forecast"]).max()),
            "training": float(np.abs(here["training"] / there["training"] - 1).max()),
            "parameters": float(
                np.max(np.abs(here["parameters"] - there["parameters"])[:, 0] / there["parameters"][:, 1])
            ),
        }
    return {
        name: {"difference": value, "tolerance": TOLERANCES[name], "within": value <= TOLERANCES[name]}
        for name, value in difference.items()
    }


def main() -> None:
    """Measure the chosen parts and update the file."""
    parts = ("rates", "forecast", "ensemble", "text", "published", "agreement")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu.json"))
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--workers", type=int, default=24)
    parser.add_argument(
        "--values",
        nargs=2,
        type=Path,
        metavar=("MODEL", "FILE"),
        help="only write the numbers that devices are compared by, and the model they need",
    )
    parser.add_argument(
        "--processor",
        nargs=2,
        type=Path,
        metavar=("MODEL", "FILE"),
        help="files of --values, written on a CPU",
    )
    options = parser.parse_args()
    if options.processor and not all(path.exists() for path in options.processor):
        parser.error("--processor: these files do not exist; write them with --values first")
    if options.values:
        write_arrays(options.values[1], values(options.values[0]))
        return
    if jax.default_backend() != "gpu":
        parser.error("JAX finds no GPU on this machine")
    document = json.loads(options.out.read_text()) if options.out.exists() else {}
    rates: dict[str, float] = document.get("rates", {})
    for part in parts:
        if part == "rates" and (part in options.only or not rates):
            document[part] = rates = measure_rates()
        elif part in options.only:
            measured = {
                "forecast": partial(measure_forecast, rates),
                "ensemble": partial(measure_ensemble, rates),
                "text": partial(measure_paper, "text", options.workers, rates),
                "published": partial(measure_paper, "published", options.workers, rates),
                "agreement": partial(measure_agreement, options.processor),
            }[part]()
            document[part] = measured | {"versions": {"carom": carom.__version__, "jax": jax.__version__}}
        print(json.dumps({part: document.get(part)}, indent=2), flush=True)
        document |= {
            "command": "python -m benchmarks.gpu",
            "machine": {"device": jax.devices()[0].device_kind, "host_cores": os.cpu_count()},
            "versions": {
                "carom": carom.__version__,
                "jax": jax.__version__,
                "python": platform.python_version(),
            },
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=2) + "\n")
    if not all(document.get("agreement", {}).get(name, {}).get("within", True) for name in TOLERANCES):
        sys.exit("GPU and CPU results do not agree.")


if __name__ == "__main__":
    main()
