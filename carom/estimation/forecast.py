"""Forecasts with a band: what a model expects, and what others expect that the data do not tell from it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from carom.compilation import full_precision
from carom.data import Run
from carom.estimation.last_state import Stretch, last_state, last_stretch
from carom.forces import AbstractForce, AbstractLearnedPotential, LinearisedPotentialForce
from carom.models import (
    AbstractModel,
    Forecast,
    Mechanism,
    forecast,
)
from carom.types import State

COVERED = 0.9
"""The share of the alternatives that a band holds, at every instant."""


class BandedForecast(NamedTuple):
    """A forecast on the sample grid from its start on; the band is None where nothing is known of it.

    Arguments:
        position, velocity: what the model expects.
        contact: whether each contact happens at a sample.
        low, high: what nine of ten alternatives lie between, positions and velocities.
        members: number of alternatives.
    """

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]
    contact: Bool[np.ndarray, "samples signals"]
    low: Float[np.ndarray, "2 samples bodies dimension"] | None
    high: Float[np.ndarray, "2 samples bodies dimension"] | None
    members: int

    @property
    def finite(self) -> bool:
        """Whether what the model expects stays within bounds."""
        return bool(np.isfinite(self.position).all() and np.isfinite(self.velocity).all())


def forecast_from(
    model: AbstractModel, start: State, steps: int, *, alternatives: AbstractModel | None = None
) -> BandedForecast:
    """Forecast from a state that is known exactly.

    Arguments:
        model: what moves.
        start: positions and velocities.
        steps: steps to forecast.
        alternatives: models that the data do not tell from this one, with an axis over them before all
            others, such as `Fit.samples`.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall()
        >>> recording = carom.simulate(ball, steps=150, step_size=0.02, noise=0.1, seed=1)
        >>> fit = carom.fit(recording)
        >>> ahead = forecast_from(fit.model, ball.start, 50, alternatives=fit.samples)
        >>> width = (ahead.high - ahead.low)[0, :, 0, 0]
        >>> bool(width[0] == 0 < width[25] < width[50])
        True
    """
    with jax.enable_x64(True):
        models = _together(model, alternatives)
        start = State(jnp.asarray(start.position, jnp.float64), jnp.asarray(start.velocity, jnp.float64))
        count = _count(models)
        starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), start)
        return _banded(_forecast_all(models, starts, steps))


def forecast_after(
    model: AbstractModel,
    run: Run,
    steps: int,
    *,
    alternatives: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
) -> BandedForecast:
    """Forecast from the end of a recording, where the last state is as uncertain as noise makes it.

    Arguments:
        model: what moves.
        run: what came before; only its last stretch is looked at.
        steps: steps to forecast.
        alternatives: models that the data do not tell from this one.
        noise: standard deviations of positions and velocities; by default from how rough the motion is.
        seed: of the draws of last states.
    """
    stretch = last_stretch(run, model.scene, noise)
    with jax.enable_x64(True):
        models = _together(model, alternatives)
        normal = np.random.default_rng(seed).standard_normal((_count(models), stretch.guess.size))
        likeliest, drawn = _last_states(models, stretch, jnp.asarray(normal))
        starts = jax.tree.map(lambda a, b: jnp.concatenate([a[:1], b[1:]]), likeliest, drawn)
        return _banded(_forecast_all(models, starts, steps))


@eqx.filter_jit
@full_precision()
def _last_states(models: AbstractModel, stretch: Stretch, normal: Float[Array, "models state"]):
    return eqx.filter_vmap(last_state, in_axes=(eqx.if_array(0), None, 0))(models, stretch, normal)


@eqx.filter_jit
@full_precision()
def _forecast_all(models: AbstractModel, starts: State, steps: int) -> Forecast:
    return eqx.filter_vmap(forecast, in_axes=(eqx.if_array(0), 0, None))(models, starts, steps)


def _together(model: AbstractModel, alternatives: AbstractModel | None) -> AbstractModel:
    """The model and its alternatives along one axis, in double precision: one program serves them all."""
    if isinstance(model, Mechanism) and isinstance(alternatives, Mechanism):
        forces = tuple(
            LinearisedPotentialForce(force, jax.tree.map(jnp.zeros_like, force.network))
            if isinstance(force, AbstractLearnedPotential)
            else force
            for force in model.forces
        )
        model = eqx.tree_at(lambda m: m.forces, model, forces, is_leaf=lambda x: isinstance(x, AbstractForce))

    def joined(first, *others):
        if not eqx.is_array(first):
            return first
        return jnp.concatenate([jnp.asarray(part, jnp.float64) for part in (first[None], *others)])

    return jax.tree.map(joined, model, *([] if alternatives is None else [alternatives]))


def _count(models: AbstractModel) -> int:
    return len(jax.tree.leaves(eqx.filter(models, eqx.is_array))[0])


def _banded(paths: Forecast) -> BandedForecast:
    """The first of several forecasts, and what the others span."""
    low = high = None
    others = np.stack([np.asarray(paths.position[1:]), np.asarray(paths.velocity[1:])], axis=1)
    # A member whose forecast leaves all bounds says nothing that can be drawn.
    others = others[np.isfinite(others).all(axis=(1, 2, 3, 4))]
    if len(others) > 1:
        # Weibull's places: of one more draw the band holds this share on average, however few there are.
        ends = [0.5 * (1 - COVERED), 0.5 * (1 + COVERED)]
        low, high = np.quantile(others, ends, axis=0, method="weibull")
    return BandedForecast(
        np.asarray(paths.position[0]),
        np.asarray(paths.velocity[0]),
        np.asarray(paths.contact[0]) > 0.5,
        low,
        high,
        len(others),
    )
