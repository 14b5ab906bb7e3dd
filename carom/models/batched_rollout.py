"""Rollouts of many windows at once, with the gradient of the weights gathered in one pass.

Automatic differentiation of a scan adds the gradient of every weight to the loop's carry at every step: many
small sums. Here the backward sweep carries the adjoint states alone,

    λ_n = ∂L/∂x_n + (∂step/∂x)ᵀ λ_{n+1},

and the weights' gradient Σ_n (∂step/∂θ)ᵀ λ_{n+1} is one batched product over all windows and steps.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from carom.integrators import consecutive, prepend
from carom.models.base import AbstractModel
from carom.types import State


def batched_rollout(
    model: AbstractModel, start: State, contact: Bool[Array, "windows steps signals"] | None, *, steps: int
) -> State:
    """States (windows, steps + 1) on the model's own grid, from `start` (windows) on that grid.

    `contact` gives the contacts of every step; None lets the model's own soft signal gate its impulses.
    """
    parameters, fixed = eqx.partition(model, eqx.is_inexact_array)
    by_step = None if contact is None else jnp.swapaxes(contact, 0, 1)
    states = _states((parameters, start), by_step, fixed, steps)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), states)


def _step(parameters: PyTree, fixed: PyTree, state: State, contact) -> State:
    model = eqx.combine(parameters, fixed)
    return model.step(state, model.gate(state) if contact is None else contact)


def _steps(parameters: PyTree, fixed: PyTree, states: State, contact) -> State:
    """One step of every window."""
    axes = (0, None if contact is None else 0)
    return jax.vmap(lambda s, c: _step(parameters, fixed, s, c), in_axes=axes)(states, contact)


def _unroll(fixed: PyTree, steps: int) -> int:
    """Steps per loop iteration: unrolled they run faster, but sweeps over coupled contacts compile slowly."""
    return 1 if fixed.scene.geometry.coupled else min(steps, 10)


@eqx.filter_custom_vjp
def _states(differentiable, contact, fixed, steps: int) -> State:
    """(steps + 1, windows) states."""
    parameters, start = differentiable

    def advance(states, given):
        following = _steps(parameters, fixed, states, given)
        return following, following

    _, states = jax.lax.scan(advance, start, contact, length=steps, unroll=_unroll(fixed, steps))
    return prepend(start, states)


@_states.def_fwd
def _forward(perturbed, differentiable, contact, fixed, steps: int):
    states = _states(differentiable, contact, fixed, steps)
    return states, states


@_states.def_bwd
def _backward(states: State, cotangent: State, perturbed, differentiable, contact, fixed, steps: int):
    parameters, _ = differentiable
    # A part that the loss does not use comes as None.
    cotangent = State(
        *(
            jnp.zeros_like(state) if given is None else given
            for state, given in ((states.position, cotangent.position), (states.velocity, cotangent.velocity))
        )
    )
    before, _ = consecutive(states)
    last = jax.tree.map(lambda x: x[-1], cotangent)
    earlier = jax.tree.map(lambda x: x[:-1], cotangent)

    def retreat(adjoint: State, given):
        state, direct, signal = given
        _, pull_back = jax.vjp(lambda s: _steps(parameters, fixed, s, signal), state)
        (through,) = pull_back(adjoint)
        return jax.tree.map(jnp.add, direct, through), adjoint

    start_cotangent, adjoints = jax.lax.scan(
        retreat, last, (before, earlier, contact), reverse=True, unroll=_unroll(fixed, steps)
    )

    def flat(tree):
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)

    _, pull_back = jax.vjp(lambda p: _steps(p, fixed, flat(before), flat(contact)), parameters)
    (parameter_cotangent,) = pull_back(flat(adjoints))
    return parameter_cotangent, start_cotangent
