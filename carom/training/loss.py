"""The loss of the paper's recipe, window by window.

    mean squared state error + cross-entropy of the contact signal + ℓ² of the potential's kernels

Each window starts at its first observation as if it were true; the observed touch drives the impulses.
Without touch there are no labels: the model's own soft contact signal gates its impulses, and the
cross-entropy is absent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from annotated_types import Ge, Gt
from jaxtyping import Array, Bool, Float

from carom.integrators import consecutive
from carom.models import AbstractModel, batched_rollout, for_training
from carom.types import Scalar, State
from carom.validation import require_valid

Touch = Literal["observed", "none"]
Schedule = Literal["constant", "cosine"]
Reduction = Literal["mean", "sum"]
ContactInputs = Literal["observed", "predicted"]


@dataclass(frozen=True)
class WindowedSettings:
    """Hyperparameters of the paper's recipe.

    The defaults are ones that serve; those of the paper and of its code are in
    `carom.reproduction.paper.experiments`.

    Arguments:
        horizon: steps per window.
        stride: samples between window starts; 1 gives overlapping windows, horizon + 1 disjoint ones.
        batch_size: windows per gradient step.
        epochs: passes over all windows.
        learning_rate: of Adam.
        schedule: whether the rate stays constant or falls to zero along a cosine.
        l2: strength of ℓ² on the potential's kernels.
        reduction: whether errors are averaged ("mean", the text) or summed ("sum", the published code) over
            the horizon.
        contact_inputs: whether the contact signal's cross-entropy is evaluated on observed states and their
            drift (the text) or on predicted ones (the published code).
        touch: whether recorded touch drives the impulses, or there is none.
    """

    horizon: Annotated[int, Ge(1)] = 10
    stride: Annotated[int, Ge(1)] = 1
    batch_size: Annotated[int, Ge(1)] = 32
    epochs: Annotated[int, Ge(1)] = 600
    learning_rate: Annotated[float, Gt(0)] = 1e-2
    schedule: Schedule = "cosine"
    l2: Annotated[float, Ge(0)] = 1e-4
    reduction: Reduction = "sum"
    contact_inputs: ContactInputs = "observed"
    touch: Touch = "observed"

    def __post_init__(self):
        require_valid(self)


class Losses(NamedTuple):
    """The parts of the loss, per epoch."""

    state: Float[Array, "*shape"]
    contact: Float[Array, "*shape"]
    penalty: Float[Array, "*shape"]


class WindowBatch(NamedTuple):
    """Windows as arrays in the precision of the weights."""

    position: Float[Array, "windows samples bodies dimension"]
    velocity: Float[Array, "windows samples bodies dimension"]
    touch: Bool[Array, "windows samples bodies"]


def window_losses(
    model: AbstractModel, batch: WindowBatch, settings: WindowedSettings, l2: Scalar | None = None
) -> Losses:
    """State error and contact cross-entropy of every window in a batch, and the ℓ² penalty of the model.

    `l2` is its strength where that is not the one in `settings`.
    """
    model = for_training(model)
    starts, first_target = _starts(model, batch)
    contact = _over_steps(model.contact.from_touch)(
        batch.touch[:, first_target:], batch.position[:, first_target:]
    )
    steps = contact.shape[1]
    given = contact if settings.touch == "observed" else None
    own = batched_rollout(model, starts, given, steps=steps)
    before, after = jax.vmap(consecutive)(own)
    signals = contact if given is not None else _over_steps(model.gate)(before)
    predicted = _over_steps(model.leave)(before, after, signals)

    errors = (predicted.position - batch.position[:, first_target:]) ** 2
    if model.predicts_velocity:
        velocity_errors = (predicted.velocity - batch.velocity[:, first_target:]) ** 2
        errors = jnp.concatenate([errors, velocity_errors], axis=-1)
    state = _reduce(jnp.mean(errors, axis=(2, 3)), settings)

    entropy = jnp.zeros_like(state)
    if model.contact.size and settings.touch == "observed":
        if settings.contact_inputs == "observed":
            observed = State(batch.position[:, :-1], batch.velocity[:, :-1])
            before = jax.lax.stop_gradient(_over_steps(model.enter)(observed))
        logits = _over_steps(model.contact_logits)(before)
        touch = batch.touch[:, -logits.shape[1] :]
        entropy = _reduce(_over_steps(model.contact.cross_entropy)(logits, touch), settings)

    penalty = (settings.l2 if l2 is None else l2) * sum(
        (jnp.sum(kernel**2) for kernel in model.penalised()), jnp.zeros((), state.dtype)
    )
    return Losses(state, entropy, jnp.broadcast_to(penalty, state.shape))


def _starts(model: AbstractModel, batch: WindowBatch) -> tuple[State, int]:
    """Start states of the windows on the model's own grid, and the first sample that is predicted."""
    if model.predicts_velocity:
        return jax.vmap(model.enter)(State(batch.position[:, 0], batch.velocity[:, 0])), 1
    # A model of positions alone starts from two of them; its own velocity is their difference.
    earlier, later = batch.position[:, 0], batch.position[:, 1]
    return State(later, (later - earlier) / model.step_size), 2


def _over_steps(function: Callable) -> Callable:
    """Apply to every step of every window, as one flat batch: matrix products then have one long axis."""

    def apply(*trees):
        shape = jax.tree.leaves(trees)[0].shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(shape[0] * shape[1], *x.shape[2:]), trees)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), jax.vmap(function)(*flat))

    return apply


def _reduce(per_step: Float[Array, "windows steps"], settings: WindowedSettings) -> Float[Array, "windows"]:
    return (jnp.mean if settings.reduction == "mean" else jnp.sum)(per_step, axis=1)
