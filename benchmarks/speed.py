"""Speed of training and forecasting: `make bench`, or `python -m benchmarks.speed --out FILE`.

Everything runs pinned to one core, so that a second of CPU time is a second of work. The reference figures
were measured for the authors' published code on the same kind of machine, one core: machines are shared and
noisy, so read the ratios to about 20 %.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import carom
from carom.learning import WindowedSettings, fit_windowed
from carom.models import (
    AbstractModel,
    CDLagrangeNetwork,
    ContactResNet,
    ResNet,
    VariationalIntegratorNetwork,
    forecast,
)
from carom.systems import BouncingBall, NewtonsCradle, Pendulum
from carom.types import State

REFERENCE_STEPS = {
    "ball, CD-Lagrange": (160, 200),
    "ball, ResNet": (250, 275),
    "ball, ResNetContact": (185, 230),
    "cradle, CD-Lagrange": (125, 125),
    "pendulum, VIN velocity Verlet": (118, 118),
}
"""Training steps per CPU-second of the published code, batch 32, horizon 10: lowest and highest measured."""
REFERENCE_FORECAST_SECONDS = 2.3
"""A 500-step forecast of one ball by the published code."""

EPOCHS = 200
SETTINGS = WindowedSettings(
    epochs=EPOCHS, learning_rate=1e-2, reduction="sum", contact_inputs="predicted", l2=5e-3
)


def _recordings() -> dict[str, carom.Recording]:
    """The published code's recordings: 501, 541 and 201 samples."""
    return {
        "ball": carom.simulate(
            BouncingBall(radius=0.01),
            steps=500,
            step_size=0.02,
            noise=0.2,
            truth="scheme",
            velocity_grid="sample",
        ),
        "cradle": carom.simulate(
            NewtonsCradle(),
            steps=540,
            step_size=0.01,
            noise=0.02,
            truth="scheme",
            velocity_grid="sample",
            projection="reference_point",
        ),
        "pendulum": carom.simulate(Pendulum(), steps=200, step_size=0.02, noise=0.2, velocity_grid="sample"),
    }


def _cases(recordings: dict[str, carom.Recording]) -> dict[str, tuple[AbstractModel, carom.Recording]]:
    key = jax.random.key(0)

    def build(name: str, kind: type[AbstractModel], **options):
        return kind.for_recording(recordings[name], key=key, **options), recordings[name]

    return {
        "ball, CD-Lagrange": build("ball", CDLagrangeNetwork, activation="softplus"),
        "ball, ResNet": build("ball", ResNet),
        "ball, ResNetContact": build("ball", ContactResNet),
        "cradle, CD-Lagrange": build("cradle", CDLagrangeNetwork, activation="softplus"),
        "pendulum, VIN velocity Verlet": build(
            "pendulum", VariationalIntegratorNetwork, activation="softplus"
        ),
        "pendulum, VIN Störmer–Verlet": build(
            "pendulum", VariationalIntegratorNetwork, activation="softplus", scheme="stormer_verlet"
        ),
    }


def measure_training(model: AbstractModel, recording: carom.Recording) -> dict[str, float]:
    """Training steps per CPU-second after compilation, and the seconds that compilation takes."""
    batches = -(-(recording.samples - SETTINGS.horizon) // SETTINGS.batch_size)
    started = time.perf_counter()
    fit_windowed(model, recording, SETTINGS)
    first = time.perf_counter() - started
    rates, wall = [], 0.0
    for _ in range(3):
        cpu = time.process_time()
        started = time.perf_counter()
        fit_windowed(model, recording, SETTINGS)
        rates.append(EPOCHS * batches / (time.process_time() - cpu))
        wall = time.perf_counter() - started
    return {"steps_per_cpu_second": max(rates), "compile_seconds": max(first - wall, 0.0)}


def measure_forecast(model: AbstractModel) -> dict[str, float]:
    """Seconds of a 500-step forecast after compilation, for one ball and for 10 000 at once."""
    one = State(jnp.full((1, 1), 10.0), jnp.zeros((1, 1)))
    heights = jnp.linspace(5.0, 10.0, 10_000)[:, None, None]
    many = State(heights, jnp.zeros_like(heights))
    batch = jax.jit(jax.vmap(lambda start: forecast(model, start, 500)))
    seconds = {}
    for name, run in {"one": lambda: forecast(model, one, 500), "ten_thousand": lambda: batch(many)}.items():
        started = time.perf_counter()
        jax.block_until_ready(run())
        compiled = time.perf_counter() - started
        times = []
        for _ in range(5 if name == "one" else 2):
            started = time.perf_counter()
            jax.block_until_ready(run())
            times.append(time.perf_counter() - started)
        seconds[f"{name}_seconds"] = min(times)
        seconds[f"{name}_compile_seconds"] = compiled - min(times)
    return seconds


def main() -> None:
    """Measure everything, print the tables and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/speed.json"))
    out = parser.parse_args().out
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax.config.update("jax_enable_compilation_cache", False)  # compile times are those of a first run

    table = Table(title="Training, batch 32, horizon 10, one core")
    for heading in ("", "steps per CPU-second", "published code", "ratio", "compile / s"):
        table.add_column(heading, justify="left" if not heading else "right")
    rows = []
    cases = _cases(_recordings())
    for name, (model, recording) in cases.items():
        result = measure_training(model, recording)
        low, high = REFERENCE_STEPS.get(name, (None, None))
        ratio = result["steps_per_cpu_second"] / high if high else None
        rows.append({"case": name, **result, "reference": [low, high], "ratio_to_highest": ratio})
        table.add_row(
            name,
            f"{result['steps_per_cpu_second']:.0f}",
            "" if low is None else f"{low}" if low == high else f"{low}–{high}",
            "" if ratio is None else f"{ratio:.1f}×",
            f"{result['compile_seconds']:.1f}",
        )
    Console().print(table)
    ball = measure_forecast(cases["ball, CD-Lagrange"][0])
    print(
        f"Forecast of 500 steps, one core: one ball {1e3 * ball['one_seconds']:.1f} ms "
        f"({REFERENCE_FORECAST_SECONDS / ball['one_seconds']:.0f}× the published code), 10 000 balls "
        f"{ball['ten_thousand_seconds']:.2f} s ({5 / ball['ten_thousand_seconds']:.2f} million steps/s); "
        f"compiled in {ball['one_compile_seconds']:.1f} s and {ball['ten_thousand_compile_seconds']:.1f} s."
    )
    document = {
        "command": "python -m benchmarks.speed",
        "machine": {"processor": platform.processor() or platform.machine(), "cores_used": 1},
        "versions": {"carom": carom.__version__, "jax": jax.__version__, "python": platform.python_version()},
        "training": rows,
        "forecast_of_the_ball": ball,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
