"""Balls among planes in a uniform field, event by event: exact flights, impacts at their instants.

Between impacts a ball flies on a parabola, and two balls in the same field approach each other on a straight
line, so that every impact time is the root of a quadratic. Each ball keeps the time of its own next event; an
impact changes those of the two balls that it hits, and of no other.

A batch of scenes is taken at once. A `vmap` over a loop that ends when its last member is done would select
over all of its state at every pass; here a scene that is done has nothing to do.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.encounters import Settings
from carom.integrators.event_driven.events import EventReport, Progress, ReportKind, begin, next_event
from carom.integrators.event_driven.flights import Flight
from carom.integrators.event_driven.free_flight import free_motion
from carom.integrators.event_driven.neighbours import Near, fastest, neighbour_lists
from carom.types import State

SPARE = 4.0
"""The margin of lists of neighbours in ways of the fastest body; 2 would do if none became faster."""
MOST_RENEWALS = 1000


def event_driven_motion(
    balls: Balls,
    start: State,
    intervals: Float[Array, "steps"],
    *,
    max_impacts: int = 64,
    grazing_speed: float = 1e-3,
    rest_speed: float = 1e-9,
    neighbours: int | None = None,
    report: ReportKind = "bodies",
) -> tuple[State, EventReport]:
    """The states of a batch of scenes after every interval, and what happened in between.

    Derivatives are those of forward mode.

    Arguments:
        balls: the bodies, the planes and the laws of contact, the same in every scene.
        start: positions and velocities with a leading axis of scenes.
        intervals: the times between samples.
        max_impacts: impacts of one body within an interval beyond which its impacts are without rebound. A
            ball that bounces ever faster (e < 1) exceeds any number; it comes to rest, and the report says
            so.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a rebound slower than this is none; what touches and separates more slowly is at rest.
        neighbours: the most bodies that may be near any one, where lists of them are to be kept: with many
            bodies the memory of a scene then grows like their number, and not like its square. Where it is
            too small the report says `crowded`.
        report: whether to say which bodies touched something within each interval, or also what they touched
            ("contacts"), or neither ("none"): on a free table that is several times faster for many scenes.

    Example:
        >>> none = jnp.zeros((0, 1)), jnp.zeros(0)
        >>> e, mu = jnp.array(1.0), jnp.array(0.0)
        >>> pair = Balls(jnp.array([1.0, 3.0]), jnp.full(2, 0.5), *none, e, mu, gravity=None, solids=())
        >>> start = State(jnp.array([[[3.0], [0.0]]]), jnp.array([[[-2.0], [0.0]]]))
        >>> motion, report = event_driven_motion(pair, start, jnp.array([2.0]))
        >>> motion.velocity[-1, 0, :, 0]     # they met after 1 s
        Array([ 1., -1.], dtype=float32)
    """
    settings = Settings(max_impacts, grazing_speed, rest_speed)
    position, velocity = (jnp.moveaxis(x, -1, 0) for x in (start.position, start.velocity))
    acceleration = None if balls.gravity is None else jnp.zeros_like(velocity)
    if balls.gravity is None and report == "none" and len(intervals):
        samples, exhausted, grazing = free_motion(balls, position, velocity, intervals, settings, neighbours)
        return samples, EventReport(None, None, exhausted, grazing, jnp.zeros_like(grazing))
    flight = Flight(position, velocity, acceleration)
    progress = begin(balls, flight, report=report)

    def advance(progress: Progress, interval):
        progress = _step(balls, progress, settings, interval, report, neighbours)
        position, velocity, _ = progress.flight
        sample = State(jnp.moveaxis(position, 0, -1), jnp.moveaxis(velocity, 0, -1))
        return progress, (sample, progress.report)

    _, (samples, reports) = lax.scan(advance, progress, intervals)
    return samples, reports


def _step(
    balls: Balls,
    progress: Progress,
    settings: Settings,
    interval: Float[Array, ""],
    report: ReportKind,
    neighbours: int | None,
) -> Progress:
    """From one sample to the next."""
    end = lax.stop_gradient(interval)
    fresh = begin(balls, progress.flight, report=report)
    if balls.gravity is None and neighbours is None:
        # What was planned holds on, on the new clock.
        fresh = fresh._replace(times=progress.times, events=progress.events, unplanned=progress.unplanned)
    if neighbours is None:
        progress = _events(balls, fresh, settings, end)
    else:
        progress = _among_neighbours(balls, fresh, settings, end, neighbours)
    flight = progress.flight.after(interval - progress.clock)
    # Settled bodies are free again, and lists of this step are of no use to the next.
    unplanned = jnp.any(progress.settled, axis=1)
    return progress._replace(flight=flight, times=progress.times - end, unplanned=unplanned, near=None)


def _events(balls: Balls, progress: Progress, settings: Settings, end: Float[Array, ""]) -> Progress:
    """All events up to the end of the step, or as long as lists of neighbours hold."""
    bound = 4 * balls.bodies * (settings.max_impacts + balls.bodies)

    def limit(progress: Progress):
        if progress.near is None:
            return jnp.broadcast_to(end, progress.clock.shape)
        return progress.near.expiry(progress.flight, progress.clock, end)

    def unfinished(carry):
        count, progress = carry
        due = jnp.any(progress.times < limit(progress)[:, None])
        return (count < bound) & (due | jnp.any(progress.unplanned))

    def go_on(carry):
        count, progress = carry
        return count + 1, next_event(
            balls, progress, settings, limit=limit(progress), end=end, last=count + 1 == bound
        )

    return lax.while_loop(unfinished, go_on, (0, progress))[1]


def _among_neighbours(
    balls: Balls, progress: Progress, settings: Settings, end: Float[Array, ""], capacity: int
) -> Progress:
    """A step of many bodies, each of which may meet its neighbours only; lists that expire are renewed."""

    scenes, bodies = progress.times.shape
    nothing = jnp.zeros_like(progress.clock)
    near = Near(jnp.zeros((scenes, bodies, capacity), jnp.int32), nothing, nothing)

    def unfinished(carry):
        count, progress = carry
        return (count < MOST_RENEWALS) & jnp.any(progress.clock < end)

    def go_on(carry):
        count, progress = carry
        flight, clock = lax.stop_gradient((progress.flight, progress.clock))
        # Room for all to go as fast as the fastest, and then some: impacts make bodies faster.
        margin = SPARE * fastest(flight, end - clock) * (end - clock)
        radii = lax.stop_gradient(balls.radii)
        lists, crowded = neighbour_lists(flight.position, radii, margin, capacity=capacity)
        report = progress.report._replace(crowded=progress.report.crowded | crowded)
        progress = progress._replace(
            near=Near(lists, margin, nothing), report=report, unplanned=jnp.ones((scenes,), bool)
        )
        progress = _events(balls, progress, settings, end)
        assert progress.near is not None
        clock = lax.stop_gradient(progress.clock)
        ahead = jnp.maximum(progress.near.expiry(progress.flight, clock, end) - clock, 0)
        return count + 1, progress._replace(flight=progress.flight.after(ahead), clock=progress.clock + ahead)

    progress = lax.while_loop(unfinished, go_on, (0, progress._replace(near=near)))[1]
    given_up = lax.stop_gradient(progress.clock) < end
    return progress._replace(report=progress.report._replace(crowded=progress.report.crowded | given_up))
