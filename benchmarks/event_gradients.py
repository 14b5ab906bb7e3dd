"""Gradients through impacts by Carom and by torchdiffeq: `python -m benchmarks.event_gradients`.

One noiseless recording of the heights of a bouncing ball; its gravity and restitution are estimated. Both
start from the same guess, follow the gradient of the same mean squared error by the same Adam in double
precision and in the same process, and stop when both parameters are known to the same accuracy. Needs the
extra `bench`.
"""

import argparse
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from carom.integrators import constraint_exact_step, rollout
from carom.mechanics import Masses
from carom.systems import BouncingBall
from carom.types import State

HEIGHT, SAMPLES, STEP_SIZE = 1.0, 75, 0.02
TRUE, GUESS = np.array([9.81, 0.9]), np.array([9.0, 0.8])
UNITS = np.array([10.0, 1.0])
"""Scales of gravity and restitution, so that one learning rate serves both."""
RATE, MAXIMUM_STEPS = 1e-2, 400

Learner = Callable[[np.ndarray], np.ndarray]
"""Makes one gradient step: parameters in, parameters out."""


def missing() -> tuple[str, ...]:
    """Packages that have to be installed first."""
    return tuple(name for name in ("torch", "torchdiffeq") if importlib.util.find_spec(name) is None)


def compare_learners(*, accuracy: float) -> dict[str, float]:
    """Steps and seconds that each of the two needs, and the ratios of their times."""
    times = np.arange(SAMPLES + 1) * STEP_SIZE
    truth = BouncingBall(gravity=float(TRUE[0]), restitution=float(TRUE[1]))
    start = State(jnp.full((1, 1), HEIGHT), jnp.zeros((1, 1)))
    heights = truth.exact(start, times).position[1:, 0, 0]
    figures: dict[str, float] = {}
    for name, learner in (("carom", our_learner), ("torchdiffeq", their_learner)):
        steps, seconds, each = _learn(lambda make=learner: make(heights), accuracy)
        figures[f"{name}_steps"] = float(steps)
        figures[f"{name}_seconds"] = seconds
        figures[f"{name}_step_seconds"] = each
    for ratio, of in (("time_ratio", "seconds"), ("step_time_ratio", "step_seconds")):
        figures[ratio] = figures[f"torchdiffeq_{of}"] / figures[f"carom_{of}"]
    return figures


def _learn(make: Callable[[], Learner], accuracy: float) -> tuple[int, float, float]:
    """Steps to the accuracy, seconds for all with compilation, and seconds of a step after the first."""
    began = time.perf_counter()
    step, parameters, times = make(), GUESS, []
    while np.max(np.abs(parameters / TRUE - 1)) > accuracy and len(times) < MAXIMUM_STEPS:
        started = time.perf_counter()
        parameters = step(parameters)
        times.append(time.perf_counter() - started)
    return len(times), time.perf_counter() - began, float(np.median(times[1:] or times))


def our_learner(heights: np.ndarray) -> Learner:
    """By the constraint-exact step, one compiled program for a gradient step."""
    optimiser = optax.adam(RATE)
    geometry = BouncingBall().geometry

    def loss(scaled):
        gravity, restitution = scaled * UNITS

        def step(state, _):
            return constraint_exact_step(
                state,
                STEP_SIZE,
                inertia=Masses(jnp.ones((1,))),
                force=lambda position: jnp.full_like(position, -gravity),
                geometry=geometry,
                restitution=restitution[None],
                max_impacts=1,
            )

        start = State(jnp.full((1, 1), HEIGHT), jnp.zeros((1, 1)))
        states, _ = rollout(step, start, steps=SAMPLES)
        return jnp.mean((states.position[1:, 0, 0] - heights) ** 2)

    @jax.jit
    def update(scaled, state):
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            change, state = optimiser.update(jax.grad(loss)(scaled), state)
        return optax.apply_updates(scaled, change), state

    with jax.enable_x64(True):
        state = optimiser.init(jnp.asarray(GUESS / UNITS))

    def step(parameters: np.ndarray) -> np.ndarray:
        nonlocal state
        with jax.enable_x64(True):
            scaled, state = update(jnp.asarray(parameters / UNITS), state)
        return np.asarray(scaled) * UNITS

    return step


def their_learner(heights: np.ndarray) -> Learner:
    """By torchdiffeq: integrate to the next impact and bounce, as long as samples are left."""
    import torch  # pyright: ignore[reportMissingImports]
    from torchdiffeq import odeint, odeint_event  # pyright: ignore[reportMissingImports]

    scaled = torch.tensor(GUESS / UNITS, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([scaled], lr=RATE)
    units, target = torch.tensor(UNITS), torch.tensor(heights)
    times = torch.arange(1, SAMPLES + 1, dtype=torch.float64) * STEP_SIZE
    exact: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}

    def predicted():
        gravity, restitution = scaled * units

        def fall(_time, state):
            return torch.stack([state[1], -gravity])

        zero = torch.zeros((), dtype=torch.float64)
        now, left = zero, times
        state = torch.tensor([HEIGHT, 0.0], dtype=torch.float64)
        parts = []
        while len(left):
            # Every flight has its own time, so that the derivative with respect to its start is in its times.
            flight, ends = odeint_event(fall, state, zero, event_fn=lambda _time, state: state[0], **exact)
            flown = left[left < (now + flight).detach()]
            if len(flown):
                path: Any = odeint(fall, state, torch.cat([zero[None], flown - now]), **exact)
                parts.append(path[1:, 0])
            left = left[len(flown) :]
            # Slightly above the floor, or the next flight would end at once.
            state, now = torch.stack([zero + 1e-9, -restitution * ends[-1][1]]), now + flight
        return torch.cat(parts)

    def step(parameters: np.ndarray) -> np.ndarray:
        optimiser.zero_grad()
        torch.mean((predicted() - target) ** 2).backward()
        optimiser.step()
        return (scaled.detach() * units).numpy().copy()

    return step


def table(figures: dict[str, float]) -> str:
    """The comparison in Markdown, as in docs/benchmarks.md."""
    names = ("steps", "step_seconds", "seconds")
    lines = ["|  | gradient steps | s per step | s in all, with compilation |", "|:---|---:|---:|---:|"]
    for name in ("carom", "torchdiffeq"):
        steps, each, total = (figures[f"{name}_{part}"] for part in names)
        lines.append(f"| {name} | {steps:.0f} | {each:.2g} | {total:.1f} |")
    ratios = figures["torchdiffeq_steps"] / figures["carom_steps"], figures["step_time_ratio"]
    return "\n".join(
        [*lines, f"| ratio | {ratios[0]:.2g}× | {ratios[1]:.3g}× | {figures['time_ratio']:.3g}× |"]
    )


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/event_gradients.json"))
    out = parser.parse_args().out
    if missing():
        parser.exit(2, f"{' and '.join(missing())} cannot be found; install the extra bench.\n")
    figures = compare_learners(accuracy=1e-3)
    document = {
        "command": "python -m benchmarks.event_gradients",
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": {name: version(name) for name in ("carom", "jax", "torch", "torchdiffeq")},
        "figures": figures,
    }
    print(table(figures))
    out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
