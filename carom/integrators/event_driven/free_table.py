"""The event-driven motion on a free table, many scenes at once, as fast as possible.

Nothing rests on a free table, so the flight of a ball is its position at the start of a window, extrapolated
backwards, and its velocity until it is hit. Scenes do not wait for each other at every sample: each makes its
own impacts, one after another, up to the end of a window of several samples. An impact stores the new flights
of its bodies at the next sample, and the samples are evaluated afterwards.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from carom.integrators.event_driven.balls import Balls, Flight, Scenes, dot
from carom.integrators.event_driven.events import (
    Options,
    event_codes,
    exact_instant,
    first_event,
    next_events,
    outdated,
    velocities_after,
)
from carom.integrators.event_driven.neighbours import neighbour_lists
from carom.integrators.event_driven.resting import resolve_cluster
from carom.types import State

WINDOW, SHORTEST = 2048, 16
"""Samples times bodies of a window, and samples at least.

The longer, the less the slowest scene holds up the others, and the more memory their flights need."""


class _Window(NamedTuple):
    phase: Float[Array, "phase scenes bodies"]
    """Positions at the start of the window, had every body always moved as it does now, then velocities."""
    clock: Float[Array, "scenes"]
    times: Float[Array, "scenes bodies"]
    events: Int[Array, "scenes bodies"]
    flights: Float[Array, "samples scenes bodies phase"]
    """The same of bodies that were hit between a sample and the one before, else not a number."""
    grazing: Scenes


def free_motion(
    balls: Balls, flight: Flight, intervals: Float[Array, "steps"], options: Options
) -> tuple[State, Scenes, Scenes]:
    """The states after every interval; which scenes were exhausted, which grazed.

    A body is compared with all others whatever `neighbours` are, but one or two bodies at a time; only in
    scenes that are exhausted are there many, and then each is compared with so many at most.
    """
    position, velocity, _ = flight
    steps, (scenes, bodies) = len(intervals), position.shape[1:]
    size = min(max(SHORTEST, WINDOW // bodies), steps)
    # Intervals of length 0 at the end repeat the last sample, and are cut off.
    padded = jnp.pad(intervals, (0, -steps % size)).reshape(-1, size)
    times, events = _first_plan(balls, flight, options)
    never, now = jnp.zeros((scenes,), bool), jnp.zeros((scenes,), position.dtype)
    empty = jnp.full((size, scenes, bodies, 2 * len(position)), jnp.nan, position.dtype)

    def advance(carry, intervals):
        phase, times, events, exhausted, grazing = carry
        instants = jnp.cumsum(intervals)
        window = _Window(phase, now, times, events, empty, grazing)
        window, unfinished = _through(balls, window, options, instants)
        samples = _samples(phase, window.flights, instants)
        end = instants[-1]
        # Every window has a clock of its own, so that times keep their digits.
        phase = jnp.concatenate(_flight(window.phase).after(jnp.broadcast_to(end, now.shape))[:2])
        times = window.times - lax.stop_gradient(end)
        return (phase, times, window.events, exhausted | unfinished, window.grazing), samples

    start = jnp.concatenate([position, velocity]), times, events, never, never
    (_, _, _, exhausted, grazing), samples = lax.scan(advance, start, padded)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:steps], samples), exhausted, grazing


def _first_plan(balls: Balls, flight: Flight, options: Options):
    """The next event of every body, body by body: memory grows like their number and not its square."""
    scenes, bodies = flight.position.shape[1:]

    def plan(body):
        subject = jnp.full((scenes, 1), body, jnp.int32)
        return next_events(balls, flight, flight.of(subject), subject, rest_speed=options.rest_speed)

    times, events = lax.map(plan, jnp.arange(bodies, dtype=jnp.int32))
    return times[..., 0].T, events[..., 0].T


def _flight(phase: Float[Array, "phase *any"]) -> Flight:
    return Flight(phase[: len(phase) // 2], phase[len(phase) // 2 :], None)


def _through(
    balls: Balls, window: _Window, options: Options, instants: Float[Array, "samples"]
) -> tuple[_Window, Scenes]:
    """All impacts of a window, and which scenes had more than there may be."""
    end = lax.stop_gradient(instants[-1])
    bound = balls.bodies * options.max_impacts * len(instants)

    def unfinished(carry):
        count, window = carry
        return (count < bound) & jnp.any(window.times < end)

    def advance(carry):
        count, window = carry
        return count + 1, _impact(balls, window, options, instants)

    window = lax.while_loop(unfinished, advance, (0, window))[1]
    left = jnp.any(window.times < end, axis=1)
    resolve = partial(_resolve_exhausted, balls, options, instants, left)
    # Hardly ever needed, and a cluster of all bodies is expensive.
    return lax.cond(jnp.any(left), resolve, lambda window: window, window), left


def _impact(balls: Balls, window: _Window, options: Options, instants: Float[Array, "samples"]) -> _Window:
    """The earliest impact of every scene that has one left in the window."""
    scenes, bodies = window.times.shape
    event = first_event(balls, window.times, window.events, lax.stop_gradient(instants[-1]))
    # Indices into arrays over scenes and bodies together; those past the end are dropped.
    place = jnp.arange(scenes, dtype=jnp.int32)[:, None] * bodies + event.subjects
    pair = window.phase.reshape(-1, scenes * bodies)[:, place]
    # From where both are now, so that the derivative of the clock is in the positions.
    here = _flight(pair).after(window.clock)
    elapsed, grazes = exact_instant(balls, here, event, window.clock, grazing_speed=options.grazing_speed)
    here, clock = here.after(elapsed), window.clock + elapsed
    here = here._replace(velocity=velocities_after(balls, here, event, rest_speed=options.rest_speed))
    after = jnp.concatenate(here.after(-clock)[:2])

    nowhere = scenes * bodies
    struck = jnp.stack([event.hits, event.with_body], axis=1)
    phase = _set(window.phase, jnp.where(struck, place, nowhere), after)
    slot = jnp.sum(instants[None] < lax.stop_gradient(clock)[:, None], axis=1, dtype=jnp.int32)
    row = jnp.where(struck, slot[:, None] * nowhere + place, nowhere * len(instants))
    # A later impact before the same sample overwrites the earlier one: only the last flight is sampled.
    flights = window.flights.reshape(-1, len(after))
    flights = flights.at[row].set(jnp.moveaxis(after, 0, -1), mode="drop", unique_indices=True)

    flight = _flight(phase).after(clock)
    time, upcoming = next_events(balls, flight, here, event.subjects, rest_speed=options.rest_speed)
    events = outdated(balls, window.events, event)
    at = jnp.where(jnp.stack([event.active, event.with_body], axis=1), place, nowhere)
    times = _set(window.times[None], at, (time + lax.stop_gradient(clock)[:, None])[None])[0]
    events, flights = _set(events[None], at, upcoming[None])[0], flights.reshape(window.flights.shape)
    return _Window(phase, clock, times, events, flights, window.grazing | grazes)


def _set(values: Array, places: Int[Array, "scenes 2"], new: Array) -> Array:
    """Values per scene and body with new ones at indices that count over scenes and bodies together."""
    flat = values.reshape(len(values), -1)
    return flat.at[:, places].set(new, mode="drop", unique_indices=True).reshape(values.shape)


def _resolve_exhausted(
    balls: Balls, options: Options, instants: Float[Array, "samples"], scenes: Scenes, window: _Window
) -> _Window:
    """Resolve all bodies of exhausted scenes as one cluster until the end of the window."""
    every = jnp.broadcast_to(scenes[:, None], window.times.shape)
    end, clock = lax.stop_gradient((instants[-1], window.clock))
    flight = _flight(window.phase).after(clock)
    lists, crowded = None, jnp.zeros_like(scenes)
    if options.neighbours is not None:
        # However a cluster is resolved, no body becomes faster than all its energy makes the lightest.
        energy = jnp.sum(balls.masses[None] * dot(flight.velocity, flight.velocity), axis=1)
        reach = 2 * (end - clock) * jnp.sqrt(energy / jnp.min(balls.masses))
        position, radii, reach = lax.stop_gradient((flight.position, balls.radii, reach))
        lists, crowded = neighbour_lists(position, radii, reach, capacity=options.neighbours)
    velocity, _ = resolve_cluster(balls, flight, every, lists, end - clock, rest_speed=options.rest_speed)
    # Where not all fit on the lists, everything stops: that overlaps nothing and gains nothing.
    flight = flight._replace(velocity=jnp.where((scenes & crowded)[None, :, None], 0, velocity))
    phase = jnp.where(every[None], jnp.concatenate(flight.after(-clock)[:2]), window.phase)
    slot = jnp.where(scenes, jnp.sum(instants[None] < clock[:, None], axis=1), len(instants))
    flights = window.flights.at[slot, jnp.arange(len(slot))].set(jnp.moveaxis(phase, 0, -1), mode="drop")
    return window._replace(
        phase=phase,
        # The next events are found at the start of the next window.
        times=jnp.where(every, end, window.times),
        events=jnp.where(every, event_codes(balls).unknown, window.events),
        flights=flights,
    )


def _samples(
    phase: Float[Array, "phase scenes bodies"],
    flights: Float[Array, "samples scenes bodies phase"],
    instants: Float[Array, "samples"],
) -> State:
    """The states at the samples, each by the last flight that began before it."""
    dimension = len(phase) // 2

    def evaluate(latest, given):
        rows, instant = given
        latest = jnp.where(jnp.isnan(rows), latest, rows)
        speed = latest[..., dimension:]
        return latest, State(latest[..., :dimension] + instant * speed, speed)

    return lax.scan(evaluate, jnp.moveaxis(phase, 0, -1), (flights, instants))[1]
