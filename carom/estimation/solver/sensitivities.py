"""The motion of one segment, differentiated by its sensitivity equations.

Plain forward mode propagates a tangent per parameter through the network at every step. There are a hundred
parameters but few coordinates, so the Jacobian of a single step x' = f(x, θ) is computed in reverse mode and
propagated: S' = ∂f/∂x S + ∂f/∂θ. Only fields of the mechanism that depend on free parameters are
differentiated.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from carom.compilation import full_precision
from carom.estimation.parameters.free import Layout, with_leaves
from carom.integrators import BY_GAP, EXCLUDED, PRESCRIBED, ConstraintExact, prepend, rebounds
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
    impact: ModesOfSteps,
    *,
    most: int | None = None,
    by_gap: bool = False,
) -> tuple[State, Instants]:
    """States on the sample grid, including the start, and the instants of prescribed impacts.

    Differentiable in forward mode with respect to the leaves and the start; durations are constants.

    Arguments:
        leaves: the fields that depend on free parameters, in the order of `layout.paths`.
        modes: of every contact in every step.
        impact: which of the deviations of single impacts holds there.
        most: greatest number of prescribed contacts in a step, if every contact is prescribed or excluded.
            Such motions use plain forward mode: scenes with that many candidates share parameters between
            contacts, so the leaves have many more entries than there are free parameters.
        by_gap: whether the impacts to prescribe are those that happen by the gap, whatever the modes say.
            States are NaN from where there are other contacts, as where a body comes to rest.
    """
    if most is None:
        return _by_sensitivities(layout, template, tuple(leaves), start, duration, modes, impact)
    if not by_gap:
        return _motion(layout, template, tuple(leaves), start, duration, modes, impact, most=most)
    happens, simple = _impacts_by_gap(layout, template, tuple(leaves), start, duration, impact, most=most)
    modes = jnp.where(happens, PRESCRIBED, EXCLUDED)
    states, instants = _motion(layout, template, tuple(leaves), start, duration, modes, impact, most=most)
    states = jax.tree.map(lambda part: jnp.where(simple[:, None, None], part, jnp.nan), states)
    return states, jnp.full_like(instants, 0.5)


# A jitted function of its own is traced once, not once per surrounding transformation.
@partial(jax.jit, static_argnames=("layout", "most"))
@full_precision()
def _motion(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration,
    modes,
    impact,
    *,
    most: int | None,
) -> tuple[State, Instants]:
    mechanism = with_leaves(layout, template, leaves)

    def step(state, inputs):
        length, modes, impact = inputs
        after, contact, instant = mechanism.move(state, length, modes, impact=impact, most=most)
        return after, (mechanism.leave(state, after, contact), instant)

    _, (rest, instants) = jax.lax.scan(step, mechanism.enter(start), (duration, modes, impact))
    return prepend(start, rest), instants


# A jitted function of its own is traced once, not once per surrounding transformation.
@partial(jax.jit, static_argnames=("layout", "most"))
@full_precision()
def _impacts_by_gap(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration: Durations,
    impact: ModesOfSteps,
    *,
    most: int,
) -> tuple[Bool[Array, "steps contacts"], Bool[Array, "samples"]]:
    """The impacts that happen by the gap, and up to which sample there are no other contacts.

    This is a motion without derivatives, which takes a fraction of the time of one with them.
    """
    leaves, start = jax.lax.stop_gradient((leaves, start))
    fitted = with_leaves(layout, template, leaves)
    stepper, modes = fitted.stepper, jnp.full((len(fitted.geometry),), BY_GAP)
    assert isinstance(stepper, ConstraintExact)

    def step(carry, inputs):
        (state, simple), (length, impact) = carry, inputs
        mechanism = fitted.at_impacts(impact)
        before = State(state.position, mechanism.dissipate(state.velocity, 0.5 * length))
        after, hits, done = rebounds(stepper, mechanism, before, length, modes)
        after = State(after.position, mechanism.dissipate(after.velocity, 0.5 * length))
        simple = simple & done & jnp.all(hits < 2) & (jnp.sum(hits) <= most)
        return (after, simple), (hits > 0, simple)

    yes = jnp.ones((), bool)
    _, (happens, simple) = jax.lax.scan(step, (start, yes), (duration, impact))
    return happens, jnp.concatenate([yes[None], simple])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _by_sensitivities(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration: Durations,
    modes: ModesOfSteps,
    impact: ModesOfSteps,
) -> tuple[State, Instants]:
    return _motion(layout, template, leaves, start, duration, modes, impact, most=None)


@_by_sensitivities.defjvp
def _jvp(layout: Layout, primals, tangents):
    template, leaves, start, duration, modes, impact = primals
    _, leaf_tangents, start_tangent, *_ = tangents
    direction = ravel_pytree((leaf_tangents, start_tangent))[0]
    values, sensitivities = _sensitivities(layout, template, leaves, start, duration, modes, impact)
    # `jacfwd` maps this over many directions: one matrix product for all steps and all directions.
    tangent = sensitivities @ direction
    contacts = modes.shape[1]
    return _split(start, values, contacts), _split(start_tangent, tangent, contacts)


def _sensitivities(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    start: State,
    duration: Durations,
    modes: ModesOfSteps,
    impact: ModesOfSteps,
) -> tuple[Float[Array, "steps values"], Float[Array, "steps values parameters"]]:
    """The outputs of `_linearised_step` for every step, and their derivatives by the leaves and the start."""

    def enter(leaves, start):
        return ravel_pytree(with_leaves(layout, template, leaves).enter(start))[0]

    first, first_sensitivity = _derivative(enter, leaves, start, modes.shape[1])
    _, unravel = ravel_pytree(start)
    size, entries = len(first), first_sensitivity.shape[1] - len(first)

    def step(carry, inputs):
        state, sensitivity = carry
        values, derivative = _linearised_step(layout, template, leaves, unravel(state), *inputs)
        following = (derivative[:, entries:] @ sensitivity).at[:, :entries].add(derivative[:, :entries])
        return (values[:size], following[:size]), (values, following)

    return jax.lax.scan(step, (first, first_sensitivity), (duration, modes, impact))[1]


# A jitted function of its own is traced once, for segments of all lengths.
@partial(jax.jit, static_argnames="layout")
@full_precision()
def _linearised_step(
    layout: Layout,
    template: Mechanism,
    leaves: Leaves,
    state: State,
    length: Scalar,
    modes: Int[Values, "contacts"],
    impact: Int[Values, "contacts"],
) -> tuple[Float[Array, "values"], Float[Array, "values parameters"]]:
    """The state after a step, the instants of impacts and, if it differs, the sampled state; derivatives."""

    def step(leaves, state):
        mechanism = with_leaves(layout, template, leaves)
        after, contact, instant = mechanism.move(
            state, length, jnp.asarray(modes), impact=jnp.asarray(impact)
        )
        sampled = mechanism.leave(state, after, contact)
        return ravel_pytree((after, instant) if sampled is after else (after, instant, sampled))[0]

    return _derivative(step, leaves, state, len(modes))


def _split(start: State, values: Float[Array, "steps values"], contacts: int) -> tuple[State, Instants]:
    """Sampled states and instants of impacts from the stacked outputs of all steps."""
    first, unravel = ravel_pytree(start)
    size = len(first)
    on_samples = values[:, :size] if values.shape[1] == size + contacts else values[:, size + contacts :]
    return prepend(start, jax.vmap(unravel)(on_samples)), values[:, size : size + contacts]


def _derivative(
    function: Callable[[Leaves, State], Float[Array, "values"]], leaves: Leaves, state: State, contacts: int
) -> tuple[Float[Array, "values"], Float[Array, "values parameters"]]:
    """A vector-valued function of leaves and a state, and its Jacobian with respect to both."""
    point, unravel = ravel_pytree((leaves, state))

    def value_twice(point):
        value = function(*unravel(point))
        return value, value

    # The cost of reverse mode grows with the number of outputs, that of forward mode with the inputs.
    few = 2 * state.position.size + contacts < len(point) / 2
    derivative, value = (jax.jacrev if few else jax.jacfwd)(value_twice, has_aux=True)(point)
    return value, derivative
