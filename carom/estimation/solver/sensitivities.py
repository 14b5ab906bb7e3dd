"""The motion of one segment, with derivatives by the sensitivities of its states.

Plain forward differentiation pushes every parameter through the network at every step. There are a hundred
parameters but few coordinates, so the derivative of a single step, x' = f(x, θ), is taken in reverse instead
and carried on: S' = ∂f/∂x S + ∂f/∂θ. Only fields of the mechanism that depend on free parameters are
differentiated.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from carom.compilation import full_precision
from carom.estimation.parameters.free import Layout, with_leaves
from carom.models import Mechanism
from carom.types import Scalar, State, Values

Durations = Float[Values, "steps"]
ModesOfSteps = Int[Values, "steps contacts"]
Instants = Float[Array, "steps contacts"]
Leaves = Sequence[Array]


def segment_motion(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration: Durations,
    modes: ModesOfSteps,
    *,
    most: int | None = None,
) -> tuple[State, Instants]:
    """States on the sample grid, the start included, and when prescribed impacts took place.

    Derivatives are in forward mode, by the leaves and the start; durations are constants.

    Arguments:
        leaves: the fields that depend on free parameters, in the order of `layout.paths`.
        modes: of every contact in every step.
        most: how many contacts are prescribed in a step at most, where all are prescribed or excluded. Such
            motions are differentiated as they stand: of a scene with so many candidates the numbers in the
            mechanism are many more than the free parameters, since contacts share them.
    """
    if most is None:
        return _by_sensitivities(layout, template, tuple(leaves), start, duration, modes)
    return _motion(layout, template, tuple(leaves), start, duration, modes, most=most)


# Compiled by itself so that the transformations around it find it traced.
@partial(jax.jit, static_argnames=("layout", "most"))
@full_precision()
def _motion(
    layout: Layout, template: Mechanism, leaves: Leaves, start: State, duration, modes, *, most: int | None
) -> tuple[State, Instants]:
    mechanism = with_leaves(layout, template, leaves)

    def step(state, inputs):
        length, modes = inputs
        after, contact, instant = mechanism.move(state, length, modes, most=most)
        return after, (mechanism.leave(state, after, contact), instant)

    _, (rest, instants) = jax.lax.scan(step, mechanism.enter(start), (duration, modes))
    return _prepended(start, rest), instants


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _by_sensitivities(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration: Durations,
    modes: ModesOfSteps,
) -> tuple[State, Instants]:
    return _motion(layout, template, leaves, start, duration, modes, most=None)


@_by_sensitivities.defjvp
def _push(layout: Layout, primals, tangents):
    template, leaves, start, duration, modes = primals
    _, leaf_tangents, start_tangent, _, _ = tangents
    direction = ravel_pytree((leaf_tangents, start_tangent))[0]
    values, sensitivities = _sensitivities(layout, template, leaves, start, duration, modes)
    # One product for all steps: many directions are needed at once.
    pushed = sensitivities @ direction
    contacts = modes.shape[1]
    return _split(start, values, contacts), _split(start_tangent, pushed, contacts)


def _sensitivities(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration: Durations,
    modes: ModesOfSteps,
) -> tuple[Float[Array, "steps values"], Float[Array, "steps values parameters"]]:
    """What every step gives, as `_linearised_step` has it, and its derivatives by the leaves and the
    start."""

    def entering(leaves, start):
        return ravel_pytree(with_leaves(layout, template, leaves).enter(start))[0]

    entered, entry = _derivative(entering, leaves, start, modes.shape[1])
    _, unravel = ravel_pytree(start)
    size, numbers = len(entered), entry.shape[1] - len(entered)

    def step(carry, inputs):
        state, sensitivity = carry
        values, derivative = _linearised_step(layout, template, leaves, unravel(state), *inputs)
        moved = (derivative[:, numbers:] @ sensitivity).at[:, :numbers].add(derivative[:, :numbers])
        return (values[:size], moved[:size]), (values, moved)

    return jax.lax.scan(step, (entered, entry), (duration, modes))[1]


# Compiled by itself so that it is traced once, however long segments are.
@partial(jax.jit, static_argnames="layout")
@full_precision()
def _linearised_step(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    state: State,
    length: Scalar,
    modes: Int[Values, "contacts"],
) -> tuple[Float[Array, "values"], Float[Array, "values parameters"]]:
    """The state after a step, instants of impacts and, if it is another, the sample's state; derivatives."""

    def step(leaves, state):
        mechanism = with_leaves(layout, template, leaves)
        after, contact, instant = mechanism.move(state, length, jnp.asarray(modes))
        left = mechanism.leave(state, after, contact)
        return ravel_pytree((after, instant) if left is after else (after, instant, left))[0]

    return _derivative(step, leaves, state, len(modes))


def _split(start: State, values: Float[Array, "steps values"], contacts: int) -> tuple[State, Instants]:
    """The states of all samples and the instants of impacts, from what the steps have given."""
    first, unravel = ravel_pytree(start)
    size = len(first)
    on_samples = values[:, :size] if values.shape[1] == size + contacts else values[:, size + contacts :]
    return _prepended(start, jax.vmap(unravel)(on_samples)), values[:, size : size + contacts]


def _prepended(start: State, rest: State) -> State:
    return jax.tree.map(lambda first, others: jnp.concatenate([first[None], others]), start, rest)


def _derivative(
    function: Callable[[Leaves, State], Float[Array, "values"]], leaves: Leaves, state: State, contacts: int
) -> tuple[Float[Array, "values"], Float[Array, "values parameters"]]:
    """A vector that follows from leaves and a state, and its derivatives by the numbers in both."""
    point, unravel = ravel_pytree((leaves, state))

    def twice(point):
        value = function(*unravel(point))
        return value, value

    # Reverse mode costs so much for each value, forward mode for each number.
    few = 2 * state.position.size + contacts < len(point) / 2
    derivative, value = (jax.jacrev if few else jax.jacfwd)(twice, has_aux=True)(point)
    return value, derivative
