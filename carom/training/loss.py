"""The loss of the paper's recipe, window by window.

    mean squared state error + cross-entropy of the contact signal + ℓ² of the potential's kernels

Each window starts at its first observation as if it were exact; the observed touch drives the impulses.
Without touch there are no labels: the model's own soft contact signal scales its impulses, and there is no
cross-entropy.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.integrators import consecutive
from carom.models import AbstractModel, batched_rollout
from carom.networks import for_training
from carom.training.settings import TrainingSettings
from carom.training.windows import Samples
from carom.types import Scalar, State


class Losses(NamedTuple):
    """The terms of the loss."""

    state: Float[Array, "*shape"]
    contact: Float[Array, "*shape"]
    penalty: Float[Array, "*shape"]


def window_losses(model: AbstractModel, batch: Samples, settings: TrainingSettings, l2: Scalar) -> Losses:
    """State error and contact cross-entropy of every window in a batch, and the ℓ² penalty of the model.

    The strength `l2` is an argument, not that of `settings`, because ensemble members may differ in it.
    """
    model = for_training(model)
    starts, first_target = _starts(model, batch)
    touched, positions = batch.touch[:, first_target:], batch.position[:, first_target:]
    contact = _over_steps(model.contact.from_touch)(touched, positions)
    steps = contact.shape[1]
    given = contact if settings.touch == "observed" else None  # None: the model's own soft signal
    before, after = jax.vmap(consecutive)(batched_rollout(model, starts, given, steps=steps))
    signals = contact if given is not None else _over_steps(model.gate)(before)
    predicted = _over_steps(model.leave)(before, after, signals)

    errors = (predicted.position - positions) ** 2
    if model.predicts_velocity:
        velocity_errors = (predicted.velocity - batch.velocity[:, first_target:]) ** 2
        errors = jnp.concatenate([errors, velocity_errors], axis=-1)
    state = _reduce(jnp.mean(errors, axis=(2, 3)), settings)

    entropy = jnp.zeros_like(state)
    if model.contact.size and settings.touch == "observed":
        if settings.contact_inputs == "observed":
            # Observed inputs are data: no gradient reaches the potential through the half kick of `enter`.
            observed = State(batch.position[:, :-1], batch.velocity[:, :-1])
            before = jax.lax.stop_gradient(_over_steps(model.enter)(observed))
        logits = _over_steps(model.contact_logits)(before)
        touch = batch.touch[:, -logits.shape[1] :]  # the label of a step is the touch at its end
        entropy = _reduce(_over_steps(model.contact.cross_entropy)(logits, touch), settings)

    # Broadcast over the windows, so that all terms are averaged in the same way.
    squares = sum((jnp.sum(kernel**2) for kernel in model.penalised()), jnp.zeros((), state.dtype))
    return Losses(state, entropy, jnp.broadcast_to(l2 * squares, state.shape))


def _starts(model: AbstractModel, batch: Samples) -> tuple[State, int]:
    """Start states of the windows on the model's own grid, and the index of the first predicted sample."""
    if model.predicts_velocity:
        return jax.vmap(model.enter)(State(batch.position[:, 0], batch.velocity[:, 0])), 1
    # A model of positions alone starts from two of them; its velocity is their difference quotient.
    earlier, later = batch.position[:, 0], batch.position[:, 1]
    return State(later, (later - earlier) / model.step_size), 2


def _over_steps(function: Callable) -> Callable:
    """Map over every step of every window as one flat batch: matrix products then have one long axis."""

    def apply(*trees):
        shape = jax.tree.leaves(trees)[0].shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(shape[0] * shape[1], *x.shape[2:]), trees)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), jax.vmap(function)(*flat))

    return apply


def _reduce(per_step: Float[Array, "windows steps"], settings: TrainingSettings) -> Float[Array, "windows"]:
    return (jnp.mean if settings.reduction == "mean" else jnp.sum)(per_step, axis=1)
