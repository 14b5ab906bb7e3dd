"""Constraint-exact steps of many motions at once, without derivatives.

In most steps nothing is at rest, and then the path is made of parabolas and single impacts: no system of
contact forces is to be solved. Such steps are cheap; where some motion of the batch needs more, the whole
step of `constraint_exact_step` follows, without the linear solves that only derivatives need.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.base import Mechanical
from carom.integrators.constraint_exact.contact_times import BY_GAP, Modes, contact_times
from carom.integrators.constraint_exact.step import ConstraintExact, gap_tolerance
from carom.mechanics import contact_compliance, contact_rate, impact_impulse, lasting_contact
from carom.types import Coordinates, Scalar, State

FEW = 64
"""Motions whose whole steps are computed together."""


class _Flight(NamedTuple):
    state: State
    acceleration: Coordinates
    remaining: Float[Array, ""]
    hits: Int[Array, "contacts"]
    rests: Bool[Array, ""]


def rebounds(
    stepper: ConstraintExact, mechanism: Mechanical, state: State, step_size: Scalar, modes: Modes
) -> tuple[State, Int[Array, "contacts"], Bool[Array, ""]]:
    """A step in which nothing comes to rest: the state after it, the impacts of every contact, and whether
    it is that."""
    geometry, inertia, friction = mechanism.geometry, mechanism.inertia(), mechanism.friction_coefficient()
    limits, duration = stepper.limits(state.position.dtype), mechanism.contact_duration()
    most = stepper.most_impacts(len(state.position))
    none = jnp.zeros((len(geometry),), bool)

    def acceleration(position: Coordinates) -> Coordinates:
        return inertia.solve(mechanism.conservative_force(position))

    def unfinished(flight: _Flight) -> Bool[Array, ""]:
        return (flight.remaining != 0) & ~flight.rests & (jnp.sum(flight.hits) <= most)

    def advance(flight: _Flight) -> _Flight:
        state, before, remaining, hits, _ = flight
        position, velocity = state.position, state.velocity
        delay = None
        if duration is not None:
            rows = geometry.jacobian(position)
            closing, pull = contact_rate(rows, velocity), contact_rate(rows, before)
            e, overlap = mechanism.restitution_at(closing), geometry.gap(position)
            delay = lasting_contact(e, duration, overlap, closing, pull).delay
        slow = limits.grazing_speed
        times, _ = contact_times(geometry, state, before, remaining, none, modes, step_size, slow, delay)
        first = jnp.min(times, initial=jnp.inf)
        due = first < jnp.inf
        until = jnp.where(due, first, remaining)
        position = position + until * velocity + 0.5 * until**2 * before
        arrived = acceleration(position)
        velocity = velocity + 0.5 * until * (before + arrived)
        struck = due & (times == first) & (jnp.cumsum(times == first) == 1)
        jacobian, rows = geometry.jacobian(position), geometry.rows
        rate = contact_rate(jacobian, velocity)
        restitution, carried, slowest = mechanism.restitution_at(rate), None, limits.rest_speed
        if duration is not None:
            pull = contact_rate(jacobian, arrived)
            carried = lasting_contact(restitution, duration, geometry.gap(position), rate, pull).carried
            slowest = jnp.maximum(slowest, -0.5 * pull * duration)
        S, kick = jnp.diagonal(contact_compliance(inertia, jacobian)), mechanism.slip_kick(rate)
        normal, relative = rows.normal_of(rows.relative(position)), rows.relative(velocity)
        impulse = impact_impulse(
            normal, relative, S, restitution=restitution, friction=friction, carried=carried, kick=kick
        )
        change = inertia.solve(jnp.asarray(geometry.signs.T) @ jnp.where(struck[:, None], impulse, 0))
        after, hits = State(position, velocity + change), hits + struck.astype(int)
        rests = jnp.any(struck & (-restitution * rate <= slowest))
        return _Flight(after, arrived, remaining - until, hits, rests)

    gap, rate = geometry.gap(state.position), contact_rate(geometry.jacobian(state.position), state.velocity)
    still = (jnp.abs(gap) <= gap_tolerance(state, limits.extent)) & (jnp.abs(rate) <= limits.rest_speed)
    still = still & (modes == BY_GAP)
    remaining = jnp.asarray(step_size, state.position.dtype)
    rests = jnp.any(still) & (remaining != 0)
    began = _Flight(state, acceleration(state.position), remaining, jnp.zeros(none.shape, int), rests)
    flight = lax.while_loop(unfinished, advance, began)
    return flight.state, flight.hits, flight.remaining == 0


def step_many(
    mechanisms: Mechanical,
    states: State,
    step_size: Float[Array, "motions"],
    modes: Int[Array, "motions contacts"],
    settled: Bool[Array, "motions contacts"],
) -> tuple[State, Bool[Array, "motions contacts"], Bool[Array, "motions contacts"]]:
    """One step of every motion, each of its own mechanism and duration.

    Returns the states, the contacts of that step, and the contacts of motions that have settled.

    Arguments:
        mechanisms: of one structure and with a constraint-exact stepper, their arrays stacked.
        states: stacked.
        step_size: of every motion; 0 for those that stay.
        modes: of the contacts of every motion, by gap or excluded.
        settled: contacts of the motions that are known to rest; none for others.
    """

    def quick(mechanism, state, step_size, modes):
        started = State(state.position, mechanism.dissipate(state.velocity, 0.5 * step_size))
        after, hits, done = rebounds(mechanism.stepper, mechanism, started, step_size, modes)
        return started, after, hits > 0, done

    def whole(mechanism, state, step_size, modes):
        stepper = mechanism.stepper
        after, report = stepper.conservative_step(mechanism, state, step_size, modes, differentiable=False)
        limits = stepper.limits(state.position.dtype)
        moved = jnp.max(jnp.abs(after.position - state.position)) > gap_tolerance(state, limits.extent)
        rests = ~moved & (jnp.max(jnp.abs(after.velocity)) <= limits.rest_speed)
        return after, report.contact, rests & report.contact

    def finish(mechanism, state, step_size):
        return State(state.position, mechanism.dissipate(state.velocity, 0.5 * step_size))

    over = (eqx.if_array(0), 0, 0, 0)
    started, after, contact, done = eqx.filter_vmap(quick, in_axes=over)(mechanisms, states, step_size, modes)
    rests = jnp.any(settled, axis=1)
    contact = jnp.where(rests[:, None], settled, contact)

    def whole_steps(carry):
        """Those of a few motions that need them."""
        *found, done = carry
        rows = lax.top_k((~done).astype(int), min(FEW, len(done)))[1]

        def pick(part):
            return part[rows] if eqx.is_array(part) else part

        chosen = jax.tree.map(pick, (mechanisms, started, step_size, modes))
        new = eqx.filter_vmap(whole, in_axes=over)(*chosen)
        found = jax.tree.map(
            # Motions that are done fill the number up.
            lambda x, y: x.at[rows].set(jnp.where(done[rows].reshape(-1, *[1] * (x.ndim - 1)), x[rows], y)),
            tuple(found),
            new,
        )
        return *found, done.at[rows].set(True)

    began = after, contact, settled, done | rests
    after, contact, settled, _ = lax.while_loop(lambda carry: ~jnp.all(carry[-1]), whole_steps, began)
    after = eqx.filter_vmap(finish, in_axes=(eqx.if_array(0), 0, 0))(mechanisms, after, step_size)
    return after, contact, settled
