"""Metrics of one trained model on the recorded span and from held-out starts, and the arrays of figures."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.data import Run
from carom.evaluation import contact_score, paper_rmse, position_rmse, velocity_rmse
from carom.models import (
    AbstractModel,
    CDLagrangeNetwork,
    Forecast,
    VariationalIntegratorNetwork,
    forecast_many,
)
from carom.systems import AbstractSystem
from carom.types import State, Trajectory


def held_out_forecasts(
    model: AbstractModel, starts: Sequence[State], motions: Sequence[Trajectory]
) -> tuple[list[float], int]:
    """Errors from held-out starts, and the number of impacts there that are mistimed, missed or spurious."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    predicted = forecast_many(model, stacked, len(motions[0].time) - 1)
    errors, wrong = [], 0
    for index, motion in enumerate(motions):
        one = jax.tree.map(lambda x, i=index: x[i], predicted)
        errors.append(paper_rmse(one, motion, velocities=model.predicts_velocity))
        if motion.contact.shape[1] and one.contact.shape[1]:
            wrong += contact_score(np.asarray(one.contact[:, 0]) > 0.5, motion.contact[:, 0]).faults
    return errors, wrong


def score(
    model: AbstractModel, system: AbstractSystem, predicted: Forecast, truths: Sequence[Trajectory]
) -> dict[str, float]:
    """All metrics of one seed.

    Arguments:
        model: as it was trained.
        system: the true mechanics.
        predicted: forecasts from the recorded start and then from the held-out ones.
        truths: the true motions from the same starts.
    """
    first, truth = jax.tree.map(lambda x: x[0], predicted), truths[0]
    errors = [
        paper_rmse(jax.tree.map(lambda x, i=i: x[i], predicted), motion, velocities=model.predicts_velocity)
        for i, motion in enumerate(truths)
    ]
    # A forecast that diverged counts as an infinite error.
    held_out = np.nan_to_num(errors[1:], nan=np.inf)
    metrics = {
        "paper_rmse": errors[0],
        "position_rmse": position_rmse(first, truth),
        "velocity_rmse": velocity_rmse(first, truth),
        "held_out_median": float(np.median(held_out)),
        "energy_error": energy_error(system, first, truth),
    }
    if first.contact.shape[1]:
        # Models distinguish contacts or bodies, so that only whether there is any can be compared.
        touch = np.any(np.asarray(first.contact) > 0.5, axis=1)
        metrics |= contact_score(touch, np.any(truth.contact, axis=1)).counts
        metrics["highest_contact_probability"] = float(np.max(first.contact))
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        # Over the range that the motion visits; elsewhere nothing was learned.
        learned, true = slopes(model, system, slope_grid(truth))
        metrics["slope_rmse"] = float(np.sqrt(np.mean((learned - true) ** 2)))
        metrics["slope_range"] = float(np.ptp(learned))
    if isinstance(model, CDLagrangeNetwork) and model.learned_damping is not None:
        metrics["damping"] = float(model.learned_damping()[0, 0])
    if isinstance(model, CDLagrangeNetwork) and model.learned_inertia is not None:
        # The common scale of M and U is free, so that only ratios are compared.
        factor = model.learned_inertia().factor
        inertia = np.asarray(factor @ factor.T, float)
        metrics["mass_ratio"] = inertia[1, 1] / inertia[0, 0]
        metrics["mass_coupling"] = inertia[0, 1] / np.sqrt(inertia[0, 0] * inertia[1, 1])
    return metrics


def energy_error(system: AbstractSystem, motion: Forecast, truth: Trajectory) -> float:
    """Energy that a forecast has gained on the truth over its last tenth, relative to that at the start.

    A mean over many samples, since the energy of a symplectic scheme oscillates about its own level.
    """
    # In double precision: energies are differences of large numbers.
    predicted = truth._replace(
        position=np.asarray(motion.position, float), velocity=np.asarray(motion.velocity, float)
    )
    gained = system.energies(predicted) - system.energies(truth)
    return float(np.mean(gained[-(len(gained) // 10) :]) / system.energies(truth)[0])


def slope_grid(truth: Trajectory) -> Float[np.ndarray, "points bodies dimension"]:
    """101 positions across the range of the motion, all coordinates together."""
    low, high = truth.position.min(axis=0), truth.position.max(axis=0)
    return low + np.linspace(0, 1, 101)[:, None, None] * (high - low)


def slopes(model, system: AbstractSystem, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∂U/∂q as learned and as it is."""
    functions = model.potential.gradient, jax.grad(system.potential)
    learned, true = (np.asarray(jax.vmap(of)(jnp.asarray(grid, jnp.float32))) for of in functions)
    return learned, true


def figure_arrays(
    system: AbstractSystem,
    truth: Trajectory,
    runs: Sequence[Run],
    models: Sequence[AbstractModel],
    predicted: Sequence[Forecast],
) -> dict[str, np.ndarray]:
    """What `carom.reproduction.paper.figures` draws of one trial.

    The data are those of the first seed, forecasts and learned functions of all seeds, in their order.
    `contact_on_truth[:, n]` is the probability of touch in the step that arrives at sample n + 1.
    """
    arrays = {"time": truth.time, "truth_contact": truth.contact}
    arrays["data_time"] = np.concatenate([run.time for run in runs])
    for name in ("position", "velocity"):
        arrays[f"truth_{name}"] = getattr(truth, name)
        arrays[f"data_{name}"] = np.concatenate([getattr(run, name) for run in runs])
        arrays[f"forecast_{name}"] = np.stack([getattr(motions, name)[0] for motions in predicted])
    if models[0].contact.size:
        states = State(*(jnp.asarray(part[:-1], jnp.float32) for part in (truth.position, truth.velocity)))
        on_truth = [jax.nn.sigmoid(jax.vmap(model.contact_logits)(states)) for model in models]
        arrays["contact_on_truth"] = np.stack([np.asarray(values) for values in on_truth])
    if isinstance(models[0], CDLagrangeNetwork | VariationalIntegratorNetwork):
        grid = slope_grid(truth)
        learned = [slopes(model, system, grid) for model in models]
        arrays |= {
            "slope_grid": grid,
            "slope_true": learned[0][1],
            "slope_learned": np.stack([slope for slope, _ in learned]),
        }
    return {
        name: values.astype(np.float32) if values.dtype == np.float64 else values
        for name, values in arrays.items()
    }
