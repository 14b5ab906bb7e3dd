"""Forecasts: model steps per second for one start and for many."""

import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from carom.models import AbstractModel, forecast
from carom.types import State


def measure_forecasts(
    model: AbstractModel, start: State, *, steps: int, many: int, repeats: int
) -> dict[str, float]:
    """Model steps per second, the best of several forecasts after compilation.

    The many start from the half to the whole of `start`, so that no two are the same.
    """
    one = jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), start)
    scale = jnp.linspace(0.5, 1.0, many)[:, None, None]
    starts = State(scale * one.position[None], scale * one.velocity[None])
    batch = eqx.filter_jit(
        lambda model, starts: jax.vmap(lambda start: forecast(model, start, steps))(starts)
    )
    first, seconds, _ = _first_and_best(lambda: forecast(model, one, steps), max(repeats, 5))
    first_of_many, seconds_of_many, cpu = _first_and_best(lambda: batch(model, starts), repeats)
    return {
        "forecast_one_steps_per_second": steps / seconds,
        "forecast_one_seconds": seconds,
        "forecast_many_steps_per_second": many * steps / seconds_of_many,
        "forecast_many_steps_per_cpu_second": many * steps / cpu,
        "forecast_compile_seconds": max(first - seconds + first_of_many - seconds_of_many, 0.0),
    }


def _first_and_best(run: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Seconds of the first run, the least seconds of the others, and their least CPU-seconds."""
    walls, cpus = [], []
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(run())
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return walls[0], min(walls[1:]), min(cpus[1:])
