"""Epochs of the paper's recipe as one compiled program: Adam on minibatches, for many models at once."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from carom.compilation import full_precision
from carom.training.ensembles import map_members, tree_bytes
from carom.training.loss import Losses, window_losses
from carom.training.settings import TrainingSettings
from carom.training.windows import RecordedWindows, Samples, minibatch, shuffled

ADAM = optax.scale_by_adam()
"""Adam without its learning rate, which may differ between the members of an ensemble."""


class Rates(NamedTuple):
    """Hyperparameters of which every ensemble member may have its own values."""

    learning_rate: Float[Array, "*members"]
    l2: Float[Array, "*members"]


class Program(NamedTuple):
    """Everything a compiled program depends on besides shapes.

    Arguments:
        settings: hyperparameters, with the epochs of one call. Learning rate and ℓ² are inputs of the
            program; here they must be the same for all programs, or each would compile anew.
        rounds: sorts per shuffling of the windows.
        shared: whether all members are trained on one recording.
        devices: number of devices that members are split over.
    """

    settings: TrainingSettings
    rounds: int
    shared: bool
    devices: int


@eqx.filter_jit
@full_precision()
def train_epochs(
    program: Program, carry, windows: RecordedWindows, rates: Rates, count: Array, steps: Array, fixed: PyTree
):
    """Train all members for `program.settings.epochs` epochs.

    Arguments:
        program: what the compiled program depends on.
        carry: weights, state of Adam and random key of every member.
        windows: of every member, or the shared ones.
        rates: learning rate and ℓ² of every member.
        count: number of windows that are not padding.
        steps: gradient steps of the whole training, for the schedule.
        fixed: the parts of the model that are not trained.
    """
    batched = (True, not program.shared, True, False, False)
    # Count, steps and a shared recording are not copied for every member.
    train = map_members(partial(_train_one, program, fixed), batched, devices=program.devices)
    return train(carry, windows, rates, count, steps)


def _train_one(program: Program, fixed: PyTree, carry, windows: RecordedWindows, rates: Rates, count, steps):
    settings, length = program.settings, len(windows.starts)
    size = min(settings.batch_size, length)

    def step(order, number, carry):
        parameters, optimiser_state, losses, sizes = carry
        index, counts = minibatch(order, number, count, size=size)
        chosen = windows.batch(index, settings.horizon)
        weight = counts.astype(rates.l2.dtype)  # 0 for the padding of the last batch
        gradient, means = jax.grad(_loss(settings, fixed), has_aux=True)(parameters, chosen, weight, rates.l2)
        rate = rates.learning_rate
        if settings.schedule == "cosine":
            # optax.cosine_decay_schedule would compile the number of steps in as a constant.
            done = jnp.minimum(optimiser_state.count.astype(steps.dtype), steps)
            rate = rate * (0.5 * (1 + jnp.cos(jnp.pi * done / steps)))
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            updates, optimiser_state = ADAM.update(gradient, optimiser_state, parameters)
        # By hand, since the rate is an array of the member and no constant of the optimiser.
        parameters = jax.tree.map(lambda old, update: old - rate * update, parameters, updates)
        losses = jax.tree.map(lambda values, mean: values.at[number].set(mean), losses, means)
        return parameters, optimiser_state, losses, sizes.at[number].set(jnp.sum(weight))

    def epoch(carry, _):
        parameters, optimiser_state, key = carry
        key, order_key = jax.random.split(key)
        order = shuffled(order_key, count, length=length, rounds=program.rounds)
        zeros = jnp.zeros(-(-length // size), rates.l2.dtype)
        start = (parameters, optimiser_state, Losses(zeros, zeros, zeros), zeros)
        # The trip count is an input, so that padded windows cost no gradient steps.
        parameters, optimiser_state, losses, sizes = jax.lax.fori_loop(
            0, -(-count // size), partial(step, order), start
        )
        means = jax.tree.map(lambda part: jnp.sum(sizes * part) / jnp.sum(sizes), losses)
        return (parameters, optimiser_state, key), means

    return jax.lax.scan(epoch, carry, length=settings.epochs)


def _loss(settings: TrainingSettings, fixed: PyTree):
    def loss(parameters, chosen: Samples, weight: Float[Array, "windows"], l2: Float[Array, ""]):
        losses = window_losses(eqx.combine(parameters, fixed), chosen, settings, l2)
        mean = Losses(*(jnp.sum(weight * part) / jnp.sum(weight) for part in losses))
        return sum(mean), mean

    return loss


def bytes_each(
    settings: TrainingSettings, parameters: PyTree, windows: RecordedWindows, fixed: PyTree, *, shared: bool
) -> int:
    """An estimate of the memory that one member needs, from the shapes kept for the backward pass."""
    one = partial(jax.tree.map, lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype))
    own = one(parameters)
    windows = windows if shared else one(windows)
    size = min(settings.batch_size, len(windows.starts))

    def kept(parameters, windows: RecordedWindows):
        index, weight = jnp.zeros(size, jnp.int32), jnp.zeros(size, windows.samples.position.dtype)
        chosen = windows.batch(index, settings.horizon)
        loss = partial(_loss(settings, fixed), chosen=chosen, weight=weight, l2=weight[0])
        return chosen, jax.vjp(loss, parameters, has_aux=True)[1]

    backward = tree_bytes(jax.eval_shape(kept, own, windows))
    data = 0 if shared else tree_bytes(windows)
    # Weights with their two moments before and after, gradient and step; the order with keys, sorted and not.
    return 2 * backward + 8 * tree_bytes(own) + 16 * len(windows.starts) + data
