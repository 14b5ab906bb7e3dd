"""When balls on parabolas meet: each other, planes, the end of a plane, or the end of a slide.

Subjects are the bodies whose next event is asked for.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.constraint_exact.contact_times import bracketed_root, closing_time, first_dip
from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.flights import (
    Codes,
    Flight,
    Others,
    dot,
    earliest,
    gap_tolerance,
    in_front,
    pick,
    plane_motion,
    separation,
    within_edge,
)
from carom.mechanics import length

Subjects = Int[Array, "scenes subjects"]
QUIET = 500
"""What touches and closes in more slowly than this many units of rounding does so by rounding alone."""


def next_events(
    balls: Balls,
    flight: Flight,
    own: Flight,
    subjects: Subjects,
    *,
    closed: Bool[Array, "planes scenes subjects"] | None,
    settled: Bool[Array, "scenes bodies"] | None,
    others: Others | None,
    remaining: Float[Array, "scenes"],
    rest_speed: float,
) -> tuple[Float[Array, "scenes subjects"], Int[Array, "scenes subjects"]]:
    """How long until the next event of every subject, ∞ for never, and what it is.

    Arguments:
        flight: all bodies.
        own: the subjects.
        closed: planes that subjects rest on.
        settled: bodies that move together until the end of the step and are kept apart from each other.
        others: which bodies each subject may meet; all by default.
        remaining: how far ahead events are asked for where accelerations differ.
    """
    codes = Codes(balls.bodies, balls.planes)
    radii = balls.radii[subjects]
    time, event = _meetings(balls, flight, own, radii, subjects, settled, others, remaining, rest_speed)
    if balls.planes:
        hit, plane = earliest(_plane_hits(balls, own, radii, closed), 0)
        if settled is not None:
            hit = jnp.where(jnp.take_along_axis(settled, subjects, axis=1), jnp.inf, hit)
        time, event = _sooner((time, event), (hit, codes.bodies + plane))
    if closed is not None:
        for plane, companions in enumerate(balls.companions):
            for end in companions:
                leaves = jnp.where(closed[plane], _passing(balls, own, radii, end), jnp.inf)
                time, event = _sooner((time, event), (leaves, jnp.full_like(event, codes.edge + end)))
        assert own.acceleration is not None
        slowing = -dot(own.velocity, own.acceleration)
        speed = dot(own.velocity, own.velocity)
        slides = jnp.any(closed, axis=0) & (balls.friction > 0) & (slowing > 0) & (speed > rest_speed**2)
        halt = jnp.where(slides, speed / jnp.where(slides, slowing, 1), jnp.inf)
        time, event = _sooner((time, event), (halt, jnp.full_like(event, codes.halt)))
    return time, event


def _quiet(values: Array) -> float:
    return QUIET * float(jnp.finfo(values.dtype).eps)


def _sooner(one, other):
    return jnp.minimum(one[0], other[0]), jnp.where(other[0] < one[0], other[1], one[1])


def _meetings(balls, flight, own, radii, subjects, settled, others, remaining, rest_speed):
    """When each subject meets another body next, and which."""
    if others is None:
        every = jnp.arange(balls.bodies, dtype=subjects.dtype)[None, None, :]
        there = jax.tree.map(lambda values: values[:, :, None, :], flight)
    else:
        every, there = others, flight.of(others)
    reach = radii[:, :, None] + balls.radii[every]
    possible = subjects[:, :, None] != every
    away = own.position[..., None] - there.position
    velocity = own.velocity[..., None] - there.velocity
    if settled is not None:
        mine = jnp.take_along_axis(settled, subjects, axis=1)[:, :, None]
        theirs = settled[:, None, :] if others is None else pick(settled[None], others)[0]
        possible = possible & ~(mine & theirs)
    acceleration, pressed = None, None
    if flight.acceleration is not None:
        acceleration = own.acceleration[..., None] - there.acceleration
    tolerance = gap_tolerance(own.position)[..., None]
    if len(away) == 1:
        normal, distance = separation(away, subjects[:, :, None], every)
        pull = None if acceleration is None else dot(normal, acceleration)
        times, pressed = _meetings_on_a_line(
            distance - reach, dot(normal, velocity), pull, tolerance, rest_speed
        )
    elif acceleration is None:
        times = _straight_meetings(away, velocity, reach, tolerance)
    else:
        end = jnp.broadcast_to(remaining[:, None, None], possible.shape)
        times, pressed = _bent_meetings(
            away, velocity, acceleration, reach, possible, end, tolerance, rest_speed
        )
    time, which = earliest(jnp.where(possible, times, jnp.inf), -1)
    event = which
    if others is not None:
        event = jnp.take_along_axis(others, which[..., None], axis=-1)[..., 0]
    if pressed is not None:
        # With the other body at rest too, the two are to be held together from now on.
        now = jnp.any(pressed & possible, axis=-1)
        press = jnp.full_like(event, Codes(balls.bodies, balls.planes).press)
        time, event = jnp.where(now, 0, time), jnp.where(now, press, event)
    return time, event.astype(subjects.dtype)


def _straight_meetings(away, velocity, reach, tolerance):
    """|away + velocity τ| = reach where the distance falls: the smaller root of a quadratic."""
    closing, square = dot(away, velocity), dot(velocity, velocity)
    outside = dot(away, away) - reach**2
    discriminant = closing**2 - square * outside
    # Bodies that touch and close in by rounding alone (e = 0) would do so for ever.
    apart = outside > 2 * reach * tolerance
    meets = (discriminant > 0) & (closing < jnp.where(apart, 0, -_quiet(reach) * reach))
    root = jnp.sqrt(jnp.where(meets, discriminant, 0)) - closing
    return jnp.where(meets, jnp.maximum(outside, 0) / jnp.where(meets, root, 1), jnp.inf)


def _meetings_on_a_line(gap, rate, pull, tolerance, rest_speed):
    """The same on a line, where the gap keeps its sign, and which pairs are pressed together at rest."""
    if pull is None:
        closes = rate < jnp.where(gap > tolerance, 0, -_quiet(gap))
        return jnp.where(closes, jnp.maximum(gap, 0) / jnp.where(closes, -rate, 1), jnp.inf), None
    pressed = (gap <= tolerance) & (jnp.abs(rate) <= rest_speed) & (pull < -rest_speed)
    gap = jnp.maximum(gap, 0)
    falls = rate < jnp.where(gap > tolerance, 0, -_quiet(gap))
    closes = (pull < 0) | (falls & (rate**2 >= 2 * pull * gap))
    return jnp.where(closes & ~pressed, closing_time(gap, rate, pull), jnp.inf), pressed


def _bent_meetings(away, velocity, acceleration, reach, possible, end, tolerance, rest_speed):
    """The same where accelerations may differ, up to `end`; pairs with the same one are straight."""
    straight = _straight_meetings(away, velocity, reach, tolerance)
    distance = length(away, axis=0)
    gap = distance - reach
    unit = away / jnp.where(distance > 0, distance, 1)[None]
    rate = dot(unit, velocity)
    # What accelerates the gap: the pull along the normal, and the tangent that leads away from the round.
    pull = dot(unit, acceleration) + (dot(velocity, velocity) - rate**2) / jnp.where(
        distance > 0, distance, 1
    )
    differs = dot(acceleration, acceleration) > 0
    faint = 1e-9 * jnp.sqrt(dot(acceleration, acceleration))
    pressed = differs & (gap <= tolerance) & (jnp.abs(rate) <= rest_speed) & (pull < -faint)
    overlap = jnp.minimum(gap, 0)  # what an impact left of it by rounding is no distance to fall

    def there(time):
        return away + time[None] * (velocity + 0.5 * time[None] * acceleration)

    def gaps_at(time):
        return length(there(time), axis=0) - reach - overlap

    def rates_at(time):
        here = there(time)
        return dot(here, velocity + time[None] * acceleration) / jnp.maximum(length(here, axis=0), 1e-300)

    asked = possible & differs & ~pressed & (end > 0)
    end = jnp.where(asked, end, 0)
    end = first_dip(gaps_at, rates_at, end)
    closes = asked & (gaps_at(end) < 0)
    bent = bracketed_root(gaps_at, rates_at, jnp.maximum(gap, 0), end, closes)
    bent = jnp.where(closes, bent, jnp.inf)
    return jnp.where(differs, bent, straight), pressed


def _plane_hits(balls: Balls, own: Flight, radii, closed):
    """When each plane is hit, with a leading axis of planes; ∞ where it is not, or not within its edges."""
    gap, rate, pull = plane_motion(balls, own, radii)
    tolerance = gap_tolerance(own.position)[None]
    before = in_front(balls, gap)
    if own.acceleration is None:
        closes = (rate < jnp.where(gap > tolerance, 0, -_quiet(gap))) & before
        times = jnp.where(closes, jnp.maximum(gap, 0) / jnp.where(closes, -rate, 1), jnp.inf)
    else:
        # From behind, a plane is met only by a ball that first comes out in front of it.
        outside = jnp.where(before, jnp.maximum(gap, 0), gap)
        returns = (rate > 0) & (pull < 0) & (rate**2 >= 2 * pull * jnp.minimum(outside, 0))
        falls = before & (rate <= 0) & ((pull < 0) | ((rate < 0) & (rate**2 >= 2 * pull * outside)))
        times = jnp.where(falls | returns, closing_time(outside, rate, pull), jnp.inf)
    if closed is not None:
        times = jnp.where(closed, jnp.inf, times)
    for plane, companions in enumerate(balls.companions):
        finite = jnp.where(times[plane] < jnp.inf, times[plane], 0)
        for other in companions:
            there = gap[other] + finite * (rate[other] + 0.5 * finite * pull[other])
            within = within_edge(there, rate[other] + finite * pull[other], tolerance[0])
            times = times.at[plane].set(jnp.where(within, times[plane], jnp.inf))
    return times


def _passing(balls: Balls, own: Flight, radii, plane: int):
    """When a subject comes out in front of a plane that it is behind."""
    gap, rate, pull = (x[plane] for x in plane_motion(balls, own, radii))
    behind, rate, pull = jnp.maximum(-gap, 0), -rate, -pull
    leaves = (pull < 0) | ((rate < 0) & (rate**2 >= 2 * pull * behind))
    return jnp.where(leaves, closing_time(behind, rate, pull), jnp.inf)
