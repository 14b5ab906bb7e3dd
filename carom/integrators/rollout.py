"""Trajectories from repeated steps, by `lax.scan`."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

Carry = TypeVar("Carry")


def rollout(
    step: Callable[[Carry, PyTree], tuple[Carry, PyTree]],
    start: Carry,
    *,
    inputs: PyTree = None,
    steps: int | None = None,
    unroll: int = 1,
) -> tuple[Carry, PyTree]:
    """Apply `step` repeatedly; returns every state including the start, and the outputs of every step.

    Arguments:
        step: maps (state, input) to (next state, output).
        start: the first state.
        inputs: a tree of arrays with one leading entry per step, or None.
        steps: number of steps if there are no inputs.
        unroll: steps per loop iteration; short rollouts run faster unrolled, but compile more slowly.
    """

    def advance(state, step_input):
        following, output = step(state, step_input)
        return following, (following, output)

    _, (states, outputs) = lax.scan(advance, start, inputs, length=steps, unroll=unroll)
    return prepend(start, states), outputs


def prepend(first: PyTree, rest: PyTree) -> PyTree:
    """Concatenate `first` and `rest` along the leading axis of every array."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)


def consecutive(states: PyTree) -> tuple[PyTree, PyTree]:
    """The states before and after every step of a rollout."""
    return jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
