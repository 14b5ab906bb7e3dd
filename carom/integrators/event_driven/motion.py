"""Balls among planes in a uniform field, event by event: exact flights, impacts at their instants.

Between impacts a ball flies on a parabola, and two balls in the same field approach each other on a straight
line, so that every impact time is the root of a quadratic. Each ball keeps the time of its own next event; an
impact changes those of the two balls that it hits, and of no other.

A batch of scenes is taken at once. A `vmap` over a loop that ends when its last member is done would select
over all of its state at every pass; here a scene that is done has nothing to do.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.event_driven.balls import Balls, Flight, Others, Scenes, dot, gap_tolerance, pick
from carom.integrators.event_driven.events import (
    Event,
    Options,
    ReportKind,
    event_codes,
    exact_instant,
    first_event,
    meeting,
    next_events,
    outdated,
    velocities_after,
)
from carom.integrators.event_driven.free_table import free_motion
from carom.integrators.event_driven.neighbours import NeighbourLists, greatest_speed, neighbour_lists
from carom.integrators.event_driven.resting import resolve_cluster, supported, touching_cluster
from carom.mechanics import length
from carom.types import State

MARGIN = 4.0
"""The margin of neighbour lists in paths of the fastest body; 2 would do if none became faster."""
MAX_RENEWALS = 1000
SLOW = 1e-3
"""Of the greatest speed in a step: impacts below it that do not cease are those of an inelastic collapse.
Faster ones keep their rebound, so that a body may go on after its collapse."""


class EventReport(NamedTuple):
    """What happened inside each step of each scene; on a free table without contacts, in all of them."""

    contact: Bool[Array, "*steps scenes bodies targets"] | None
    """What pushed each body, at an impact or at rest: other bodies, then planes; None with "none"."""
    exhausted: Bool[Array, "*steps scenes"]
    """Some body made more than `max_impacts` impacts: its further slow ones were without rebound."""
    truncated: Bool[Array, "*steps scenes"]
    """There were too many events: all bodies went on as one cluster, and not as the laws of contact say."""
    grazing: Bool[Array, "*steps scenes"]
    """An approach slower than `grazing_speed`: the derivative of its contact time was clipped."""
    crowded: Bool[Array, "*steps scenes"]
    """Some body had more neighbours than a list holds, or lists expired too often: impacts may have been
    missed."""

    def with_contact(self, pushes: Bool[Array, "scenes bodies targets"]) -> "EventReport":
        """The same with more contacts."""
        return self if self.contact is None else self._replace(contact=self.contact | pushes)


class Progress(NamedTuple):
    """The state of a batch of scenes within a step."""

    flight: Flight
    clock: Float[Array, "scenes"]
    times: Float[Array, "scenes bodies"]
    """When the next event of every body is, on the clock of the step."""
    events: Int[Array, "scenes bodies"]
    """What it is, as `Codes` has it."""
    impacts: Int[Array, "scenes bodies"]
    unplanned: Scenes
    """Scenes in which no event is known yet."""
    clustered: Bool[Array, "scenes bodies"]
    """Bodies that move in a contact cluster until the end of the step."""
    slow: Float[Array, "scenes"]
    """The closing speed below which a contact may come to rest after too many impacts."""
    cluster_energy: Float[Array, "scenes"]
    """The energy of these bodies when their velocities were found."""
    near: NeighbourLists | None
    """Which bodies each body may meet; None for all."""
    report: EventReport

    @property
    def others(self) -> Others | None:
        """The bodies that each body may meet."""
        return None if self.near is None else self.near.others


def event_driven_motion(
    balls: Balls,
    start: State,
    intervals: Float[Array, "steps"],
    *,
    max_impacts: int = 64,
    grazing_speed: float = 1e-3,
    rest_speed: float = 1e-9,
    neighbours: int | None = None,
    report: ReportKind = "contacts",
) -> tuple[State, EventReport]:
    """The states of a batch of scenes after every interval, and what happened in between.

    Derivatives are those of forward mode.

    Arguments:
        balls: the bodies, the planes and the laws of contact, the same in every scene.
        start: positions and velocities with a leading axis of scenes.
        intervals: the times between samples.
        max_impacts: impacts of one body within an interval beyond which its slow impacts are without rebound.
            A ball that bounces ever faster (e < 1) exceeds any number; it comes to rest, and the report says
            so. With several times as many impacts per body the motion is `truncated`.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a rebound slower than this is none; what touches and separates more slowly is at rest.
        neighbours: the most bodies that may be near any one, where neighbour lists are to be kept: with many
            bodies the memory of a scene then grows like their number, and not like its square. Where it is
            too small the report says `crowded`.
        report: whether to record what each body touched within each interval; on a free table the motion
            without it ("none") is several times faster for many scenes.

    Example:
        >>> none = jnp.zeros((0, 1)), jnp.zeros(0)
        >>> e, mu = jnp.array(1.0), jnp.array(0.0)
        >>> pair = Balls(jnp.array([1.0, 3.0]), jnp.full(2, 0.5), *none, e, mu, gravity=None, solids=())
        >>> start = State(jnp.array([[[3.0], [0.0]]]), jnp.array([[[-2.0], [0.0]]]))
        >>> motion, report = event_driven_motion(pair, start, jnp.array([2.0]))
        >>> motion.velocity[-1, 0, :, 0]     # they met after 1 s
        Array([ 1., -1.], dtype=float32)
    """
    options = Options(max_impacts, grazing_speed, rest_speed, neighbours, report)
    position, velocity = (jnp.moveaxis(x, -1, 0) for x in (start.position, start.velocity))
    # On a free table nothing comes to rest, so that scenes need not wait for each other at every sample.
    if balls.gravity is None and report == "none" and len(intervals):
        flight = Flight(position, velocity, None)
        samples, exhausted, grazing = free_motion(balls, flight, intervals, options)
        # All bodies become one cluster then, whatever their speeds are.
        return samples, EventReport(None, exhausted, exhausted, grazing, jnp.zeros_like(grazing))
    flight = Flight(position, velocity, None if balls.gravity is None else jnp.zeros_like(velocity))

    def advance(progress: Progress, interval):
        progress = _step(balls, progress, options, interval)
        position, velocity, _ = progress.flight
        sample = State(jnp.moveaxis(position, 0, -1), jnp.moveaxis(velocity, 0, -1))
        return progress, (sample, progress.report)

    return lax.scan(advance, _begin(balls, flight, report), intervals)[1]


def _begin(balls: Balls, flight: Flight, report: ReportKind) -> Progress:
    """All clocks at 0, no event known."""
    shape, dtype = flight.position.shape[1:], flight.position.dtype
    never = jnp.zeros(shape[:1], bool)
    contact = jnp.zeros((*shape, balls.bodies + balls.planes), bool) if report == "contacts" else None
    return Progress(
        flight=flight,
        clock=jnp.zeros(shape[:1], dtype),
        times=jnp.full(shape, jnp.inf, dtype),
        events=jnp.zeros(shape, jnp.int32),
        impacts=jnp.zeros(shape, jnp.int32),
        unplanned=~never,
        clustered=jnp.zeros(shape, bool),
        slow=jnp.zeros(shape[:1], dtype),
        cluster_energy=jnp.zeros(shape[:1], dtype),
        near=None,
        report=EventReport(contact, never, never, never, never),
    )


def _step(balls: Balls, progress: Progress, options: Options, interval: Float[Array, ""]) -> Progress:
    """From one sample to the next."""
    end = lax.stop_gradient(interval)
    # Clocks restart at every sample: times near 0 keep their digits in long motions.
    fresh = _begin(balls, progress.flight, options.report)
    fresh = fresh._replace(slow=SLOW * greatest_speed(fresh.flight, jnp.broadcast_to(end, fresh.slow.shape)))
    if options.neighbours is not None:
        progress = _among_neighbours(balls, fresh, options, end, options.neighbours)
    else:
        if balls.gravity is None:
            # What was planned remains valid, on the new clock.
            fresh = fresh._replace(times=progress.times, events=progress.events, unplanned=progress.unplanned)
        progress = _events(balls, fresh, options, end)
    flight = progress.flight.after(interval - progress.clock)
    # Clusters end with the step, and so do neighbour lists.
    unplanned = jnp.any(progress.clustered, axis=1)
    return progress._replace(flight=flight, times=progress.times - end, unplanned=unplanned, near=None)


def _events(balls: Balls, progress: Progress, options: Options, end: Float[Array, ""]) -> Progress:
    """All events up to the end of the step, or as long as neighbour lists are valid."""
    # Every body may make its impacts, look again after those of others, and join a cluster.
    bound = 4 * balls.bodies * (options.max_impacts + balls.bodies)

    def limit(progress: Progress):
        if progress.near is None:
            return jnp.broadcast_to(end, progress.clock.shape)
        return progress.near.expiry(progress.flight, progress.clock, end)

    def unfinished(carry):
        count, progress = carry
        due = jnp.any(progress.times < limit(progress)[:, None])
        return (count < bound) & (due | jnp.any(progress.unplanned))

    def advance(carry):
        count, progress = carry
        last = count + 1 == bound
        return count + 1, _next_event(balls, progress, options, limit=limit(progress), end=end, last=last)

    return lax.while_loop(unfinished, advance, (0, progress))[1]


def _among_neighbours(
    balls: Balls, progress: Progress, options: Options, end: Float[Array, ""], capacity: int
) -> Progress:
    """A step of many bodies, each of which may meet its neighbours only; lists that expire are renewed."""
    scenes, bodies = progress.times.shape
    zero = jnp.zeros_like(progress.clock)
    near = NeighbourLists(jnp.zeros((scenes, bodies, capacity), jnp.int32), zero, zero)

    def unfinished(carry):
        count, progress = carry
        return (count < MAX_RENEWALS) & jnp.any(progress.clock < end)

    def advance(carry):
        count, progress = carry
        flight, clock, radii = lax.stop_gradient((progress.flight, progress.clock, balls.radii))
        # Room for all to be as fast as the fastest, and then some: impacts make bodies faster.
        margin = MARGIN * greatest_speed(flight, end - clock) * (end - clock)
        lists, crowded = neighbour_lists(flight.position, radii, margin, capacity=capacity)
        report = progress.report._replace(crowded=progress.report.crowded | crowded)
        near = NeighbourLists(lists, margin, zero)
        progress = progress._replace(near=near, report=report, unplanned=jnp.ones((scenes,), bool))
        progress = _events(balls, progress, options, end)
        assert progress.near is not None
        clock = lax.stop_gradient(progress.clock)
        ahead = jnp.maximum(progress.near.expiry(progress.flight, clock, end) - clock, 0)
        return count + 1, progress._replace(flight=progress.flight.after(ahead), clock=progress.clock + ahead)

    progress = lax.while_loop(unfinished, advance, (0, progress._replace(near=near)))[1]
    unfinished_scenes = lax.stop_gradient(progress.clock) < end
    report = progress.report._replace(crowded=progress.report.crowded | unfinished_scenes)
    return progress._replace(report=report)


def _next_event(
    balls: Balls,
    progress: Progress,
    options: Options,
    *,
    limit: Float[Array, "scenes"],
    end: Float[Array, ""],
    last: Bool[Array, ""],
) -> Progress:
    """Advance every scene to its earliest event before its limit, and let it happen.

    Arguments:
        limit: how far each scene may go.
        end: the end of the step.
        last: no further event is to follow, so that scenes that would have one are resolved as one cluster.
    """
    flight, report, near = progress.flight, progress.report, progress.near
    until = jnp.where(progress.unplanned, -jnp.inf, limit)
    event = first_event(balls, progress.times, progress.events, until)
    pair = flight.of(event.subjects)
    elapsed, grazes = exact_instant(balls, pair, event, progress.clock, grazing_speed=options.grazing_speed)
    first, second, struck = event.chosen(balls.bodies)
    later, impacts = flight.after(elapsed), progress.impacts + struck.astype(jnp.int32)
    plastic, joins, resolves = _lasting(balls, progress, options, event, later, elapsed, impacts, end, last)
    members = (progress.clustered | joins) & resolves[:, None]

    targets = jnp.arange(balls.bodies + balls.planes, dtype=jnp.int32)[None, None]
    met = jnp.where(first, event.code[:, None], event.subjects[:, :1])
    report = report.with_contact(struck[..., None] & (targets == met[..., None]))
    progress = progress._replace(
        flight=_within_energy(balls, later, progress, resolves),
        clock=progress.clock + elapsed,
        events=outdated(balls, progress.events, event),
        impacts=impacts,
        near=None if near is None else near.after(flight, elapsed),
        report=report._replace(
            exhausted=report.exhausted | plastic | (event.active & last),
            truncated=report.truncated | (event.active & last),
            grazing=report.grazing | grazes,
        ),
    )
    pair = progress.flight.of(event.subjects)
    velocity = velocities_after(balls, pair, event, plastic=plastic, rest_speed=options.rest_speed)

    def put(values, new):
        # The second body goes first: where there is none, it is the first one as it was.
        values = _select(second, new[..., 1, None], values)
        return _select(first, new[..., 0, None], values)

    # Planned with the path after the impact: `progress` still has the one before it.
    after = pair._replace(velocity=velocity)
    progress = _plan(balls, progress, options, end, put, event.subjects, after)
    scenes = resolves | progress.unplanned

    def replan(progress: Progress) -> Progress:
        progress = lax.cond(
            jnp.any(resolves),
            lambda p: _resolve_clusters(balls, p, options, end, members, resolves),
            lambda p: p,
            progress._replace(unplanned=jnp.zeros_like(progress.unplanned)),
        )
        return _plan(balls, progress, options, end, lambda old, new: _select(scenes[:, None], new, old))

    # Looking at all pairs of bodies costs their square: only where some scene needs it.
    return lax.cond(jnp.any(scenes), replan, lambda p: p, progress)


def _lasting(
    balls: Balls, progress: Progress, options: Options, event: Event, later, elapsed, impacts, end, last
):
    """Which impacts are without rebound, which bodies become a cluster or join one, and in which scenes
    clusters are to be resolved.

    Bodies pressed together at rest do, and bodies that do not stop bouncing; so does a body that hardly left
    a cluster before it is pushed again, as clusters are too expensive to be resolved a thousand times.
    """
    first, _, struck = event.chosen(balls.bodies)
    disturbed = event.with_body & jnp.any(pick(progress.clustered, event.subjects), axis=1)
    # Velocities of a cluster contain a fall that is still to come: they do not tell slow impacts.
    slow = disturbed | (-meeting(balls, later.of(event.subjects), event)[-1] < progress.slow)
    count = jnp.max(jnp.where(struck, impacts, 0), axis=1)
    repeated = jnp.where(slow, count, 0)
    pair = progress.flight.of(event.subjects)
    touches = meeting(balls, pair, event)[0] <= jnp.max(gap_tolerance(pair.position), axis=-1)
    hardly_left = touches & (lax.stop_gradient(elapsed) <= 1e-6 * end) & (count > options.max_impacts // 64)
    # First without rebound; what goes on colliding even so is resolved as a cluster.
    joins = struck & (disturbed & hardly_left | (repeated > 2 * options.max_impacts))[:, None]
    presses = event.happens & (event.code == event_codes(balls).press)
    joins = joins | presses[:, None] & first
    # What presses against a cluster joins it whatever its velocity was, or it would press again for ever.
    position, pressed = later.position, later.of(event.subjects[:, :1]).position
    gap = length(position - pressed, axis=0) - balls.radii[None] - balls.radii[event.subjects[:, :1]]
    again = presses & jnp.any(progress.clustered & first, axis=1)
    joins = joins | again[:, None] & (gap <= 2 * jnp.max(gap_tolerance(position), axis=1, keepdims=True))
    joins = joins | (event.active & last)[:, None]
    return repeated > options.max_impacts, joins, disturbed | jnp.any(joins, axis=1)


def _select(where: Bool[Array, "scenes _"], new: Array, old: Array) -> Array:
    """New values of some scenes and bodies, whatever axes come before these two."""
    return jnp.where(jnp.expand_dims(where, tuple(range(old.ndim - 2))), new, old)


def _plan(
    balls: Balls,
    progress: Progress,
    options: Options,
    end: Float[Array, ""],
    put: Callable[[Array, Array], Array],
    subjects: Int[Array, "scenes subjects"] | None = None,
    own: Flight | None = None,
) -> Progress:
    """Let planes support some bodies, or all, and find their next events.

    Arguments:
        put: sets values of the subjects among those of all bodies.
        subjects: the bodies, by number; all by default.
        own: their flights, where they are not those of `progress`.
    """
    others, clustered, report, closed = progress.others, progress.clustered, progress.report, None
    every = subjects is None
    if subjects is None:
        subjects = jnp.broadcast_to(jnp.arange(balls.bodies, dtype=jnp.int32)[None], progress.times.shape)
    else:
        clustered = pick(clustered, subjects)
        others = None if others is None else jnp.take_along_axis(others, subjects[..., None], axis=1)
    moving = progress.flight if own is None else own
    if moving.acceleration is not None:
        held, closed, pushes = supported(balls, moving, balls.radii[subjects], rest_speed=options.rest_speed)
        # Bodies of a cluster are held by its velocities, not by the planes.
        moving = jax.tree.map(lambda new, old: jnp.where(clustered[None], old, new), held, moving)
        closed, pushes = closed & ~clustered[None], pushes & ~clustered[None]
        nothing = jnp.zeros((balls.planes, *progress.times.shape), bool)
        # Planes come after the other bodies.
        pushes = jnp.moveaxis(put(nothing, pushes), 0, -1)
        report = report.with_contact(jnp.pad(pushes, ((0, 0), (0, 0), (balls.bodies, 0))))
    flight = jax.tree.map(put, progress.flight, moving)
    clock = lax.stop_gradient(progress.clock)
    time, event = next_events(
        balls,
        flight,
        flight if every else moving,  # one array, or XLA computes both anew for every pair
        subjects,
        closed=closed,
        clustered=progress.clustered,
        others=others,
        horizon=end - clock,
        rest_speed=options.rest_speed,
    )
    times, events = put(progress.times, time + clock[:, None]), put(progress.events, event)
    return progress._replace(flight=flight, times=times, events=events, report=report)


def _energies(balls: Balls, flight: Flight, bodies: Bool[Array, "scenes bodies"]):
    """Kinetic and potential energy of some bodies of every scene."""
    mass = jnp.where(bodies, balls.masses[None], 0)
    field = jnp.broadcast_to(balls.field[:, None, None], flight.position.shape)
    kinetic = 0.5 * jnp.sum(mass * dot(flight.velocity, flight.velocity), axis=1)
    return lax.stop_gradient((kinetic, -jnp.sum(mass * dot(field, flight.position), axis=1)))


def _within_energy(balls: Balls, flight: Flight, progress: Progress, scenes: Scenes) -> Flight:
    """Clusters that are to be resolved anew, slowed down to the energy that they have by now.

    Their velocities contain the fall of the whole rest of the step, of which only a part has taken place.
    """
    kinetic, potential = _energies(balls, flight, progress.clustered)
    left = (progress.cluster_energy - potential) / jnp.where(kinetic > 0, kinetic, 1)
    slower = progress.clustered & (scenes & (kinetic > 0))[:, None]
    # Energy that was lost to rounding or to an impact is not given back: at most 1.
    factor = jnp.where(slower, jnp.sqrt(jnp.clip(left, 0, 1))[:, None], 1)
    return flight._replace(velocity=factor[None] * flight.velocity)


def _resolve_clusters(balls: Balls, progress: Progress, options: Options, end, members, scenes) -> Progress:
    """Velocities for the rest of the step of some bodies and of all that they lean on."""
    flight, others, rest_speed = progress.flight, progress.others, options.rest_speed
    cluster = touching_cluster(balls, flight, members, others, rest_speed=rest_speed) & scenes[:, None]
    energy = sum(_energies(balls, flight, cluster))
    remaining = end - progress.clock
    velocity, pushes = resolve_cluster(balls, flight, cluster, others, remaining, rest_speed=rest_speed)
    # Selected again here: the result has no derivatives, and other bodies keep theirs.
    velocity = jnp.where(cluster[None], velocity, flight.velocity)
    if flight.acceleration is not None:
        # Velocities of a cluster contain the fall of the whole rest of the step: they are constant.
        flight = flight._replace(acceleration=jnp.where(cluster[None], 0, flight.acceleration))
    if others is not None and progress.report.contact is not None:
        # From positions in the neighbour list to numbers of bodies.
        bodies, planes = jnp.split(pushes, [pushes.shape[-1] - balls.planes], axis=-1)
        index = jnp.arange(len(others))[:, None, None], jnp.arange(balls.bodies)[None, :, None], others
        bodies = jnp.zeros((*cluster.shape, balls.bodies), bool).at[index].max(bodies)
        pushes = jnp.concatenate([bodies, planes], axis=-1)
    return progress._replace(
        flight=flight._replace(velocity=velocity),
        clustered=jnp.where(scenes[:, None], cluster, progress.clustered),
        cluster_energy=jnp.where(scenes, energy, progress.cluster_energy),
        report=progress.report.with_contact(pushes),
    )
