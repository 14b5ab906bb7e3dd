"""The paper's training loop as one compiled program: Adam on minibatches, of many models at once."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from carom.compilation import full_precision
from carom.training.ensembles import over_members, tree_bytes
from carom.training.loss import Losses, WindowBatch, WindowedSettings, window_losses
from carom.training.minibatches import minibatch, shuffled, sorts
from carom.training.windows import RecordedWindows

ADAM = optax.scale_by_adam()
"""What is left of Adam without its rate, which may differ from model to model."""


class Rates(NamedTuple):
    """Hyperparameters that models trained together may each have for themselves."""

    learning_rate: Float[Array, "*members"]
    l2: Float[Array, "*members"]


@dataclass(frozen=True)
class Program:
    """All that a compiled program depends on besides shapes.

    Arguments:
        settings: hyperparameters; those that are numbers in the program, and all epochs, are left out.
        epochs: passes over all windows.
        sorts: as often the numbers of windows are sorted to shuffle them.
        shared: whether all models learn from one recording.
        devices: over how many the models are split.
    """

    settings: WindowedSettings
    epochs: int
    sorts: int
    shared: bool
    devices: int

    @classmethod
    def of(cls, settings: WindowedSettings, *, windows: int, shared: bool) -> "Program":
        """One epoch on one device."""
        return cls(replace(settings, learning_rate=1.0, l2=0.0, epochs=1), 1, sorts(windows), shared, 1)


@eqx.filter_jit
@full_precision()
def train(
    program: Program, carry, windows: RecordedWindows, rates: Rates, count: Array, steps: Array, fixed: PyTree
):
    """Train all models for some epochs; one program for every chunk of a fit, and for every fit alike."""
    each = (True, not program.shared, True, False, False)
    train = over_members(partial(_train_one, program, fixed), each, devices=program.devices)
    return train(carry, windows, rates, count, steps)


def _train_one(program: Program, fixed: PyTree, carry, windows: RecordedWindows, rates: Rates, count, steps):
    settings, length = program.settings, len(windows.starts)
    size = min(settings.batch_size, length)
    batches = -(-length // size)  # with those that are left out

    def step(order, number, carry):
        parameters, optimiser_state, losses, sizes = carry
        index, counts = minibatch(order, number, count, size=size)
        chosen = windows.batch(index, settings.horizon)
        weight = counts.astype(rates.l2.dtype)
        gradient, means = jax.grad(_loss(program, fixed), has_aux=True)(parameters, chosen, weight, rates.l2)
        rate = rates.learning_rate
        if settings.schedule == "cosine":
            done = jnp.minimum(optimiser_state.count.astype(steps.dtype), steps)
            rate = rate * (0.5 * (1 + jnp.cos(jnp.pi * done / steps)))
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            updates, optimiser_state = ADAM.update(gradient, optimiser_state, parameters)
        parameters = jax.tree.map(lambda old, update: old - rate * update, parameters, updates)
        losses = jax.tree.map(lambda all_of_it, one: all_of_it.at[number].set(one), losses, means)
        return parameters, optimiser_state, losses, sizes.at[number].set(jnp.sum(weight))

    def epoch(carry, _):
        parameters, optimiser_state, key = carry
        key, order_key = jax.random.split(key)
        order = shuffled(order_key, count, length=length, sorts=program.sorts)
        nothing = jnp.zeros(batches, rates.l2.dtype)
        parameters, optimiser_state, losses, sizes = jax.lax.fori_loop(
            0,
            -(-count // size),
            partial(step, order),
            (parameters, optimiser_state, Losses(nothing, nothing, nothing), nothing),
        )
        means = jax.tree.map(lambda part: jnp.sum(sizes * part) / jnp.sum(sizes), losses)
        return (parameters, optimiser_state, key), means

    return jax.lax.scan(epoch, carry, length=program.epochs)


def _loss(program: Program, fixed: PyTree):
    def loss(parameters, chosen: WindowBatch, weight: Float[Array, "windows"], l2: Float[Array, ""]):
        losses = window_losses(eqx.combine(parameters, fixed), chosen, program.settings, l2)
        mean = Losses(*(jnp.sum(weight * part) / jnp.sum(weight) for part in losses))
        return sum(mean), mean

    return loss


def bytes_each(program: Program, parameters: PyTree, windows: RecordedWindows, fixed: PyTree) -> int:
    """What one model needs while it is trained, by the shapes of all that is kept for the backward pass."""
    one = partial(jax.tree.map, lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype))
    own = one(parameters)
    windows = windows if program.shared else one(windows)
    size = min(program.settings.batch_size, len(windows.starts))

    def kept(parameters, windows: RecordedWindows):
        index, weight = jnp.zeros(size, jnp.int32), jnp.zeros(size, windows.position.dtype)
        chosen = windows.batch(index, program.settings.horizon)
        loss = partial(_loss(program, fixed), chosen=chosen, weight=weight, l2=weight[0])
        return chosen, jax.vjp(loss, parameters, has_aux=True)[1]

    backward = tree_bytes(jax.eval_shape(kept, own, windows))
    # Weights with their two moments before and after, gradient and step; the order with keys, sorted and not.
    return (
        2 * backward
        + 8 * tree_bytes(own)
        + 16 * len(windows.starts)
        + (0 if program.shared else tree_bytes(windows))
    )
