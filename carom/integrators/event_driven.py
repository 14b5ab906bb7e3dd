"""Balls among planes in a uniform field, event by event: exact flights, impacts at their instants.

Between impacts a ball flies on a parabola, and two balls in the same field approach each other on a straight line,
so that every impact time is the root of a quadratic. Each ball keeps the time of its own next event; an impact
changes those of the two balls that it hits, and of no other.

The step takes a batch of scenes at once. A `vmap` over a loop that ends when its last member is done would select
over all of its state at every pass; here a scene that is done has nothing to do.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.flights import (
    Codes,
    Flight,
    dot,
    next_events,
    supported,
)
from carom.integrators.rollout import prepend
from carom.integrators.settling import settle, touching_cluster
from carom.mechanics import Balls, length, removed_slip
from carom.types import State


class EventReport(NamedTuple):
    """What happened inside each step of each scene."""

    touched: Bool[Array, "*steps scenes bodies"]
    """Bodies that carried an impulse or a resting force."""
    contact: Bool[Array, "*steps scenes bodies targets"] | None
    """The same by what was touched, the other bodies and then the planes; where asked for."""
    exhausted: Bool[Array, "*steps scenes"]
    """Some body made more than `max_impacts` impacts: its further ones were without rebound."""
    grazing: Bool[Array, "*steps scenes"]
    """An approach slower than `grazing_speed`: the derivative of its contact time was clipped."""


class _Settings(NamedTuple):
    max_impacts: int
    grazing_speed: float
    rest_speed: float


class _Progress(NamedTuple):
    flight: Flight
    clock: Float[Array, "scenes"]
    times: Float[Array, "scenes bodies"]
    """When the next event of every body is, on the clock of the step."""
    events: Int[Array, "scenes bodies"]
    stale: Bool[Array, "scenes bodies"]
    """The next event was to be with a body that has gone another way since: no later than the true one."""
    impacts: Int[Array, "scenes bodies"]
    settled: Bool[Array, "scenes bodies"] | None
    """Bodies that lean on each other until the end of the step; None on a free table."""
    budget: Float[Array, "scenes"] | None
    """The energy of the settled bodies when they were."""
    report: EventReport


def event_driven_motion(
    balls: Balls,
    start: State,
    intervals: Float[Array, "steps"],
    *,
    max_impacts: int = 64,
    grazing_speed: float = 1e-3,
    rest_speed: float = 1e-9,
    report_contacts: bool = False,
) -> tuple[State, EventReport]:
    """The motion of a batch of scenes, sampled after every interval; returns the start and all samples.

    Derivatives are those of forward mode.

    Arguments:
        balls: the bodies, the planes and the laws of contact, the same in every scene.
        start: positions and velocities with a leading axis of scenes.
        intervals: the times between samples.
        max_impacts: impacts of one body within an interval beyond which its impacts are without rebound. A ball
            that bounces ever faster (e < 1) exceeds any number; it comes to rest, and the report says so.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a rebound slower than this is none; what touches and separates more slowly is at rest.
        report_contacts: whether to say which bodies and planes were touched, and not only which bodies touched.

    Example:
        >>> from carom.mechanics import Balls
        >>> pair = Balls(
        ...     masses=jnp.array([1.0, 3.0]), radii=jnp.full(2, 0.5), normals=jnp.zeros((0, 1)),
        ...     offsets=jnp.zeros(0), restitution=jnp.array(1.0), friction=jnp.array(0.0), gravity=None, solids=(),
        ... )
        >>> start = State(jnp.array([[[3.0], [0.0]]]), jnp.array([[[-2.0], [0.0]]]))
        >>> motion, report = event_driven_motion(pair, start, jnp.array([2.0]))
        >>> motion.position[-1, 0, :, 0], motion.velocity[-1, 0, :, 0]     # they met after 1 s
        (Array([2., 1.], dtype=float32), Array([1., 1.], dtype=float32))
    """
    settings = _Settings(max_impacts, grazing_speed, rest_speed)
    flight = Flight(
        jnp.moveaxis(start.position, -1, 0),
        jnp.moveaxis(start.velocity, -1, 0),
        None if balls.gravity is None else jnp.zeros_like(jnp.moveaxis(start.velocity, -1, 0)),
    )
    progress = _planned(balls, _begin(balls, flight, report_contacts), settings, intervals[0])

    def advance(progress: _Progress, interval):
        progress = _step(balls, progress, settings, interval, report_contacts)
        position, velocity, _ = progress.flight
        sample = State(jnp.moveaxis(position, 0, -1), jnp.moveaxis(velocity, 0, -1))
        return progress, (sample, progress.report)

    _, (samples, reports) = lax.scan(advance, progress, intervals)
    return prepend(start, samples), reports


def _begin(balls: Balls, flight: Flight, report_contacts: bool) -> _Progress:
    """All clocks at 0, nothing planned."""
    scenes, bodies = flight.position.shape[1:]
    dtype = flight.position.dtype
    none, never = jnp.zeros((scenes, bodies), bool), jnp.zeros((scenes,), bool)
    contact = jnp.zeros((scenes, bodies, bodies + balls.planes), bool) if report_contacts else None
    field = balls.gravity is not None
    return _Progress(
        flight,
        jnp.zeros((scenes,), dtype),
        jnp.full((scenes, bodies), jnp.inf, dtype),
        jnp.zeros((scenes, bodies), jnp.int32),
        none,
        jnp.zeros((scenes, bodies), jnp.int32),
        none if field else None,
        jnp.zeros((scenes,), dtype) if field else None,
        EventReport(none, contact, never, never),
    )


def _step(
    balls: Balls, progress: _Progress, settings: _Settings, interval: Float[Array, ""], report_contacts: bool
) -> _Progress:
    """From one sample to the next."""
    if balls.gravity is None:
        # What was planned holds on, on the new clock.
        fresh = _begin(balls, progress.flight, report_contacts)
        progress = fresh._replace(times=progress.times, events=progress.events, stale=progress.stale)
    else:
        progress = _planned(balls, _begin(balls, progress.flight, report_contacts), settings, interval)
    limit = lax.stop_gradient(interval)
    bodies = balls.bodies
    bound = 4 * bodies * (settings.max_impacts + bodies)

    def unfinished(carry):
        count, progress = carry
        return (count < bound) & jnp.any(progress.times < limit)

    def go_on(carry):
        count, progress = carry
        return count + 1, _next_event(balls, progress, settings, limit)

    progress = lax.while_loop(unfinished, go_on, (0, progress))[1]
    unspent = jnp.any(progress.times < limit, axis=1)
    progress = lax.cond(
        jnp.any(unspent), lambda p: _give_up(balls, p, settings, limit, unspent), lambda p: p, progress
    )
    flight = progress.flight.after(interval - progress.clock)
    return progress._replace(flight=flight, times=progress.times - limit)


def _give_up(balls: Balls, progress: _Progress, settings: _Settings, limit, unspent) -> _Progress:
    """Let everything in a scene that exceeds all bounds settle for the rest of the step."""
    every = jnp.broadcast_to(unspent[:, None], progress.times.shape)
    settled = settle(
        balls, progress.flight, every, None, limit - progress.clock, rest_speed=settings.rest_speed
    )
    acceleration = progress.flight.acceleration
    if acceleration is not None:
        acceleration = jnp.where(every[None], 0, acceleration)
    flight = Flight(progress.flight.position, settled.velocity, acceleration)
    report = progress.report._replace(exhausted=progress.report.exhausted | unspent)
    # Past the limit, so that the step ends; what comes next is planned from there.
    times = jnp.where(every, limit, progress.times)
    return progress._replace(flight=flight, times=times, stale=progress.stale | every, report=report)


def _planned(
    balls: Balls,
    progress: _Progress,
    settings: _Settings,
    interval,
    scenes: Bool[Array, "scenes"] | None = None,
) -> _Progress:
    """The next event of every body, in all scenes or in some."""
    flight, settled = progress.flight, progress.settled
    bodies = jnp.arange(balls.bodies, dtype=jnp.int32)
    subjects = jnp.broadcast_to(bodies[None], progress.times.shape)
    report, closed = progress.report, None
    if settled is not None:
        radii = jnp.broadcast_to(balls.radii[None], progress.times.shape)
        held, closed, pushes = supported(balls, flight, radii, rest_speed=settings.rest_speed)
        free = ~settled if scenes is None else ~settled & scenes[:, None]
        flight = Flight(*(jnp.where(free[None], new, old) for new, old in zip(held, flight, strict=True)))
        closed, pushes = closed & free[None], pushes & free[None]
        report = _with_planes(balls, report, pushes)
    remaining = lax.stop_gradient(interval - progress.clock)
    time, event = _upcoming(balls, flight, subjects, closed, settled, remaining, settings)
    time = time + lax.stop_gradient(progress.clock)[:, None]
    if scenes is None:
        return progress._replace(
            flight=flight, times=time, events=event, stale=jnp.zeros_like(progress.stale), report=report
        )
    chosen = scenes[:, None]
    return progress._replace(
        flight=flight,
        times=jnp.where(chosen, time, progress.times),
        events=jnp.where(chosen, event, progress.events),
        stale=progress.stale & ~chosen,
        report=report,
    )


def _upcoming(balls, flight, subjects, closed, settled, remaining, settings):
    """`next_events` as plain numbers: when an event takes place carries its derivative, the plan does not."""
    balls, flight = lax.stop_gradient((balls, flight))
    return next_events(
        balls,
        flight,
        subjects,
        closed=closed,
        settled=settled,
        others=None,
        remaining=remaining,
        rest_speed=settings.rest_speed,
    )


def _with_planes(
    balls: Balls, report: EventReport, pushes: Bool[Array, "planes scenes bodies"]
) -> EventReport:
    """The report with planes that push resting bodies."""
    touched = report.touched | jnp.any(pushes, axis=0)
    contact = report.contact
    if contact is not None:
        planes = jnp.moveaxis(pushes, 0, -1)
        contact = contact.at[..., balls.bodies :].set(contact[..., balls.bodies :] | planes)
    return report._replace(touched=touched, contact=contact)


class _Meeting(NamedTuple):
    """Two bodies, or a body and a plane, at one instant."""

    normal: Float[Array, "dimension scenes"]
    gap: Float[Array, "scenes"]
    relative: Float[Array, "dimension scenes"]
    rate: Float[Array, "scenes"]


def _meeting(balls: Balls, own: Flight, other: Flight, first, second, plane, with_body) -> _Meeting:
    """Seen from the first body."""
    away = own.position - other.position
    reach = balls.radii[first] + balls.radii[second]
    if len(away) == 1:
        side = jnp.where(first < second, 1, -1).astype(away.dtype)
        normal, distance = side[None], side * away[0]
    else:
        distance = length(away, axis=0)
        normal = away / jnp.where(distance > 0, distance, 1)[None]
    gap, relative = distance - reach, own.velocity - other.velocity
    if balls.planes:
        facing = balls.normals[plane].T
        normal = jnp.where(with_body[None], normal, facing)
        clearance = dot(facing, own.position) - balls.offsets[plane] - balls.radii[first]
        gap = jnp.where(with_body, gap, clearance)
        relative = jnp.where(with_body[None], relative, own.velocity)
    return _Meeting(normal, gap, relative, dot(normal, relative))


def _next_event(balls: Balls, progress: _Progress, settings: _Settings, limit: Float[Array, ""]) -> _Progress:
    """Advance every scene to its earliest event, if that lies within the step, and let it happen."""
    flight, clock, times, events, stale, impacts, settled, _, report = progress
    codes = Codes(balls.bodies, balls.planes)
    every = jnp.arange(balls.bodies, dtype=jnp.int32)[None]
    first = jnp.argmin(times, axis=1).astype(jnp.int32)
    soonest = jnp.min(times, axis=1)
    active = soonest < limit
    event = jnp.take_along_axis(events, first[:, None], axis=1)[:, 0]
    happens = active & ~jnp.take_along_axis(stale, first[:, None], axis=1)[:, 0]
    with_body = happens & (event < codes.bodies)
    with_plane = happens & (event >= codes.bodies) & (event < codes.edge)
    passes = happens & (event >= codes.edge) & (event < codes.halt)
    hits = with_body | with_plane
    second = jnp.where(with_body, event, first)
    plane = jnp.where(passes, event - codes.edge, event - codes.bodies)
    plane = jnp.clip(plane, 0, max(balls.planes - 1, 0))

    # One Newton step at a fixed slope makes the instant exact and carries the derivative of the implicit function.
    elapsed = lax.stop_gradient(jnp.where(active, jnp.maximum(soonest - clock, 0), 0))
    own, other = (flight.of(body[:, None]) for body in (first, second))
    there = _meeting(
        balls, *(_single(x.after(elapsed)) for x in (own, other)), first, second, plane, with_body
    )
    rate = lax.stop_gradient(there.rate)
    slope = jnp.where(
        passes, jnp.maximum(rate, settings.grazing_speed), jnp.minimum(rate, -settings.grazing_speed)
    )
    correction = jnp.where(hits | passes, -there.gap / slope, 0)
    if flight.acceleration is not None:
        speed, slowing = (dot(own.velocity, x)[:, 0] for x in (own.velocity, own.acceleration))
        halts = happens & (event == codes.halt)
        correction = jnp.where(halts, speed / jnp.where(halts, -slowing, 1) - elapsed, correction)
    elapsed = elapsed + correction
    flight = flight.after(elapsed)
    clock = clock + elapsed
    trigger = jnp.zeros_like(active)
    if settled is not None:
        trigger = with_body & jnp.any(
            jnp.take_along_axis(settled, jnp.stack([first, second], axis=1), axis=1), axis=1
        )
        flight = _afforded(balls, flight, progress, trigger)

    own, other = (_single(flight.of(body[:, None])) for body in (first, second))
    meeting = _meeting(balls, own, other, first, second, plane, with_body)
    is_first, is_second = first[:, None] == every, (second[:, None] == every) & with_body[:, None]
    impacts = impacts + ((is_first & hits[:, None]) | is_second).astype(impacts.dtype)
    worn = jnp.max(jnp.where(is_first | is_second, impacts, 0), axis=1)
    tired = hits & (worn > settings.max_impacts)
    change, other_change = _impact(balls, meeting, first, second, with_body, hits, tired, settings)
    velocity = flight.velocity + jnp.where(is_first[None], change[..., None], 0)
    velocity = velocity + jnp.where(is_second[None], other_change[..., None], 0)
    flight = flight._replace(velocity=velocity)

    moved = (is_first & happens[:, None]) | is_second
    touched = report.touched | (moved & hits[:, None])
    contact = report.contact
    if contact is not None:
        targets = jnp.arange(balls.bodies + balls.planes)[None, None]
        contact = contact | (is_first & hits[:, None])[..., None] & (targets == event[:, None, None])
        contact = contact | is_second[..., None] & (targets == first[:, None, None])
    report = EventReport(
        touched,
        contact,
        report.exhausted | tired,
        report.grazing | (hits & (rate > -settings.grazing_speed)),
    )
    subjects = jnp.stack([first, second], axis=1)
    updates = jnp.stack([is_first & active[:, None], is_second], axis=2)
    closed = None
    if settled is not None:
        flight, closed, report = _supported_subjects(
            balls, flight, subjects, updates, settled, report, settings
        )
    remaining = lax.stop_gradient(limit - clock)
    time, upcoming = _upcoming(balls, flight, subjects, closed, settled, remaining, settings)
    time = time + lax.stop_gradient(clock)[:, None]
    # Who was to meet a body that has changed its way must look again, once that time has come.
    stale = stale | (_one_of(events, first, happens) | _one_of(events, second, with_body))
    for index in range(2):
        chosen = updates[..., index]
        times = jnp.where(chosen, time[:, index, None], times)
        events = jnp.where(chosen, upcoming[:, index, None], events)
        stale = stale & ~chosen
    progress = progress._replace(
        flight=flight, clock=clock, times=times, events=events, stale=stale, impacts=impacts, report=report
    )
    if settled is None:
        return progress
    # Resting contact between bodies, and bodies beyond all patience: both join those that settle.
    joins = (happens & (event == codes.press))[:, None] & is_first
    joins = joins | moved & (hits & (worn > 2 * settings.max_impacts))[:, None]
    trigger = trigger | jnp.any(joins, axis=1)
    return lax.cond(
        jnp.any(trigger),
        lambda p: _settle_down(balls, p, settings, limit, settled | joins, trigger),
        lambda p: p,
        progress,
    )


def _single(flight: Flight) -> Flight:
    return Flight(*(None if x is None else x[..., 0] for x in flight))


def _one_of(events: Int[Array, "scenes bodies"], body: Int[Array, "scenes"], where: Bool[Array, "scenes"]):
    return (events == body[:, None]) & where[:, None]


def _impact(balls: Balls, meeting: _Meeting, first, second, with_body, hits, tired, settings: _Settings):
    """The changes of velocity of both bodies: Newton's law along the normal, Coulomb's across it."""
    inverse, other_inverse = 1 / balls.masses[first], jnp.where(with_body, 1 / balls.masses[second], 0)
    compliance = inverse + other_inverse
    rebound = -balls.restitution * meeting.rate
    rebound = jnp.where(tired | (rebound <= settings.rest_speed), 0, rebound)
    push = jnp.where(hits, jnp.maximum(rebound - meeting.rate, 0) / compliance, 0)
    slip = meeting.relative - meeting.normal * meeting.rate[None]
    share = removed_slip(length(slip, axis=0), push, friction=balls.friction, compliance=compliance)
    braking = jnp.where(hits, share / compliance, 0)
    impulse = push[None] * meeting.normal - braking[None] * slip
    return inverse[None] * impulse, -other_inverse[None] * impulse


def _supported_subjects(balls, flight: Flight, subjects, updates, settled, report, settings: _Settings):
    """Bodies after an event, held by the planes they rest on."""
    own = flight.of(subjects)
    held, closed, pushes = supported(balls, own, balls.radii[subjects], rest_speed=settings.rest_speed)
    loose = ~jnp.take_along_axis(settled, subjects, axis=1)
    closed = closed & loose[None]
    velocity, acceleration = flight.velocity, flight.acceleration
    pushing = jnp.zeros((balls.planes, *settled.shape), bool)
    for index in range(2):
        chosen = updates[..., index] & loose[:, index, None]
        velocity = jnp.where(chosen[None], held.velocity[..., index, None], velocity)
        acceleration = jnp.where(chosen[None], held.acceleration[..., index, None], acceleration)
        pushing = pushing | (chosen[None] & pushes[..., index, None])
    return Flight(flight.position, velocity, acceleration), closed, _with_planes(balls, report, pushing)


def _energy(balls: Balls, flight: Flight, bodies: Bool[Array, "scenes bodies"]):
    """Kinetic and potential energy of some bodies of every scene."""
    mass = jnp.where(bodies, balls.masses[None], 0)
    field = jnp.broadcast_to(balls.field()[:, None, None], flight.position.shape)
    kinetic = 0.5 * jnp.sum(mass * dot(flight.velocity, flight.velocity), axis=1)
    return kinetic, -jnp.sum(mass * dot(field, flight.position), axis=1)


def _afforded(balls: Balls, flight: Flight, progress: _Progress, scenes: Bool[Array, "scenes"]) -> Flight:
    """Settled bodies, whose fall for the whole step is in their velocity, at what they can have by now."""
    settled, budget = progress.settled, progress.budget
    assert settled is not None and budget is not None
    kinetic, potential = lax.stop_gradient(_energy(balls, flight, settled))
    share = jnp.sqrt(jnp.clip((budget - potential) / jnp.where(kinetic > 0, kinetic, 1), 0, 1))
    slower = settled & (scenes & (kinetic > 0))[:, None]
    return flight._replace(velocity=jnp.where(slower[None], share[None, :, None], 1) * flight.velocity)


def _settle_down(balls: Balls, progress: _Progress, settings: _Settings, limit, joined, scenes) -> _Progress:
    """Let bodies that lean on each other settle for the rest of the step, and plan anew around them."""
    flight, rest_speed = progress.flight, settings.rest_speed
    old = progress.settled
    assert old is not None and flight.acceleration is not None
    chosen = scenes[:, None]
    cluster = touching_cluster(balls, flight, joined & chosen, None, rest_speed=rest_speed)
    cluster = jnp.where(chosen, cluster, False)
    budget = jnp.where(scenes, sum(lax.stop_gradient(_energy(balls, flight, cluster))), progress.budget)
    result = settle(balls, flight, cluster, None, limit - progress.clock, rest_speed=rest_speed)
    flight = Flight(
        flight.position,
        jnp.where(cluster[None], result.velocity, flight.velocity),
        jnp.where(cluster[None], 0, flight.acceleration),
    )
    report = _with_planes(balls, progress.report, result.pushes_plane)
    report = report._replace(touched=report.touched | jnp.any(result.pushes_body, axis=-1))
    if report.contact is not None:
        bodies = report.contact[..., : balls.bodies] | result.pushes_body
        report = report._replace(contact=report.contact.at[..., : balls.bodies].set(bodies))
    progress = progress._replace(
        flight=flight, settled=jnp.where(chosen, cluster, old), budget=budget, report=report
    )
    return _planned(balls, progress, settings, limit, scenes)
