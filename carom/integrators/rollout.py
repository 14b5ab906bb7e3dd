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
    with_start = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)
    return with_start, outputs
