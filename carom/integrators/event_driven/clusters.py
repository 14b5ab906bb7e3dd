"""Bodies that lean on each other: one step together, without a rebound, that cannot overlap or gain energy.

A ball on a plane is held exactly, but where balls press on balls there is no closed form, and impacts that
follow each other ever faster (a heap that comes to rest) have no last one. Such bodies spend what is left of
the step at constant velocities v*, the nearest in kinetic energy to the velocity that they would have without
contacts, among those that keep every gap open to the end:

    v* = argmin ½ |v − (v₀ + τ g)|²_M    where    gap_j + τ n_j·w_j ≥ 0 for all contacts j.

Two bodies whose distance along their first normal never falls below the sum of their radii never overlap in
between either. v = 0 is allowed, so v* satisfies ½|v*|² − τ⟨g, v*⟩ ≤ ½|v₀|² − ½|v₀ − v*|²: energy is never
gained, and what is at rest stays there. The price is that of every such scheme (Moreau's): first order, and
the part ½|v₀ − v*|² of the energy is lost.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.flights import (
    Components,
    Flight,
    Others,
    dot,
    gap_tolerance,
    pick,
    plane_motion,
    separation,
)
from carom.mechanics import length, share_within

ITERATIONS = 400


class Settled(NamedTuple):
    """Velocities until the end of the step, and which contacts carry them."""

    velocity: Components
    pushes_body: Bool[Array, "scenes bodies others"]
    pushes_plane: Bool[Array, "planes scenes bodies"]


class _Contacts(NamedTuple):
    """Contacts of the settled bodies, seen from each of them: a pair appears twice, a plane once."""

    normal: Float[Array, "dimension scenes bodies others"]
    gap: Float[Array, "scenes bodies others"]
    real: Bool[Array, "scenes bodies others"]
    """Whether it joins two settled bodies, or one and the plane of a solid that keeps it out."""
    near: Bool[Array, "scenes bodies others"]
    """Those that could be reached in time."""
    inverse: Float[Array, "scenes bodies others"]
    """1/m of the other body; 0 of a plane."""


def touching_cluster(
    balls: Balls,
    flight: Flight,
    settled: Bool[Array, "scenes bodies"],
    others: Others | None,
    *,
    rest_speed: float,
) -> Bool[Array, "scenes bodies"]:
    """The settled bodies and all that touch them at rest, directly or through others."""
    _, gap, rate, different = _pairs(balls, flight, others)
    touches = (gap <= gap_tolerance(flight.position)[..., None]) & (jnp.abs(rate) <= rest_speed) & different

    def grow(carry):
        _, cluster = carry
        return cluster, cluster | jnp.any(touches & _of_others(cluster, others), axis=-1)

    def grows(carry):
        return jnp.any(carry[0] != carry[1])

    return lax.while_loop(grows, grow, (jnp.zeros_like(settled), settled))[1]


def settle(
    balls: Balls,
    flight: Flight,
    settled: Bool[Array, "scenes bodies"],
    others: Others | None,
    remaining: Float[Array, "scenes"],
    *,
    rest_speed: float,
) -> Settled:
    """v* of the settled bodies for the remaining time; the velocities of the others stay. No derivatives."""
    balls, flight, remaining = lax.stop_gradient((balls, flight, remaining))
    time = jnp.maximum(remaining, jnp.finfo(remaining.dtype).tiny)[:, None]
    field = balls.field[:, None, None]
    moves = settled[None]
    free = jnp.where(moves, flight.velocity + time[None] * field, 0)
    contacts = _contacts(balls, flight, free, settled, others, time)
    inverse = jnp.where(settled, 1 / balls.masses[None], 0)
    crowd = jnp.sum(contacts.near, axis=-1).astype(free.dtype)
    # The diagonal that dominates the compliance, row by row: with it a step for all contacts at once is safe.
    theirs = _of_everything(balls, crowd, others)
    stiffness = 1 / jnp.maximum(
        crowd[..., None] * inverse[..., None] + theirs * contacts.inverse, jnp.finfo(free.dtype).tiny
    )

    def velocity_of(force):
        return free + inverse[None] * jnp.sum(force, axis=-1)

    def relative(velocity):
        return velocity[..., None] - _of_everything(balls, velocity, others)

    def improve(force):
        motion = relative(velocity_of(force))
        along = dot(contacts.normal, motion)
        push = dot(contacts.normal, force)
        slip = motion - contacts.normal * along[None]
        wanted = push - stiffness * (along + contacts.gap / time[..., None])
        push_after = jnp.where(contacts.near, jnp.maximum(wanted, 0), 0)
        held = force - contacts.normal * push[None] - stiffness[None] * slip
        grip = share_within(balls.friction * push_after, length(held, axis=0))
        return contacts.normal * push_after[None] + grip[None] * held

    def iterate(carry):
        count, force, ahead, momentum, _ = carry
        after = improve(ahead)
        # Nesterov's extrapolation, taken back wherever it points uphill.
        uphill = jnp.sum((ahead - after) * (after - force), axis=(0, 2, 3)) > 0
        following = jnp.where(uphill, 1.0, 0.5 * (1 + jnp.sqrt(1 + 4 * momentum**2)))
        share = jnp.where(uphill, 0.0, (momentum - 1) / following)[None, :, None, None]
        change = jnp.max(jnp.abs(after - ahead), initial=0.0)
        scale = jnp.max(jnp.abs(after), initial=0.0)
        return count + 1, after, after + share * (after - force), following, change > 1e-14 * scale

    def unfinished(carry):
        return (carry[0] < ITERATIONS) & carry[-1]

    nothing = jnp.zeros((len(free), *contacts.gap.shape), free.dtype)
    start = 0, nothing, nothing, jnp.ones_like(remaining), jnp.any(contacts.near)
    force = lax.while_loop(unfinished, iterate, start)[1]
    velocity = velocity_of(force)
    common, spare = _common_velocity(balls, flight, velocity, contacts, settled, time)
    own = jnp.where(moves, velocity - common, 0)
    share = _safe_share(balls, flight, own, common, spare, contacts, relative(own), time)
    velocity = common + share[None] * own
    velocity = jnp.where(length(velocity, axis=0)[None] > rest_speed, velocity, 0)
    pushes = jnp.any(force != 0, axis=0)
    bodies = contacts.gap.shape[-1] - balls.planes
    return Settled(
        jnp.where(moves, velocity, flight.velocity),
        pushes[..., :bodies],
        jnp.moveaxis(pushes[..., bodies:], -1, 0),
    )


def _common_velocity(balls, flight, velocity, contacts, settled, time):
    """A velocity c that is safe for all settled bodies together, and Σ m v₀² less what it takes of it.

    That of their centre of mass, which keeps their momentum and changes no gap between them; 0 where planes
    are in the way or where it would gain energy.
    """
    mass = jnp.where(settled, balls.masses[None], 0)
    total = jnp.maximum(jnp.sum(mass, axis=1), jnp.finfo(mass.dtype).tiny)
    center = jnp.sum(mass[None] * velocity, axis=2) / total[None]
    before = jnp.sum(mass * dot(flight.velocity, flight.velocity), axis=1)
    work = time[:, 0] * dot(jnp.broadcast_to(balls.field[:, None], center.shape), center)
    spare = before - total * (dot(center, center) - 2 * work)
    room = _slack(balls, contacts, center[..., None], time)
    safe = jnp.all((room >= 0) | ~contacts.real, axis=(1, 2)) & (spare >= 0)
    return jnp.where(safe[None], center, 0)[..., None], jnp.where(safe, spare, before)


def _slack(balls, contacts, common, time):
    """Gaps that are left at the end of the step when all bodies have one velocity; planes have none."""
    planes = jnp.arange(contacts.gap.shape[-1]) >= contacts.gap.shape[-1] - balls.planes
    approach = dot(contacts.normal, jnp.broadcast_to(common[..., None], contacts.normal.shape))
    return jnp.maximum(contacts.gap, 0) + jnp.where(planes[None, None], time[..., None] * approach, 0)


def _safe_share(balls, flight, own, common, spare, contacts, motion, time):
    """θ ≤ 1 for which the common velocity and θ times each body's own neither overlap nor gain energy.

    The iteration for v* may not have ended. Both hold for θ = 0, and the set where they hold is convex.
    """
    along = dot(contacts.normal, motion)
    slack = _slack(balls, contacts, common, time)
    tolerance = gap_tolerance(flight.position)[..., None]
    overlaps = slack + time[..., None] * along < -tolerance
    possible = overlaps & contacts.real
    fits = jnp.where(possible, slack / jnp.where(possible, -time[..., None] * along, 1), 1)
    fits = jnp.min(fits, axis=(1, 2), initial=1.0)
    mass = balls.masses[None]
    after = jnp.sum(mass * dot(own, own), axis=1)
    field = jnp.broadcast_to(balls.field[:, None, None], own.shape)
    work = time[:, 0] * jnp.sum(mass * dot(field, own), axis=1)
    # ½ θ² after − θ work ≤ ½ spare; own velocities have no momentum beside a common one.
    affords = (work + jnp.sqrt(jnp.maximum(work**2 + after * spare, 0))) / jnp.where(after > 0, after, 1)
    affords = jnp.where(after > 0, affords, 1)
    return jnp.minimum(jnp.minimum(fits, affords), 1)[:, None]


def _pairs(balls: Balls, flight: Flight, others: Others | None):
    """Normal, gap and rate of every pair, from each of its bodies; and whether it is a pair at all."""
    bodies = jnp.arange(balls.bodies, dtype=jnp.int32)
    if others is None:
        theirs = jnp.broadcast_to(
            bodies[None, None, :], (flight.position.shape[1], balls.bodies, balls.bodies)
        )
        there = flight.position[:, :, None, :], flight.velocity[:, :, None, :]
    else:
        theirs = others
        there = pick(flight.position, others), pick(flight.velocity, others)
    different = theirs != bodies[None, :, None]
    away = flight.position[..., None] - there[0]
    reach = balls.radii[None, :, None] + balls.radii[theirs]
    normal, distance = separation(away, bodies[None, :, None], theirs)
    rate = dot(normal, flight.velocity[..., None] - there[1])
    return normal, distance - reach, rate, different


def _contacts(balls, flight, free, settled, others, time) -> _Contacts:
    """All contacts of settled bodies with each other and with planes that they could reach in time."""
    normal, gap, _, different = _pairs(balls, flight, others)
    speed = length(free, axis=0)
    span = time[..., None] * (speed[..., None] + _of_others(speed, others))
    real = different & settled[..., None] & _of_others(settled, others)
    masses = jnp.broadcast_to(balls.masses[None], settled.shape)
    inverse = 1 / _of_others(masses, others) + jnp.zeros_like(gap)
    plane_gap, _, _ = plane_motion(
        balls, Flight(flight.position, flight.velocity, None), balls.radii[None] + 0 * speed
    )
    outermost = jnp.ones(plane_gap.shape, bool)
    for plane, companions in enumerate(balls.companions):
        for other in companions:
            # Of a solid one plane keeps the body out: that which it is farthest in front of.
            wins = (
                plane_gap[plane] > plane_gap[other] if other < plane else plane_gap[plane] >= plane_gap[other]
            )
            outermost = outermost.at[plane].set(outermost[plane] & wins)
    plane_real = settled[None] & outermost
    plane_near = plane_real & (plane_gap <= (time * speed)[None])
    planes = jnp.broadcast_to(balls.normals.T[:, None, None, :], (len(free), *settled.shape, balls.planes))
    return _Contacts(
        jnp.concatenate([jnp.broadcast_to(normal, (len(free), *gap.shape)), planes], axis=-1),
        # Overlap by rounding stays: to remove it within a short rest of a step could take any speed.
        jnp.maximum(jnp.concatenate([gap, jnp.moveaxis(plane_gap, 0, -1)], axis=-1), 0),
        jnp.concatenate([real, jnp.moveaxis(plane_real, 0, -1)], axis=-1),
        jnp.concatenate([real & (gap <= span), jnp.moveaxis(plane_near, 0, -1)], axis=-1),
        jnp.concatenate([inverse, jnp.zeros((*settled.shape, balls.planes), free.dtype)], axis=-1),
    )


def _of_others(values: Array, others: Others | None) -> Array:
    """What the other body of every pair has, for values per body with any leading axes before the scenes."""
    if others is None:
        return values[..., None, :]
    return pick(values, others) if values.ndim == 3 else pick(values[None], others)[0]


def _of_everything(balls: Balls, values: Array, others: Others | None) -> Array:
    """The same for pairs and planes: a plane has nothing."""
    theirs = _of_others(values, others)
    count = balls.bodies if others is None else others.shape[-1]
    theirs = jnp.broadcast_to(theirs, (*values.shape, count))
    return jnp.concatenate([theirs, jnp.zeros((*values.shape, balls.planes), values.dtype)], axis=-1)
