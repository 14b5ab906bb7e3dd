"""Motions of one kind of model from many starts, by one compiled program whatever their number and length.

Motions are computed a block at a time: a fixed number of them, over a fixed number of steps, by as many
threads as there are processors. There are no derivatives: finite differences of the starts take their place.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from carom.compilation import full_precision
from carom.integrators import BY_GAP, EXCLUDED, ConstraintExact, step_many
from carom.models import AbstractModel, Mechanism, forecast
from carom.storage.program_cache import CachedFunction
from carom.types import PerContact, State

LANES, STEPS = 260, 64
"""Motions and steps of a block: enough to make the overhead of a step small, few enough for the cache; four
times a model and its 64 posterior samples."""
HITS = 64
"""Impacts after which the deviations of their restitution repeat."""


class Motions(NamedTuple):
    """At the start and after every step; contacts are those of the step before."""

    position: Float[np.ndarray, "*motions samples bodies dimension"]
    velocity: Float[np.ndarray, "*motions samples bodies dimension"]
    contact: Bool[np.ndarray, "*motions samples signals"]


class _Scattered(eqx.Module):
    """A law of restitution, and by how much the next hit deviates from it."""

    law: eqx.Module
    deviation: Float[Array, "*lanes contacts"]

    def coefficient(self, rate: PerContact) -> PerContact:
        return jnp.clip(self.law.coefficient(rate) + self.deviation, 0, 1)  # pyright: ignore


def steps_freely(model: AbstractModel) -> bool:
    """Whether a model can be advanced by steps of any length, backwards too."""
    return isinstance(model, Mechanism) and isinstance(model.stepper, ConstraintExact)


def stack_models(model: AbstractModel, *others: AbstractModel) -> AbstractModel:
    """A model, followed by stacked ones, along one axis of all arrays, in double precision."""

    def stacked(first, *rest):
        if not isinstance(first, float) and not eqx.is_inexact_array_like(first):
            return first
        # What is no array, such as a step size, is the same for all.
        parts = [part for part in rest if np.ndim(part) > np.ndim(first)]
        return np.concatenate([np.asarray(part, float) for part in (np.asarray(first)[None], *parts)])

    return jax.tree.map(stacked, model, *others)


def one_model(models: AbstractModel, index: int) -> AbstractModel:
    """A stack of one of several models."""
    return jax.tree.map(lambda leaf: leaf[index : index + 1] if eqx.is_array(leaf) else leaf, models)


def count_models(models: AbstractModel) -> int:
    """How many are stacked."""
    return len(jax.tree.leaves(eqx.filter(models, eqx.is_array))[0])


def follow(
    models: AbstractModel,
    position: Float[np.ndarray, "runs variants bodies dimension"],
    velocity: Float[np.ndarray, "runs variants bodies dimension"],
    durations: Float[np.ndarray, "runs steps"],
    *,
    contacts: bool = True,
    deviations: Float[np.ndarray, "variants hits contacts"] | None = None,
) -> Motions:
    """Motions of mechanisms with steps of any length, from several starts of every run.

    Arguments:
        models: mechanisms with a constraint-exact stepper, stacked: one for all, or one for every variant.
        position, velocity: at the starts.
        durations: of the steps; 0 for a motion that waits, negative for one that goes back in time.
        contacts: whether there are any.
        deviations: of restitution from its law, at the first hit, the second, and so on.
    """
    runs, variants = position.shape[:2]
    count, steps = runs * variants, durations.shape[1]
    whole = -(-steps // STEPS) * STEPS
    signals = len(models.geometry)  # pyright: ignore
    modes = np.full((LANES, signals), BY_GAP if contacts else EXCLUDED)
    if deviations is None:
        deviations = np.zeros((1, HITS, signals))
    shape = (count, whole + 1, *position.shape[2:])
    result = Motions(np.zeros(shape), np.zeros(shape), np.zeros((count, whole + 1, signals), bool))
    result.position[:, 0] = position.reshape(count, *position.shape[2:])
    result.velocity[:, 0] = velocity.reshape(count, *velocity.shape[2:])
    padded = np.pad(durations, ((0, 0), (0, whole - steps)))

    def block(rows: np.ndarray) -> None:
        # A short block is filled up with copies of its first motion.
        full = np.concatenate([rows, np.repeat(rows[:1], LANES - len(rows))])
        variant = full % variants
        of_rows = jax.tree.map(lambda leaf: leaf[np.minimum(variant, len(leaf) - 1)], models)
        at_hits = deviations[np.minimum(variant, len(deviations) - 1)]
        hits, settled = np.zeros(LANES, int), np.zeros((LANES, signals), bool)
        with jax.enable_x64(True):
            for first in range(0, whole, STEPS):
                lengths = padded[full // variants, first : first + STEPS].T
                here = result.position[full, first], result.velocity[full, first], hits, settled
                *samples, hits, settled = map(np.asarray, _advance(of_rows, *here, lengths, modes, at_hits))
                for target, values in zip(result, samples, strict=True):
                    target[rows, first + 1 : first + STEPS + 1] = np.swapaxes(values, 0, 1)[: len(rows)]

    _each_block(block, count)
    return Motions(
        *(part[:, : steps + 1].reshape(runs, variants, steps + 1, *part.shape[2:]) for part in result)
    )


def _each_block(work: Callable[[np.ndarray], None], count: int) -> None:
    """Call a function for every block of rows; the first alone, since it may compile a program."""
    blocks = [np.arange(first, min(first + LANES, count)) for first in range(0, count, LANES)]
    for rows in blocks[:1]:
        work(rows)
    if len(blocks) > 1:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(work, blocks[1:]))


def _advance_block(models, position, velocity, hits, settled, durations, modes, deviations):
    """All motions of a block over its steps; the samples after each, and the number of hits so far."""
    each = jnp.arange(LANES)

    def step(carry, length):
        states, hits, settled = carry
        law = _Scattered(models.restitution, deviations[each, hits % HITS])
        scattered = eqx.tree_at(lambda m: m.restitution, models, law)
        after, contact, settled = step_many(scattered, states, length, modes, settled)
        hits = hits + jnp.any(contact, axis=1).astype(hits.dtype)
        return (after, hits, settled), (after.position, after.velocity, contact)

    began = State(position, velocity), hits, settled
    (_, hits, settled), samples = jax.lax.scan(step, began, durations)
    return *samples, hits, settled


_advance = CachedFunction(_advance_block, (0, 0, 0, 0, 0), ("motions", LANES, STEPS, HITS))


def follow_grid(
    models: AbstractModel,
    position: Float[np.ndarray, "runs variants bodies dimension"],
    velocity: Float[np.ndarray, "runs variants bodies dimension"],
    steps: int,
) -> Motions:
    """The same for models of any kind, on the grid of their own steps."""
    runs, variants = position.shape[:2]
    several = count_models(models) > 1
    # By model: every variant has its own, or one has all.
    parts = [
        np.swapaxes(x, 0, 1) if several else x.reshape(1, -1, *x.shape[2:]) for x in (position, velocity)
    ]
    count = parts[0].shape[1]
    # Sizes are powers of two, so that there are few programs.
    filled = np.minimum(np.arange(2 ** (count - 1).bit_length()), count - 1)
    padded = 2 ** max(steps - 1, 31).bit_length()
    with jax.enable_x64(True):
        starts = State(*(jnp.asarray(part[:, filled], float) for part in parts))
        found = [np.asarray(part)[:, :count, : steps + 1] for part in _follow_grid(models, starts, padded)]
    if several:
        return Motions(*(np.swapaxes(part, 0, 1) for part in found))
    return Motions(*(part.reshape(runs, variants, *part.shape[2:]) for part in found))


@eqx.filter_jit
@full_precision()
def _follow_grid(models: AbstractModel, starts: State, steps: int):
    def of_model(model, starts):
        ahead = jax.vmap(partial(forecast, model, steps=steps))(starts)
        return ahead.position, ahead.velocity, ahead.contact > 0.5

    return eqx.filter_vmap(of_model, in_axes=(eqx.if_array(0), 0))(models, starts)
