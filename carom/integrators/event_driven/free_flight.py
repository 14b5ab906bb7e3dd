"""The event-driven motion on a free table, many scenes at once, as fast as it goes.

Nothing rests on a free table, so a ball is its position at the start of a window and its velocity until it
is hit. Scenes do not wait for each other at every sample: each makes its own impacts, one after another, up
to the end of a window of several samples. An impact leaves the new flights of its bodies at the next sample,
and the samples are read off afterwards.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.clusters import settle
from carom.integrators.event_driven.encounters import (
    Settings,
    event_of,
    exact_instant,
    meeting,
    velocity_changes,
)
from carom.integrators.event_driven.flights import Codes, Components, Flight, dot, earliest
from carom.integrators.event_driven.neighbours import neighbour_lists
from carom.integrators.event_driven.next_events import next_events
from carom.types import State

WINDOW, SHORTEST = 2048, 16
"""Samples times bodies between which scenes are on their own, and samples at least.

The longer, the less the slowest scene holds up the others, and the more memory their flights need."""


class _Window(NamedTuple):
    phase: Float[Array, "phase scenes bodies"]
    """Positions at the start of the window, had every body always flown as it does now, then velocities."""
    clock: Float[Array, "scenes"]
    times: Float[Array, "scenes bodies"]
    events: Int[Array, "scenes bodies"]
    flights: Float[Array, "samples scenes bodies phase"]
    """The same of bodies that were hit between a sample and the one before, else not a number."""
    grazing: Bool[Array, "scenes"]


def free_motion(
    balls: Balls,
    position: Components,
    velocity: Components,
    intervals: Float[Array, "steps"],
    settings: Settings,
    neighbours: int | None,
) -> tuple[State, Bool[Array, "scenes"], Bool[Array, "scenes"]]:
    """The states after every interval; which scenes were exhausted, which grazed.

    A body is compared with all others whatever `neighbours` are, but one or two bodies at a time; only in
    scenes that are exhausted are there many, and then it is with so many at most.
    """
    steps = len(intervals)
    size = min(max(SHORTEST, WINDOW // balls.bodies), steps)
    padded = jnp.pad(intervals, (0, -steps % size)).reshape(-1, size)
    scenes, bodies = position.shape[1:]
    flight = Flight(position, velocity, None)
    times, events = _first_plan(balls, flight, settings)
    never, now = jnp.zeros((scenes,), bool), jnp.zeros((scenes,), position.dtype)
    empty = jnp.full((size, scenes, bodies, 2 * len(position)), jnp.nan, position.dtype)

    def advance(carry, intervals):
        phase, times, events, exhausted, grazing = carry
        instants = jnp.cumsum(intervals)
        window, unspent = _through(
            balls, _Window(phase, now, times, events, empty, grazing), settings, instants, neighbours
        )
        samples = _samples(phase, window.flights, instants)
        end = instants[-1]
        position, velocity, _ = _flight(window.phase)
        phase = jnp.concatenate([position + end * velocity, velocity])
        times = window.times - lax.stop_gradient(end)
        return (phase, times, window.events, exhausted | unspent, window.grazing), samples

    start = jnp.concatenate([position, velocity]), times, events, never, never
    (_, _, _, exhausted, grazing), samples = lax.scan(advance, start, padded)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:steps], samples), exhausted, grazing


def _first_plan(balls: Balls, flight: Flight, settings: Settings):
    """The next event of every body, body by body: memory grows like their number and not its square."""
    scenes, bodies = flight.position.shape[1:]

    def plan(body):
        subject = jnp.full((scenes, 1), body, jnp.int32)
        return _upcoming(balls, flight, flight.of(subject), subject, settings)

    times, events = lax.map(plan, jnp.arange(bodies, dtype=jnp.int32))
    return times[..., 0].T, events[..., 0].T


def _flight(phase: Float[Array, "phase *any"]) -> Flight:
    return Flight(phase[: len(phase) // 2], phase[len(phase) // 2 :], None)


def _upcoming(balls: Balls, flight: Flight, own: Flight, subjects, settings: Settings):
    """`next_events` as plain numbers: an event carries derivatives when it takes place."""
    balls, flight, own = lax.stop_gradient((balls, flight, own))
    return next_events(
        balls,
        flight,
        own,
        subjects,
        closed=None,
        settled=None,
        others=None,
        remaining=jnp.zeros((len(subjects),), flight.position.dtype),
        rest_speed=settings.rest_speed,
    )


def _through(
    balls: Balls,
    window: _Window,
    settings: Settings,
    instants: Float[Array, "samples"],
    neighbours: int | None,
) -> tuple[_Window, Bool[Array, "scenes"]]:
    """All impacts of a window, and which scenes had more than there may be."""
    limit = lax.stop_gradient(instants[-1])
    bound = balls.bodies * settings.max_impacts * len(instants)

    def unfinished(carry):
        count, window = carry
        return (count < bound) & jnp.any(window.times < limit)

    def go_on(carry):
        count, window = carry
        return count + 1, _impact(balls, window, settings, instants)

    window = lax.while_loop(unfinished, go_on, (0, window))[1]
    unspent = jnp.any(window.times < limit, axis=1)
    window = lax.cond(
        jnp.any(unspent),
        lambda w: _give_up(balls, w, settings, instants, unspent, neighbours),
        lambda w: w,
        window,
    )
    return window, unspent


def _impact(balls: Balls, window: _Window, settings: Settings, instants: Float[Array, "samples"]) -> _Window:
    """The earliest impact of every scene that has one left in the window."""
    scenes, bodies = window.times.shape
    soonest, first = earliest(window.times, 1)
    active = soonest < lax.stop_gradient(instants[-1])
    event = event_of(balls, window.events, first, active)
    # Places in arrays over scenes and bodies together; what is past their end is left out.
    first_place = jnp.arange(scenes, dtype=jnp.int32)[:, None] * bodies
    place = first_place + event.subjects
    pair = window.phase.reshape(-1, scenes * bodies)[:, place]
    # From where both are now, so that the derivative of the clock is in the positions.
    here = _flight(pair).after(window.clock)
    guess = jnp.where(active, jnp.maximum(soonest - window.clock, 0), 0)
    elapsed, grazes = exact_instant(balls, here, event, guess, grazing_speed=settings.grazing_speed)
    here, clock = here.after(elapsed), window.clock + elapsed
    change = velocity_changes(
        balls,
        meeting(balls, here, event),
        event,
        tired=jnp.zeros_like(active),
        rest_speed=settings.rest_speed,
    )
    here = here._replace(velocity=here.velocity + change)
    after = jnp.concatenate(here.after(-clock)[:2])

    nowhere = scenes * bodies
    struck = jnp.stack([event.hits, event.with_body], axis=1)
    at = jnp.where(struck, place, nowhere)
    phase = _set(window.phase, at, after)
    slot = jnp.sum(instants[None] < lax.stop_gradient(clock)[:, None], axis=1, dtype=jnp.int32)
    row = jnp.where(struck, slot[:, None] * nowhere + place, nowhere * len(instants))
    flights = window.flights.reshape(-1, len(after))
    flights = flights.at[row].set(jnp.moveaxis(after, 0, -1), mode="drop", unique_indices=True)

    time, upcoming = _upcoming(balls, _flight(phase).after(clock), here, event.subjects, settings)
    # Who was to meet a body that has changed its way must look again, once that time has come.
    lost = (window.events == first[:, None]) & event.happens[:, None]
    lost = lost | (window.events == event.second[:, None]) & event.with_body[:, None]
    events = jnp.where(lost, Codes(balls.bodies, balls.planes).unknown, window.events)
    at = jnp.where(jnp.stack([active, event.with_body], axis=1), place, nowhere)
    return _Window(
        phase,
        clock,
        _set(window.times[None], at, (time + lax.stop_gradient(clock)[:, None])[None])[0],
        _set(events[None], at, upcoming[None])[0],
        flights.reshape(window.flights.shape),
        window.grazing | grazes,
    )


def _set(values: Array, places: Int[Array, "scenes 2"], new: Array) -> Array:
    """Values per scene and body with new ones at some places, counted over scenes and bodies together."""
    flat = values.reshape(len(values), -1)
    return flat.at[:, places].set(new, mode="drop", unique_indices=True).reshape(values.shape)


def _give_up(
    balls: Balls,
    window: _Window,
    settings: Settings,
    instants: Float[Array, "samples"],
    scenes: Bool[Array, "scenes"],
    neighbours: int | None,
) -> _Window:
    """Let everything in scenes that exceed all bounds settle until the end of the window."""
    every = jnp.broadcast_to(scenes[:, None], window.times.shape)
    limit, clock = lax.stop_gradient((instants[-1], window.clock))
    flight = _flight(window.phase).after(clock)
    lists, crowded = None, jnp.zeros_like(scenes)
    if neighbours is not None:
        # However a scene settles, no body becomes faster than all its energy makes the lightest.
        energy = jnp.sum(balls.masses[None] * dot(flight.velocity, flight.velocity), axis=1)
        reach = 2 * (limit - clock) * jnp.sqrt(energy / jnp.min(balls.masses))
        place, radii, reach = lax.stop_gradient((flight.position, balls.radii, reach))
        lists, crowded = neighbour_lists(place, radii, reach, capacity=neighbours)
    result = settle(balls, flight, every, lists, limit - clock, rest_speed=settings.rest_speed)
    # Where not all fit on the lists, everything stops: that overlaps nothing and gains nothing.
    stop = (scenes & crowded)[None, :, None]
    flight = flight._replace(velocity=jnp.where(stop, 0, result.velocity))
    after = jnp.concatenate(flight.after(-clock)[:2])
    phase = jnp.where(every[None], after, window.phase)
    slot = jnp.where(scenes, jnp.sum(instants[None] < clock[:, None], axis=1), len(instants))
    flights = window.flights.at[slot, jnp.arange(len(slot))].set(jnp.moveaxis(phase, 0, -1), mode="drop")
    return window._replace(
        phase=phase,
        # What comes next is looked for at the start of the next window.
        times=jnp.where(every, limit, window.times),
        events=jnp.where(every, Codes(balls.bodies, balls.planes).unknown, window.events),
        flights=flights,
    )


def _samples(
    phase: Float[Array, "phase scenes bodies"],
    flights: Float[Array, "samples scenes bodies phase"],
    instants: Float[Array, "samples"],
) -> State:
    """Where the last flight that began before each sample has led by then."""
    dimension = len(phase) // 2

    def read(latest, given):
        rows, instant = given
        latest = jnp.where(jnp.isnan(rows), latest, rows)
        speed = latest[..., dimension:]
        return latest, State(latest[..., :dimension] + instant * speed, speed)

    return lax.scan(read, jnp.moveaxis(phase, 0, -1), (flights, instants))[1]
