"""What experiments are scored by: forecasts from many starts, impacts, and what a fit says of itself."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from carom.estimation import Fit
from carom.evaluation import ContactScore, contact_score
from carom.models import AbstractModel, Forecast, forecast_many
from carom.types import State

Metrics = dict[str, float | int]
Tree = TypeVar("Tree")


def single(state: State) -> State:
    """A state in the precision of forecasts."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), state)


def stack_states(states: Sequence[Tree]) -> Tree:
    """Many states, or other trees of arrays, as one, whose arrays have an axis over them first."""
    return jax.tree.map(lambda *parts: jnp.stack(parts), *states)


def forecast_each(model: AbstractModel, starts: Sequence[State], steps: int) -> list[Forecast]:
    """Forecasts from many starts, made by one program."""
    # On the host, where taking one of many short motions costs nothing.
    together = jax.device_get(forecast_many(model, stack_states(starts), steps))
    return [Forecast(*(part[index] for part in together)) for index in range(len(starts))]


def score_impacts(predicted: Forecast, touching: Bool[np.ndarray, "samples contacts"]) -> ContactScore:
    """The impacts of the first contact of a forecast beside the true ones."""
    return contact_score(np.asarray(predicted.contact)[:, 0] > 0.5, touching[:, 0])


def fit_metrics(fit: Fit) -> Metrics:
    """What a fit says of itself: whether it failed, what it found, residuals and noise."""
    found = [int(impacts.chosen.sum()) for impacts in fit.impacts]
    return _known(
        {
            "failed": fit.failed,
            "fitted_runs": len(found),
            "found_impacts": sum(found),
            "runs_with_one_impact": found.count(1),
            "set_aside": sum(not impacts.explained for impacts in fit.impacts),
            "excess": fit.diagnostics.excess,
            "near_impacts": fit.diagnostics.near_impacts,
            "position_noise": fit.noise[0],
            "seconds": fit.seconds,
        }
    )


def parameter_metrics(fit: Fit) -> Metrics:
    """Parameters with errors and intervals.

    They are named by their first word, or by what follows a comma: "restitution of body 1 at the wall",
    "restitution between bodies 1 and 2, scatter from run to run".
    """
    metrics = {}
    for parameter in fit.parameters:
        first, _, last = parameter.name.partition(", ")
        # Tables have one column for all parameters of a kind.
        name = last or first.split()[0]
        metrics |= {name: parameter.value, f"{name}_error": parameter.standard_error}
        metrics |= {f"{name}_low": parameter.low, f"{name}_high": parameter.high}
    return _known(metrics)


def _known(metrics: Mapping[str, Any]) -> Metrics:
    """Without what the data do not determine, which would be read back as infinite."""
    return {name: value for name, value in metrics.items() if value is not None and np.isfinite(value)}
