"""Rollouts of many windows at once, laid out for training."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from carom.integrators import rollout as repeat
from carom.models.base import AbstractModel
from carom.types import State


def batched_rollout(
    model: AbstractModel, start: State, contact: Bool[Array, "windows steps signals"] | None, *, steps: int
) -> State:
    """States (windows, steps + 1) on the model's own grid, from `start` (windows) on that grid.

    `contact` gives the contacts of every step; None lets the model's own soft signal gate its impulses.

    All windows take a step together. Unrolled, the activations of a step stay where the backward pass finds
    them, instead of being copied into and out of one array over all steps.
    """

    def step(states: State, given):
        signals = jax.vmap(model.gate)(states) if given is None else given
        return jax.vmap(model.step)(states, signals), None

    by_step = None if contact is None else jnp.swapaxes(contact, 0, 1)
    # Sweeps over coupled contacts compile slowly: they are not unrolled.
    unroll = 1 if model.scene.geometry.coupled else min(steps, 10)
    states, _ = repeat(step, start, inputs=by_step, steps=steps, unroll=unroll)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), states)
