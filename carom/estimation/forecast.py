"""Forecasts with a credible band from posterior samples of the model."""

from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from carom.compilation import full_precision
from carom.data import Run
from carom.estimation.last_state import FinalWindow, final_window, last_state
from carom.forces import AbstractLearnedPotential, LinearisedPotentialForce
from carom.models import AbstractModel, Forecast, Mechanism, forecast
from carom.types import State

COVERAGE = 0.9
"""Probability that a band contains a value, at every instant."""


class BandedForecast(NamedTuple):
    """A forecast on the sample grid, including its start; the band is None without posterior samples.

    Arguments:
        position, velocity: the forecast of the model.
        contact: whether each contact is active at a sample.
        low, high: 90 % credible band of positions and velocities.
        members: number of posterior samples behind the band.
    """

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]
    contact: Bool[np.ndarray, "samples signals"]
    low: Float[np.ndarray, "2 samples bodies dimension"] | None
    high: Float[np.ndarray, "2 samples bodies dimension"] | None
    members: int

    @property
    def finite(self) -> bool:
        """Whether the forecast of the model has not diverged."""
        return bool(np.isfinite(self.position).all() and np.isfinite(self.velocity).all())


def forecast_from(
    model: AbstractModel, start: State, steps: int, *, samples: AbstractModel | None = None
) -> BandedForecast:
    """Forecast from a state that is known exactly.

    Arguments:
        model: the fitted model.
        start: positions and velocities.
        steps: number of steps.
        samples: posterior samples of the model, stacked along the first axis of all arrays, such as
            `Fit.samples`.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall()
        >>> recording = carom.simulate(ball, steps=250, step_size=0.02, noise=0.1, seed=1)
        >>> fit = carom.fit(recording, learn=["restitution"])
        >>> ahead = forecast_from(fit.model, ball.start, 50, samples=fit.samples)
        >>> width = (ahead.high - ahead.low)[0, :, 0, 0]
        >>> bool(width[0] == 0 < width[25] < width[50])
        True
    """
    with jax.enable_x64(True):
        models = _stack_models(model, samples)
        start = State(jnp.asarray(start.position, jnp.float64), jnp.asarray(start.velocity, jnp.float64))
        count = _count(models)
        starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), start)
        return _banded(_forecast_all(models, starts, steps))


def forecast_after(
    model: AbstractModel,
    run: Run,
    steps: int,
    *,
    samples: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
) -> BandedForecast:
    """Forecast from the end of a recording, with the uncertainty of its last state.

    Arguments:
        model: the fitted model.
        run: the recorded motion; only its final samples are used.
        steps: number of steps.
        samples: posterior samples of the model, as in `forecast_from`.
        noise: standard deviations of positions and velocities; by default estimated from the run.
        seed: of the samples of the last state.
    """
    window = final_window(run, model.scene, noise)
    with jax.enable_x64(True):
        models = _stack_models(model, samples)
        normal = np.random.default_rng(seed).standard_normal((_count(models), window.guess.size))
        likeliest, sampled = _last_states(models, window, jnp.asarray(normal))
        # The model itself starts from its likeliest state, each sample from a random one.
        starts = jax.tree.map(lambda a, b: jnp.concatenate([a[:1], b[1:]]), likeliest, sampled)
        return _banded(_forecast_all(models, starts, steps))


@eqx.filter_jit
@full_precision()
def _last_states(models: AbstractModel, window: FinalWindow, normal: Float[Array, "models state"]):
    return eqx.filter_vmap(last_state, in_axes=(eqx.if_array(0), None, 0))(models, window, normal)


@eqx.filter_jit
@full_precision()
def _forecast_all(models: AbstractModel, starts: State, steps: int) -> Forecast:
    return eqx.filter_vmap(forecast, in_axes=(eqx.if_array(0), 0, None))(models, starts, steps)


def _stack_models(model: AbstractModel, samples: AbstractModel | None) -> AbstractModel:
    """The model followed by its samples along one axis, in double precision, for one compiled program."""
    if isinstance(model, Mechanism) and isinstance(samples, Mechanism):
        # Samples have linearised potentials; that of the model has the perturbation 0.
        forces = tuple(
            LinearisedPotentialForce(force, jax.tree.map(jnp.zeros_like, force.network))
            if isinstance(force, AbstractLearnedPotential)
            else force
            for force in model.forces
        )
        model = replace(model, forces=forces)

    def stacked(first, *others):
        if not eqx.is_array(first):
            return first
        return jnp.concatenate([jnp.asarray(part, jnp.float64) for part in (first[None], *others)])

    return jax.tree.map(stacked, model, *([] if samples is None else [samples]))


def _count(models: AbstractModel) -> int:
    return len(jax.tree.leaves(eqx.filter(models, eqx.is_array))[0])


def _banded(paths: Forecast) -> BandedForecast:
    """The first of several forecasts, with a band from quantiles of the others."""
    low = high = None
    others = np.stack([np.asarray(paths.position[1:]), np.asarray(paths.velocity[1:])], axis=1)
    # Samples whose forecasts diverge are left out: quantiles of them are not finite.
    others = others[np.isfinite(others).all(axis=(1, 2, 3, 4))]
    if len(others) > 1:
        # Weibull's plotting positions: the band has the right coverage on average, however few samples.
        ends = [0.5 * (1 - COVERAGE), 0.5 * (1 + COVERAGE)]
        low, high = np.quantile(others, ends, axis=0, method="weibull")
    return BandedForecast(
        np.asarray(paths.position[0]),
        np.asarray(paths.velocity[0]),
        np.asarray(paths.contact[0]) > 0.5,
        low,
        high,
        len(others),
    )
