"""Scores of one trained model, on the recorded span and from held-out starts, and what figures need of it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from carom.evaluation import contact_score, paper_rmse, position_rmse, velocity_rmse
from carom.models import AbstractModel, CDLagrangeNetwork, VariationalIntegratorNetwork, forecast_many
from carom.systems import AbstractSystem, BentBall, BouncingBall, NewtonsCradle
from carom.types import State, Trajectory

HELD_OUT_STARTS = 50


def held_out_starts(
    system: AbstractSystem, count: int = HELD_OUT_STARTS, *, seed: int | list[int] = 2021
) -> list[State]:
    """Start states that no recording starts from, inside the range of energies that recordings visit.

    Another `seed` draws others from the same range.
    """
    generator = np.random.default_rng(seed)
    if isinstance(system, BentBall):
        positions, velocities = generator.uniform(2, 5, (count, 1)), generator.uniform(-1, 1, (count, 1))
    elif isinstance(system, BouncingBall):
        positions, velocities = generator.uniform(4, 9.5, (count, 1)), generator.uniform(-2, 2, (count, 1))
    elif isinstance(system, NewtonsCradle):
        positions, velocities = np.zeros((count, 2)), np.zeros((count, 2))
        velocities[:, 0] = generator.uniform(1.2, 1.9, count)
    else:
        positions, velocities = generator.uniform(-0.9, 0.9, (count, 1)), generator.uniform(-1, 1, (count, 1))
    return [
        State(jnp.asarray(q[:, None], jnp.float32), jnp.asarray(v[:, None], jnp.float32))
        for q, v in zip(positions, velocities, strict=True)
    ]


def single(state: State) -> State:
    """A state in the precision of forecasts."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), state)


def held_out_forecasts(
    model: AbstractModel, starts: Sequence[State], motions: Sequence[Trajectory]
) -> tuple[list[float], int]:
    """Errors from held-out starts, and the impacts there that come at a wrong sample, or not, or unasked."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    predicted = forecast_many(model, stacked, len(motions[0].time) - 1)
    errors, wrong = [], 0
    for index, motion in enumerate(motions):
        one = jax.tree.map(lambda x, i=index: x[i], predicted)
        errors.append(paper_rmse(one, motion, velocities=model.predicts_velocity))
        if motion.contact.shape[1] and one.contact.shape[1]:
            score = contact_score(np.asarray(one.contact[:, 0]) > 0.5, motion.contact[:, 0])
            wrong += score.mistimed + score.missed + score.spurious
    return errors, wrong


def score_row(
    system: AbstractSystem, seed: int, model: AbstractModel, motions, truth: Trajectory, held_out
) -> dict[str, Any]:
    """All scores of one seed; index 0 of `motions` starts where the recording does, the rest are held out."""
    velocities = model.predicts_velocity
    first = jax.tree.map(lambda x: x[0], motions)
    errors = [
        paper_rmse(jax.tree.map(lambda x, i=i: x[i + 1], motions), motion, velocities=velocities)
        for i, motion in enumerate(held_out)
    ]
    row: dict[str, Any] = {
        "seed": seed,
        "paper_rmse": paper_rmse(first, truth, velocities=velocities),
        "position_rmse": position_rmse(first, truth),
        "velocity_rmse": velocity_rmse(first, truth),
        "held_out_paper_rmse": errors,
    }
    if first.contact.shape[1]:
        score = contact_score(np.asarray(first.contact[:, 0]) > 0.5, truth.contact[:, 0])
        row |= {
            "true_impacts": score.true_events,
            "mistimed": score.mistimed,
            "missed": score.missed,
            "spurious": score.spurious,
            "highest_contact_probability": float(np.max(first.contact)),
        }
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        learned, true = slopes(model, system, slope_grid(truth))
        row["slope_rmse"] = float(np.sqrt(np.mean((learned - true) ** 2)))
        row["slope_range"] = float(np.ptp(learned))
    if isinstance(model, CDLagrangeNetwork) and model.learned_damping is not None:
        row["damping"] = float(model.learned_damping()[0, 0])
    return row


def slope_grid(truth: Trajectory) -> np.ndarray:
    """101 positions across the range of the motion, all coordinates together."""
    low, high = truth.position.min(axis=0), truth.position.max(axis=0)
    return low + np.linspace(0, 1, 101)[:, None, None] * (high - low)


def slopes(model, system: AbstractSystem, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∂U/∂q as learned and as it is."""
    places = jnp.asarray(grid, jnp.float32)
    return np.asarray(jax.vmap(model.potential.gradient)(places)), np.asarray(
        jax.vmap(jax.grad(system.potential))(places)
    )


def illustration(
    system: AbstractSystem, truth: Trajectory, recorded, fits, predicted
) -> dict[str, np.ndarray]:
    """What the figures need, for all seeds."""
    noisy = recorded[0][0].runs[0]
    arrays = {
        "time": truth.time,
        "truth_position": truth.position,
        "truth_velocity": truth.velocity,
        "truth_contact": truth.contact,
        "data_position": noisy.position,
        "data_velocity": noisy.velocity,
        "forecast_position": np.stack([motions.position[0] for motions in predicted]),
        "forecast_velocity": np.stack([motions.velocity[0] for motions in predicted]),
        "forecast_contact": np.stack([motions.contact[0] for motions in predicted]),
        "state_loss": np.stack([fit.history.state for fit in fits]),
    }
    model = fits[0].model
    if model.contact.size:
        states = State(
            jnp.asarray(truth.position[:-1], jnp.float32), jnp.asarray(truth.velocity[:-1], jnp.float32)
        )
        on_truth = [jax.nn.sigmoid(jax.vmap(fit.model.contact_logits)(states)) for fit in fits]
        arrays["contact_on_truth"] = np.stack([np.asarray(values) for values in on_truth])
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        grid = slope_grid(truth)
        learned = [slopes(fit.model, system, grid) for fit in fits]
        arrays |= {
            "slope_grid": grid,
            "slope_true": learned[0][1],
            "slope_learned": np.stack([slope for slope, _ in learned]),
        }
    return {
        name: values.astype(np.float32) if values.dtype == np.float64 else values
        for name, values in arrays.items()
    }
