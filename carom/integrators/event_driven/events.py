"""One event in every scene of a batch: the earliest one, and what follows from it."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.clusters import settle, touching_cluster
from carom.integrators.event_driven.encounters import (
    Event,
    Settings,
    event_of,
    exact_instant,
    meeting,
    velocity_changes,
)
from carom.integrators.event_driven.flights import Codes, Flight, Others, dot, earliest
from carom.integrators.event_driven.neighbours import Near
from carom.integrators.event_driven.next_events import next_events
from carom.integrators.event_driven.support import supported

ReportKind = Literal["none", "bodies", "contacts"]


class EventReport(NamedTuple):
    """What happened inside each step of each scene; in all steps together, where no bodies were asked for."""

    touched: Bool[Array, "*steps scenes bodies"] | None
    """Bodies that carried an impulse or a resting force; where asked for."""
    contact: Bool[Array, "*steps scenes bodies targets"] | None
    """The same by what was touched, the other bodies and then the planes; where asked for."""
    exhausted: Bool[Array, "*steps scenes"]
    """Some body made more than `max_impacts` impacts: its further ones were without rebound."""
    grazing: Bool[Array, "*steps scenes"]
    """An approach slower than `grazing_speed`: the derivative of its contact time was clipped."""
    crowded: Bool[Array, "*steps scenes"]
    """Some body had more neighbours than a list holds, or lists expired too often: impacts may have been
    missed."""

    def with_touched(self, bodies: Bool[Array, "scenes bodies"]) -> "EventReport":
        """The same with more bodies that touched something, where that is asked for."""
        return self._replace(touched=None if self.touched is None else self.touched | bodies)


class Progress(NamedTuple):
    """Where a batch of scenes is within a step."""

    flight: Flight
    clock: Float[Array, "scenes"]
    times: Float[Array, "scenes bodies"]
    """When the next event of every body is, on the clock of the step."""
    events: Int[Array, "scenes bodies"]
    """What it is, as `Codes` has it."""
    impacts: Int[Array, "scenes bodies"]
    unplanned: Bool[Array, "scenes"]
    """Scenes in which no event is known yet."""
    settled: Bool[Array, "scenes bodies"]
    """Bodies that lean on each other until the end of the step."""
    budget: Float[Array, "scenes"]
    """The energy of the settled bodies when they were."""
    near: Near | None
    """Which bodies each body may meet; None for all."""
    report: EventReport

    @property
    def others(self) -> Others | None:
        """The bodies that each body may meet."""
        return None if self.near is None else self.near.lists


def begin(balls: Balls, flight: Flight, *, report: ReportKind) -> Progress:
    """All clocks at 0, nothing planned."""
    shape, dtype = flight.position.shape[1:], flight.position.dtype
    none, never = jnp.zeros(shape, bool), jnp.zeros(shape[:1], bool)
    contact = jnp.zeros((*shape, balls.bodies + balls.planes), bool) if report == "contacts" else None
    return Progress(
        flight=flight,
        clock=jnp.zeros(shape[:1], dtype),
        times=jnp.full(shape, jnp.inf, dtype),
        events=jnp.zeros(shape, jnp.int32),
        impacts=jnp.zeros(shape, jnp.int32),
        unplanned=~never,
        settled=none,
        budget=jnp.zeros(shape[:1], dtype),
        near=None,
        report=EventReport(None if report == "none" else none, contact, never, never, never),
    )


def _planned(
    balls: Balls, progress: Progress, settings: Settings, end: Float[Array, ""], scenes: Bool[Array, "scenes"]
) -> Progress:
    """The next event of every body of some scenes."""
    flight, settled, report, closed = progress.flight, progress.settled, progress.report, None
    subjects = jnp.broadcast_to(jnp.arange(balls.bodies, dtype=jnp.int32)[None], progress.times.shape)
    if flight.acceleration is not None:
        radii = jnp.broadcast_to(balls.radii[None], progress.times.shape)
        held, closed, pushes = supported(balls, flight, radii, rest_speed=settings.rest_speed)
        free = ~settled & scenes[:, None]
        flight = jax.tree.map(lambda new, old: jnp.where(free[None], new, old), held, flight)
        closed = closed & free[None]
        report = _with_planes(balls, report, pushes & free[None])
    progress = progress._replace(flight=flight, report=report, unplanned=jnp.zeros_like(progress.unplanned))
    time, event = _upcoming(balls, progress, flight, subjects, closed, progress.others, settings, end)
    return progress._replace(
        times=jnp.where(scenes[:, None], time, progress.times),
        events=jnp.where(scenes[:, None], event, progress.events),
    )


def _upcoming(balls, progress: Progress, own, subjects, closed, others, settings: Settings, end):
    """`next_events` on the clock, as plain numbers: an event carries derivatives when it takes place."""
    balls, flight, own, clock = lax.stop_gradient((balls, progress.flight, own, progress.clock))
    time, event = next_events(
        balls,
        flight,
        own,
        subjects,
        closed=closed,
        settled=progress.settled,
        others=others,
        remaining=end - clock,
        rest_speed=settings.rest_speed,
    )
    return time + clock[:, None], event


def next_event(
    balls: Balls,
    progress: Progress,
    settings: Settings,
    *,
    limit: Float[Array, "scenes"],
    end: Float[Array, ""],
    last: Bool[Array, ""],
) -> Progress:
    """Advance every scene to its earliest event before its limit, and let it happen.

    Arguments:
        limit: how far each scene may go.
        end: the end of the step.
        last: no further event is to follow, so that all bodies settle in scenes that would have one.
    """
    flight, clock, settled = progress.flight, progress.clock, progress.settled
    codes = Codes(balls.bodies, balls.planes)
    soonest, first = earliest(progress.times, 1)
    active = (soonest < limit) & ~progress.unplanned
    event = event_of(balls, progress.events, first, active)
    pair = flight.of(event.subjects)
    guess = jnp.where(active, jnp.maximum(soonest - clock, 0), 0)
    elapsed, grazes = exact_instant(balls, pair, event, guess, grazing_speed=settings.grazing_speed)
    near = None if progress.near is None else progress.near.after(flight, elapsed)
    flight, clock = flight.after(elapsed), clock + elapsed
    is_first, is_second = event.is_first(balls.bodies), event.is_second(balls.bodies)
    struck = (is_first & event.hits[:, None]) | is_second
    impacts = progress.impacts + struck.astype(jnp.int32)
    worn = jnp.max(jnp.where(struck, impacts, 0), axis=1)
    tired = worn > settings.max_impacts
    # Bodies that rest on each other, and bodies beyond all patience, join those that settle.
    joins = (event.happens & (event.code == codes.press))[:, None] & is_first
    joins = joins | struck & (worn > 2 * settings.max_impacts)[:, None] | (active & last)[:, None]
    disturbed = event.with_body & jnp.any(jnp.take_along_axis(settled, event.subjects, axis=1), axis=1)
    settles = disturbed | jnp.any(joins, axis=1)
    joined = (settled | joins) & settles[:, None]
    flight = _afforded(balls, flight, progress, settles)
    pair = flight.of(event.subjects)
    change = velocity_changes(
        balls, meeting(balls, pair, event), event, tired=tired, rest_speed=settings.rest_speed
    )
    pair = pair._replace(velocity=pair.velocity + change)
    report = progress.report
    report = report._replace(
        exhausted=report.exhausted | tired | (active & last),
        grazing=report.grazing | grazes,
        contact=_with_bodies(balls, report.contact, event, struck),
    ).with_touched(struck)
    closed = None
    if flight.acceleration is not None:
        pair, closed, report = _supported_pair(balls, pair, event, settled, report, settings)
    # The second body goes first: where there is none, it is the first one as it was.
    renewed = [(1, is_second), (0, is_first & active[:, None])]
    flight = jax.tree.map(lambda old, new: _replaced(old, new, renewed), flight, pair)
    progress = progress._replace(flight=flight, clock=clock, impacts=impacts, near=near, report=report)
    others = None if progress.others is None else _rows(progress.others, event.subjects)
    time, upcoming = _upcoming(balls, progress, pair, event.subjects, closed, others, settings, end)
    # Who was to meet a body that has changed its way must look again, once that time has come.
    lost = (progress.events == first[:, None]) & event.happens[:, None]
    lost = lost | (progress.events == event.second[:, None]) & event.with_body[:, None]
    events = jnp.where(lost, codes.unknown, progress.events)
    times = progress.times
    for index, chosen in renewed:
        times = jnp.where(chosen, time[:, index, None], times)
        events = jnp.where(chosen, upcoming[:, index, None], events)
    progress = progress._replace(times=times, events=events)

    scenes = settles | progress.unplanned

    def plan(progress: Progress) -> Progress:
        progress = lax.cond(
            jnp.any(settles),
            lambda p: _settle_down(balls, p, settings, end, joined, settles),
            lambda p: p,
            progress,
        )
        return _planned(balls, progress, settings, end, scenes)

    return lax.cond(jnp.any(scenes), plan, lambda p: p, progress)


def _replaced(values, pair, renewed):
    for index, chosen in renewed:
        values = jnp.where(chosen[None], pair[..., index, None], values)
    return values


def _rows(others: Others, chosen: Int[Array, "scenes 2"]) -> Int[Array, "scenes 2 others"]:
    return jnp.take_along_axis(others, chosen[..., None], axis=1)


def _with_bodies(balls: Balls, contact, event: Event, struck):
    """Which bodies and planes have touched, with those of this event."""
    if contact is None:
        return None
    targets = jnp.arange(balls.bodies + balls.planes, dtype=jnp.int32)[None, None]
    met = jnp.where(event.is_first(balls.bodies), event.code[:, None], event.first[:, None])
    return contact | (struck[..., None] & (targets == met[..., None]))


def _with_planes(
    balls: Balls, report: EventReport, pushes: Bool[Array, "planes scenes bodies"]
) -> EventReport:
    """The report with planes that push resting bodies."""
    contact = report.contact
    if contact is not None:
        planes = contact[..., balls.bodies :] | jnp.moveaxis(pushes, 0, -1)
        contact = contact.at[..., balls.bodies :].set(planes)
    return report._replace(contact=contact).with_touched(jnp.any(pushes, axis=0))


def _supported_pair(balls, pair: Flight, event: Event, settled, report, settings: Settings):
    """Both bodies of an event, held by the planes that they rest on."""
    radii = balls.radii[event.subjects]
    held, closed, pushes = supported(balls, pair, radii, rest_speed=settings.rest_speed)
    loose = ~jnp.take_along_axis(settled, event.subjects, axis=1)
    pair = jax.tree.map(lambda new, old: jnp.where(loose[None], new, old), held, pair)
    pushing = jnp.zeros((balls.planes, *settled.shape), bool)
    chosen = event.is_first(balls.bodies) & event.happens[:, None], event.is_second(balls.bodies)
    for index in range(2):
        pushing = pushing | ((pushes & loose[None])[..., index, None] & chosen[index][None])
    return pair, closed & loose[None], _with_planes(balls, report, pushing)


def energies(balls: Balls, flight: Flight, bodies: Bool[Array, "scenes bodies"]):
    """Kinetic and potential energy of some bodies of every scene."""
    mass = jnp.where(bodies, balls.masses[None], 0)
    field = jnp.broadcast_to(balls.field[:, None, None], flight.position.shape)
    kinetic = 0.5 * jnp.sum(mass * dot(flight.velocity, flight.velocity), axis=1)
    return kinetic, -jnp.sum(mass * dot(field, flight.position), axis=1)


def _afforded(balls: Balls, flight: Flight, progress: Progress, scenes: Bool[Array, "scenes"]) -> Flight:
    """Settled bodies, whose fall for the whole step is in their velocity, at what they can have by now."""
    settled, budget = progress.settled, progress.budget
    kinetic, potential = lax.stop_gradient(energies(balls, flight, settled))
    share = jnp.sqrt(jnp.clip((budget - potential) / jnp.where(kinetic > 0, kinetic, 1), 0, 1))
    slower = settled & (scenes & (kinetic > 0))[:, None]
    return flight._replace(velocity=jnp.where(slower[None], share[None, :, None], 1) * flight.velocity)


def _settle_down(balls: Balls, progress: Progress, settings: Settings, end, joined, scenes) -> Progress:
    """Let bodies that lean on each other settle for the rest of the step."""
    flight, others, rest_speed = progress.flight, progress.others, settings.rest_speed
    chosen = scenes[:, None]
    cluster = touching_cluster(balls, flight, joined, others, rest_speed=rest_speed) & chosen
    budget = jnp.where(scenes, sum(lax.stop_gradient(energies(balls, flight, cluster))), progress.budget)
    result = settle(balls, flight, cluster, others, end - progress.clock, rest_speed=rest_speed)
    acceleration = flight.acceleration
    if acceleration is not None:
        acceleration = jnp.where(cluster[None], 0, acceleration)
    velocity = jnp.where(cluster[None], result.velocity, flight.velocity)
    report = _with_planes(balls, progress.report, result.pushes_plane)
    report = report.with_touched(jnp.any(result.pushes_body, axis=-1))
    if report.contact is not None:
        bodies = report.contact[..., : balls.bodies] | result.pushes_body
        report = report._replace(contact=report.contact.at[..., : balls.bodies].set(bodies))
    settled = jnp.where(chosen, cluster, progress.settled)
    flight = Flight(flight.position, velocity, acceleration)
    return progress._replace(flight=flight, settled=settled, budget=budget, report=report)
