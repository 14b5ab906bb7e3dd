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
    first, seconds = _first_and_best(lambda: forecast(model, one, steps), max(repeats, 5))
    first_of_many, seconds_of_many = _first_and_best(lambda: batch(model, starts), repeats)
    return {
        "forecast_one_steps_per_second": steps / seconds,
        "forecast_one_seconds": seconds,
        "forecast_many_steps_per_second": many * steps / seconds_of_many,
        "forecast_compile_seconds": first - seconds + first_of_many - seconds_of_many,
    }


def _first_and_best(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - started)
    return times[0], min(times[1:])
