"""Forecasts from many states at once."""

from functools import partial
from typing import TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp

from carom.compilation import full_precision
from carom.integrators import consecutive
from carom.models.base import AbstractModel, Forecast, as_forecast, forecast
from carom.models.cd_lagrange_network import CDLagrangeNetwork
from carom.models.contact_signal import NoContact
from carom.types import State

MOST_COORDINATES, MOST_UNITS, WIDEST_SIGNAL = 4, 2048, 128
"""Of a model that the kernel serves: what of it is unrolled, and what is kept beside the states."""


@eqx.filter_jit
@full_precision()
def forecast_many(model: AbstractModel, starts: State, steps: int) -> Forecast:
    """Roll one model out from many states on the sample grid; `forecast` does so from one.

    On a GPU the motions of CD-Lagrange networks are made by one kernel where that serves them, with the same
    results up to rounding but without derivatives; `jax.vmap` of `forecast` has them.

    Arguments:
        model: what moves.
        starts: with an axis over them before their own.
        steps: steps to forecast.

    Example:
        >>> import carom, jax
        >>> import jax.numpy as jnp
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=50, step_size=0.02)
        >>> model = carom.models.CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
        >>> heights = jnp.linspace(5.0, 10.0, 1000)[:, None, None]
        >>> starts = carom.State(heights, jnp.zeros_like(heights))
        >>> carom.models.forecast_many(model, starts, steps=20).position.shape
        (1000, 21, 1, 1)
    """
    wanted = steps > 0 and len(starts.position) > 0 and starts.position.dtype == jnp.float32
    if wanted and is_fusible(model) and jax.default_backend() == "gpu":
        return fused_forecast(model, starts, steps)
    return jax.vmap(partial(forecast, model, steps=steps))(starts)


def is_fusible(model: AbstractModel) -> TypeGuard[CDLagrangeNetwork]:
    """Whether the kernel serves this model: a few coordinates, flat surfaces, contacts that share no body."""
    if not isinstance(model, CDLagrangeNetwork):
        return False
    scene, contact = model.scene, model.contact
    return (
        scene.coordinates <= MOST_COORDINATES
        and scene.geometry.affine
        and not scene.geometry.coupled
        and scene.projection != "inverse_mass"
        and model.learned_inertia is None
        and model.learned_damping is None
        and model.potential.bias.dtype == jnp.float32
        and model.potential.hidden <= MOST_UNITS
        and (isinstance(contact, NoContact) or len(contact.hidden) == 2)
        and max(contact.hidden, default=0) <= WIDEST_SIGNAL
    )


def fused_forecast(
    model: CDLagrangeNetwork, starts: State, steps: int, *, interpret: bool = False
) -> Forecast:
    """The same by one kernel, for models that it serves."""
    from carom.models.fused_rollout import fused_rollout  # Pallas takes long to load

    entered = jax.vmap(model.enter)(starts)
    own = fused_rollout(model, entered, steps, interpret=interpret)

    def by_start(first, of_steps):
        following = jnp.moveaxis(of_steps, -1, 0).reshape(len(first), steps, *first.shape[1:])
        return jnp.concatenate([first[:, None], following], axis=1)

    states = State(by_start(entered.position, own.position), by_start(entered.velocity, own.velocity))
    logits = jnp.moveaxis(own.logits, -1, 0)

    def one(start, states, logits):
        later = jax.vmap(model.leave)(*consecutive(states), logits > 0)
        return as_forecast(start, later, logits)

    return jax.vmap(one)(starts, states, logits)
