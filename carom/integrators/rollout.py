"""Repeating a step by `lax.scan`."""

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
        steps: number of steps where there are no inputs.
        unroll: steps per loop iteration; short rollouts run faster unrolled and compile slower.
    """

    def advance(state, given):
        following, output = step(state, given)
        return following, (following, output)

    _, (states, outputs) = lax.scan(advance, start, inputs, length=steps, unroll=unroll)
    return prepend(start, states), outputs


def prepend(first: PyTree, rest: PyTree) -> PyTree:
    """One tree whose arrays have `first` before `rest` along their leading axis."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)


def consecutive(states: PyTree) -> tuple[PyTree, PyTree]:
    """The states before and after every step of a rollout."""
    return jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
