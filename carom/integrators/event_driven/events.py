"""Events of balls on parabolas: they meet each other or planes, pass the end of a plane, or end a slide.

First the next event of every body; then the earliest one of every scene, with its bodies and planes, its
exact instant and its impulse. Subjects are the bodies whose next events are wanted.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.constraint_exact.contact_times import closing_time, implicit_root
from carom.integrators.event_driven.balls import (
    Balls,
    Flight,
    Others,
    Scenes,
    dot,
    earliest,
    gap_tolerance,
    in_front,
    of_others,
    pick,
    plane_motion,
    separation,
    within_edge,
)
from carom.mechanics import impact_impulse, length

ReportKind = Literal["none", "contacts"]

ROUNDING = 500
"""What touches and closes in more slowly than this many units of rounding does so by rounding alone."""
ADVANCES = 64
"""Steps towards a meeting of bodies with different accelerations; a graze halves its gap in each."""


class Options(NamedTuple):
    """As `event_driven_motion` takes them."""

    max_impacts: int
    grazing_speed: float
    rest_speed: float
    neighbours: int | None
    report: ReportKind


class Codes(NamedTuple):
    """The next event of a body as one number: the other body, `bodies` + a plane, or one of these."""

    edge: int
    """From here on: the body passes the plane that ends the one it rests on."""
    halt: int
    """The body stops sliding."""
    press: int
    """The body is pressed against another one that it touches at rest."""
    unknown: int
    """The other body has changed its path; the next event comes no sooner than this one would have."""


def event_codes(balls: Balls) -> Codes:
    """The codes of a scene with that many bodies and planes."""
    edge, halt = balls.bodies + balls.planes, balls.bodies + 2 * balls.planes
    return Codes(edge, halt, halt + 1, halt + 2)


def next_events(
    balls: Balls,
    flight: Flight,
    own: Flight,
    subjects: Int[Array, "scenes subjects"],
    *,
    closed: Bool[Array, "planes scenes subjects"] | None = None,
    clustered: Bool[Array, "scenes bodies"] | None = None,
    others: Others | None = None,
    horizon: Float[Array, "scenes"] | None = None,
    rest_speed: float,
) -> tuple[Float[Array, "scenes subjects"], Int[Array, "scenes subjects"]]:
    """How long until the next event of every subject, ∞ for never, and its code.

    Plain numbers: an event carries derivatives when it takes place.

    Arguments:
        flight: all bodies.
        own: the subjects.
        closed: planes that subjects rest on.
        clustered: bodies that move together until the end of the step and are kept apart from each other.
        others: which bodies each subject may meet; all by default.
        horizon: how far ahead to look where accelerations differ; needed in a field.
    """
    balls, flight, own, horizon = lax.stop_gradient((balls, flight, own, horizon))
    codes, radii = event_codes(balls), balls.radii[subjects]
    time, event = _meetings(balls, flight, own, subjects, clustered, others, horizon, rest_speed)

    def sooner(other: Float[Array, "scenes subjects"], code):
        return jnp.minimum(time, other), jnp.where(other < time, code, event)

    # Events are compared one kind at a time: an array over all kinds would be the largest of all.
    if balls.planes:
        hit, plane = earliest(_plane_hits(balls, own, radii, closed), 0)
        if clustered is not None:
            hit = jnp.where(pick(clustered, subjects), jnp.inf, hit)
        time, event = sooner(hit, balls.bodies + plane)
    if closed is not None:
        gap, rate, acceleration = plane_motion(balls, own, radii)
        tolerance = gap_tolerance(own.position)
        for plane, end in balls.edges:
            leaves = _closing(jnp.maximum(-gap[end], 0), -rate[end], -acceleration[end], tolerance)
            time, event = sooner(jnp.where(closed[plane], leaves, jnp.inf), codes.edge + end)
        assert own.acceleration is not None
        slowing, square = -dot(own.velocity, own.acceleration), dot(own.velocity, own.velocity)
        # Coulomb friction is constant along a slide, so its end is known.
        slides = jnp.any(closed, axis=0) & (balls.friction > 0) & (slowing > 0) & (square > rest_speed**2)
        halt = jnp.where(slides, square / jnp.where(slides, slowing, 1), jnp.inf)
        time, event = sooner(halt, codes.halt)
    return time, event


def _closing(gap, rate, acceleration, tolerance):
    """When gap + rate τ + ½ acceleration τ² falls through 0, ∞ for never; a negative gap must first open.

    What touches and closes by rounding alone (e = 0) does not count: it would do so for ever.
    """
    falls = rate < jnp.where(gap > tolerance, 0, -ROUNDING * float(jnp.finfo(gap.dtype).eps))
    if acceleration is None:
        falls = falls & (gap >= 0)
        return jnp.where(falls, gap / jnp.where(falls, -rate, 1), jnp.inf)
    closes = jnp.where(gap < 0, (rate > 0) & (acceleration < 0), (acceleration < 0) | falls) & (
        rate**2 >= 2 * acceleration * gap
    )
    return jnp.where(closes, closing_time(gap, rate, acceleration), jnp.inf)


def _meetings(balls: Balls, flight: Flight, own: Flight, subjects, clustered, others, horizon, rest_speed):
    """When each subject meets another body next, and which."""
    numbers = jnp.arange(balls.bodies, dtype=subjects.dtype)[None, None, :] if others is None else others
    reach = balls.radii[subjects][:, :, None] + balls.radii[numbers]
    possible = subjects[:, :, None] != numbers
    if clustered is not None:
        possible = possible & ~(pick(clustered, subjects)[:, :, None] & of_others(clustered, others))
    difference = own.position[..., None] - of_others(flight.position, others)
    velocity = own.velocity[..., None] - of_others(flight.velocity, others)
    tolerance = gap_tolerance(own.position)[..., None]
    # On a free table nothing accelerates: the root of a quadratic, as below where accelerations agree.
    if flight.acceleration is None and len(difference) > 1:
        times = _straight_meetings(difference, velocity, reach, tolerance)
        return _first_meeting(times, possible, others, subjects)
    normal, distance = separation(difference, subjects[:, :, None], numbers)
    gap, rate = distance - reach, dot(normal, velocity)
    if own.acceleration is None:
        times = _closing(jnp.maximum(gap, 0), rate, None, tolerance)
        return _first_meeting(times, possible, others, subjects)
    assert flight.acceleration is not None
    acceleration = own.acceleration[..., None] - of_others(flight.acceleration, others)
    # Along the normal, and what a tangential velocity adds as it leads away from the round (0 on a line).
    turning = (dot(velocity, velocity) - rate**2) / jnp.where(distance > 0, distance, 1)
    gap_acceleration, square = dot(normal, acceleration) + turning, dot(acceleration, acceleration)
    differs = square > 0
    # Relative to the accelerations: they have any unit, and rounding must not press.
    presses = gap_acceleration < -1e-9 * jnp.sqrt(square)
    pressed = differs & (gap <= tolerance) & (jnp.abs(rate) <= rest_speed) & presses
    codes = event_codes(balls)
    if len(difference) == 1:
        times = _closing(jnp.maximum(gap, 0), rate, gap_acceleration, tolerance)
        time, event = _first_meeting(times, possible, others, subjects)
    else:
        straight = _straight_meetings(difference, velocity, reach, tolerance)
        sought = possible & differs & ~pressed
        end = jnp.broadcast_to(horizon[:, None, None], gap.shape)
        overlap = jnp.minimum(gap, 0)
        paths = difference, velocity, acceleration
        bent, bounds = _bent_meetings(*paths, reach, overlap, sought, end, tolerance)
        time, event = _first_meeting(jnp.where(differs, bent, straight), possible, others, subjects)
        # A graze may need more steps: the body looks again then.
        again = jnp.any(bounds & (bent <= time[..., None]), axis=-1)
        event = jnp.where(again, codes.unknown, event)
    # With the other body at rest too, the two are to be held together from now on.
    now = jnp.any(pressed & possible, axis=-1)
    return jnp.where(now, 0, time), jnp.where(now, codes.press, event)


def _first_meeting(times, possible, others, subjects):
    time, which = earliest(jnp.where(possible, times, jnp.inf), -1)
    event = which if others is None else jnp.take_along_axis(others, which[..., None], axis=-1)[..., 0]
    return time, event.astype(subjects.dtype)


def _straight_meetings(difference, velocity, reach, tolerance):
    """|difference + velocity τ| = reach where the distance falls: the smaller root of a quadratic."""
    closing, square = dot(difference, velocity), dot(velocity, velocity)
    outside = dot(difference, difference) - reach**2
    discriminant = closing**2 - square * outside
    rounding = ROUNDING * float(jnp.finfo(reach.dtype).eps) * reach
    meets = (discriminant > 0) & (closing < jnp.where(outside > 2 * reach * tolerance, 0, -rounding))
    # c/(√D − b) instead of (−b − √D)/a, which cancels for a slow approach.
    root = jnp.sqrt(jnp.where(meets, discriminant, 0)) - closing
    return jnp.where(meets, jnp.maximum(outside, 0) / jnp.where(meets, root, 1), jnp.inf)


def _bent_meetings(difference, velocity, acceleration, reach, overlap, sought, end, tolerance):
    """The same up to `end` where accelerations differ, and which of these times are only lower bounds.

    Conservative advancement: along the normal of any instant the distance is never longer than in all
    directions, so that no contact comes before the parabola along this normal falls through 0. A step to
    there never passes a contact, however fast the bodies are, and converges to the first one like Newton's.
    """
    square = dot(acceleration, acceleration)
    # Within this time bodies that touch and do not press fall by less than rounding.
    least = 1e-7 * jnp.sqrt(reach / jnp.where(square > 0, jnp.sqrt(square), 1))
    rounding = ROUNDING * float(jnp.finfo(reach.dtype).eps)

    def advance(carry):
        count, time, searching = carry
        here = difference + time[None] * (velocity + 0.5 * time[None] * acceleration)
        motion = velocity + time[None] * acceleration
        distance = jnp.maximum(length(here, axis=0), jnp.finfo(reach.dtype).tiny)
        rate, pull = dot(here, motion) / distance, dot(here, acceleration) / distance
        # What an impact left of overlap by rounding is no distance to fall.
        gap = jnp.maximum(distance - reach - overlap, 0)
        touches = gap <= tolerance
        contact = touches & (rate < -rounding)
        step = jnp.where(touches, jnp.maximum(departure(motion, rate, pull, distance), least), 0)
        step = jnp.where(touches, step, _closing(gap, rate, pull, tolerance))
        searching = searching & ~contact
        time = jnp.where(searching, time + step, time)
        return count + 1, time, searching & (time < end)

    def departure(motion, rate, pull, distance):
        # With 2 b τ + c τ² + d τ³ + ¼ |a|² τ⁴ for what |difference|² gains, less its last term.
        b, c = distance * jnp.maximum(rate, 0), dot(motion, motion) + distance * pull
        d = jnp.minimum(dot(motion, acceleration), 0)
        root = jnp.sqrt(c**2 - 8 * b * d)
        ends = (d < 0) | (c < 0)
        divisor = jnp.where(c > 0, -2 * d, root - c)
        dividend = jnp.where(c > 0, c + root, 4 * b)
        return jnp.where(ends, dividend / jnp.where(ends & (divisor > 0), divisor, 1), jnp.inf)

    def unfinished(carry):
        return (carry[0] < ADVANCES) & jnp.any(carry[-1])

    start = 0, jnp.zeros_like(end), sought & (end > 0)
    _, time, searching = lax.while_loop(unfinished, advance, start)
    return jnp.where(sought & (time < end), time, jnp.inf), searching


def _plane_hits(balls: Balls, own: Flight, radii, closed):
    """When each plane is hit, with a leading axis of planes; ∞ where it is not, or not within its edges."""
    gap, rate, acceleration = plane_motion(balls, own, radii)
    tolerance = gap_tolerance(own.position)
    # From behind, a plane is met only by a ball that first emerges in front of it.
    outside = jnp.where(in_front(balls, gap), jnp.maximum(gap, 0), gap)
    times = _closing(outside, rate, None if own.acceleration is None else acceleration, tolerance[None])
    if closed is not None:
        times = jnp.where(closed, jnp.inf, times)
    for plane, end in balls.edges:
        finite = jnp.where(times[plane] < jnp.inf, times[plane], 0)
        there = gap[end] + finite * (rate[end] + 0.5 * finite * acceleration[end])
        within = within_edge(there, rate[end] + finite * acceleration[end], tolerance)
        times = times.at[plane].set(jnp.where(within, times[plane], jnp.inf))
    return times


class Event(NamedTuple):
    """The earliest event of every scene."""

    time: Float[Array, "scenes"]
    code: Int[Array, "scenes"]
    subjects: Int[Array, "scenes 2"]
    """Both bodies; the first one twice where there is no other."""
    plane: Int[Array, "scenes"]
    active: Scenes
    """Scenes that have one before their limit."""
    happens: Scenes
    """Of these, the scenes in which it is known what it is."""
    with_body: Scenes
    hits: Scenes
    passes: Scenes
    """The body passes the end of the plane that it rests on."""

    def chosen(self, bodies: int) -> tuple[Bool[Array, "scenes bodies"], ...]:
        """Which body of an active scene is the first one, which the second where there is one, and which of
        them are hit."""
        same = self.subjects[:, :, None] == jnp.arange(bodies, dtype=jnp.int32)[None, None]
        first, second = same[:, 0] & self.active[:, None], same[:, 1] & self.with_body[:, None]
        return first, second, (first & self.hits[:, None]) | second


def first_event(
    balls: Balls,
    times: Float[Array, "scenes bodies"],
    events: Int[Array, "scenes bodies"],
    limit: Float[Array, "..."],
) -> Event:
    """The earliest of the next events of all bodies, in scenes that have one before the limit."""
    codes = event_codes(balls)
    time, first = earliest(times, 1)
    active, code = time < limit, pick(events, first)
    happens = active & (code != codes.unknown)  # otherwise the body only looks again
    with_body = happens & (code < balls.bodies)
    with_plane = happens & (code >= balls.bodies) & (code < codes.edge)
    passes = happens & (code >= codes.edge) & (code < codes.halt)
    # Clipped, since gathers need a valid index even where there is no plane.
    plane = jnp.clip(code - jnp.where(passes, codes.edge, balls.bodies), 0, max(balls.planes - 1, 0))
    subjects = jnp.stack([first, jnp.where(with_body, code, first)], axis=1)
    return Event(time, code, subjects, plane, active, happens, with_body, with_body | with_plane, passes)


def outdated(balls: Balls, events: Int[Array, "scenes bodies"], event: Event) -> Int[Array, "scenes bodies"]:
    """The next events of all bodies, unknown where the other body has changed its path in this event.

    Such a body looks again only when the time of its old event has come: nothing can happen to it before.
    """
    changed = (events == event.subjects[:, :1]) & event.happens[:, None]
    changed = changed | ((events == event.subjects[:, 1:]) & event.with_body[:, None])
    return jnp.where(changed, event_codes(balls).unknown, events)


def meeting(balls: Balls, pair: Flight, event: Event):
    """Gap, normal, relative velocity and its rate, of the two bodies of an event or of its body and plane."""
    own, radii = pair.position[..., 0], balls.radii[event.subjects]
    normal, distance = separation(own - pair.position[..., 1], *event.subjects.T)
    gap, relative = distance - radii[:, 0] - radii[:, 1], pair.velocity[..., 0] - pair.velocity[..., 1]
    if balls.planes:
        # Both cases are computed and one is selected: scenes of a batch are at different events.
        facing = balls.normals[event.plane].T
        normal = jnp.where(event.with_body[None], normal, facing)
        clearance = dot(facing, own) - balls.offsets[event.plane] - radii[:, 0]
        gap = jnp.where(event.with_body, gap, clearance)
        relative = jnp.where(event.with_body[None], relative, pair.velocity[..., 0])
    return gap, normal, relative, dot(normal, relative)


def exact_instant(
    balls: Balls, pair: Flight, event: Event, clock: Float[Array, "scenes"], *, grazing_speed: float
) -> tuple[Float[Array, "scenes"], Scenes]:
    """The time from now until an event, with its derivative; and whether it is a graze.

    The derivative is clipped at `grazing_speed`. A graze takes place where it was predicted, as a clipped
    slope would lead astray, and nothing takes place before now: rounding of slow contacts must not turn back
    the time of all others.
    """
    # The prediction carries no derivative: the Newton step at the event does.
    elapsed = lax.stop_gradient(jnp.where(event.active, jnp.maximum(event.time - clock, 0), 0))
    gap, _, _, rate = meeting(balls, pair.after(elapsed), event)
    rate = lax.stop_gradient(rate)
    slope = jnp.where(event.passes, jnp.maximum(rate, grazing_speed), jnp.minimum(rate, -grazing_speed))
    root = implicit_root(elapsed, jnp.where(event.hits | event.passes, gap, 0), slope)
    value = jnp.where(jnp.abs(rate) < grazing_speed, elapsed, jnp.maximum(root, 0))
    exact = root + lax.stop_gradient(value - root)
    if pair.acceleration is not None:
        # The end of a slide is no root of a gap, but where v + a τ vanishes: τ = −v²/(v·a).
        square, slowing = (dot(pair.velocity, x)[:, 0] for x in (pair.velocity, pair.acceleration))
        halts = event.happens & (event.code == event_codes(balls).halt)
        exact = jnp.where(halts, square / jnp.where(halts, -slowing, 1), exact)
    return exact, event.hits & (rate > -grazing_speed)


def velocities_after(
    balls: Balls, pair: Flight, event: Event, *, plastic: Scenes | None = None, rest_speed: float
) -> Float[Array, "dimension scenes 2"]:
    """The velocities of both bodies after an impact, without rebound where it is `plastic` or slow."""
    _, normal, relative, rate = meeting(balls, pair, event)
    inverse = 1 / balls.masses[event.subjects]
    # A plane is a second body of infinite mass.
    inverse = inverse.at[:, 1].set(jnp.where(event.with_body, inverse[:, 1], 0))
    stops = -balls.restitution * rate <= rest_speed
    e = jnp.where(stops if plastic is None else stops | plastic, 0, balls.restitution)
    S, friction = inverse[:, 0] + inverse[:, 1], balls.friction
    impulse = impact_impulse(normal, relative, S, restitution=e, friction=friction, axis=0)
    # Rounding may have turned a graze around; a contact that opens exerts no impulse.
    impulse = jnp.where(event.hits & (rate < 0), impulse, 0)
    return pair.velocity + jnp.stack([inverse[None, :, 0] * impulse, -inverse[None, :, 1] * impulse], axis=-1)
