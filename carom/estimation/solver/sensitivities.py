"""The motion of one segment, with derivatives by the sensitivities of its states.

Plain forward differentiation pushes every unknown through the network at every step. There are a hundred
unknowns but few coordinates, so the derivative of a single step, x' = f(x, θ), is taken backwards instead and
carried on: S' = ∂f/∂x S + ∂f/∂θ.
"""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from carom.compilation import full_precision
from carom.models import ImpactNetwork
from carom.types import Scalar, State, Values

Durations = Float[Values, "steps"]
Schedules = Int[Values, "steps contacts"]
Instants = Float[Array, "steps contacts"]


@jax.custom_jvp
@jax.jit
@full_precision()
def segment_motion(
    model: ImpactNetwork, start: State, duration: Durations, schedule: Schedules
) -> tuple[State, Instants]:
    """States on the sample grid, the start included, under a schedule, and when its impacts took place.

    Derivatives are forwards, by the model and the start; durations are taken as given.
    """

    return _motion(model, start, duration, schedule, model.move)


# Compiled by itself so that the transformations around it find it traced.
@partial(jax.jit, static_argnames="most")
@full_precision()
def decided_motion(
    model: ImpactNetwork, start: State, duration: Durations, schedule: Schedules, *, most: int
) -> tuple[State, Instants]:
    """The same where the schedule decides all contacts and at most `most` happen in a step.

    Differentiated as it stands: of a scene with so many candidates the numbers in the model are many more
    than the unknowns, since contacts share them.
    """
    return _motion(model, start, duration, schedule, partial(model.move_as_decided, most=most))


def motion_under(
    model: ImpactNetwork,
    start: State,
    duration: Durations,
    schedule: Schedules,
    *,
    most: int | None = None,
) -> tuple[State, Instants]:
    """`segment_motion`, or `decided_motion` where a number of contacts is given."""
    if most is None:
        return segment_motion(model, start, duration, schedule)
    return decided_motion(model, start, duration, schedule, most=most)


def _motion(model: ImpactNetwork, start: State, duration, schedule, move) -> tuple[State, Instants]:
    def step(state, inputs):
        length, plan = inputs
        after, contact, instant = move(state, length, plan)
        return after, (model.leave(state, after, contact), instant)

    _, (rest, instants) = jax.lax.scan(step, model.enter(start), (duration, schedule))
    return _behind(start, rest), instants


@segment_motion.defjvp
def _push(primals, tangents):
    model, start, duration, schedule = primals
    numbers = (ravel_pytree(eqx.filter(part, eqx.is_inexact_array))[0] for part in tangents[:2])
    along = jnp.concatenate(list(numbers))
    values, sensitivities = _sensitivities(model, start, duration, schedule)
    # One product for all steps: many directions are asked for at once.
    pushed = sensitivities @ along
    contacts = schedule.shape[1]
    return _told_apart(start, values, contacts), _told_apart(tangents[1], pushed, contacts)


def _sensitivities(
    model: ImpactNetwork, start: State, duration: Durations, schedule: Schedules
) -> tuple[Float[Array, "steps values"], Float[Array, "steps values unknowns"]]:
    """What every step gives, as `_linearised_step` has it, and its derivatives by the model and the start."""
    entered, entry = _derivative(lambda model, start: ravel_pytree(model.enter(start))[0], model, start)
    _, unravel = ravel_pytree(start)
    size, weights = len(entered), entry.shape[1] - len(entered)

    def step(carry, inputs):
        state, sensitivity = carry
        values, derivative = _linearised_step(model, unravel(state), *inputs)
        moved = (derivative[:, weights:] @ sensitivity).at[:, :weights].add(derivative[:, :weights])
        return (values[:size], moved[:size]), (values, moved)

    return jax.lax.scan(step, (entered, entry), (duration, schedule))[1]


# Compiled by itself so that it is traced once, however long segments are.
@jax.jit
@full_precision()
def _linearised_step(
    model: ImpactNetwork, state: State, length: Scalar, plan: Int[Values, "contacts"]
) -> tuple[Float[Array, "values"], Float[Array, "values unknowns"]]:
    """The state after a step, instants of impacts and, if it is another, the sample's state; derivatives."""

    def step(model, state):
        after, contact, instant = model.move(state, length, plan)
        left = model.leave(state, after, contact)
        return ravel_pytree((after, instant) if left is after else (after, instant, left))[0]

    return _derivative(step, model, state)


def _told_apart(start: State, values: Float[Array, "steps values"], contacts: int) -> tuple[State, Instants]:
    """The states of all samples and the instants of impacts, from what the steps have given."""
    first, unravel = ravel_pytree(start)
    size = len(first)
    on_samples = values[:, :size] if values.shape[1] == size + contacts else values[:, size + contacts :]
    return _behind(start, jax.vmap(unravel)(on_samples)), values[:, size : size + contacts]


def _behind(start: State, rest: State) -> State:
    return jax.tree.map(lambda first, others: jnp.concatenate([first[None], others]), start, rest)


def _derivative(
    function: Callable[[ImpactNetwork, State], Float[Array, "values"]], model: ImpactNetwork, state: State
) -> tuple[Float[Array, "values"], Float[Array, "values unknowns"]]:
    """A vector that follows from a model and a state, and its derivatives by the numbers in both."""
    numbers, others = eqx.partition(model, eqx.is_inexact_array)
    point, unravel = ravel_pytree((numbers, state))

    def twice(point):
        numbers, state = unravel(point)
        value = function(eqx.combine(numbers, others), state)
        return value, value

    # Backwards costs so much for each value, forwards for each unknown.
    few = 2 * state.position.size + model.scene.contacts < len(point) / 2
    derivative, value = (jax.jacrev if few else jax.jacfwd)(twice, has_aux=True)(point)
    return value, derivative
