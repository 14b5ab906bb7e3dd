"""Contacts that last: balls that rest on planes, and clusters of balls that lean on each other.

A ball on planes is held exactly (`supported`), but where balls press on balls there is no closed form, and
impacts that follow each other ever faster (a heap that comes to rest) have no last one. Such a cluster spends
the remaining time τ of the step at constant velocities v*, the nearest in kinetic energy to those that its
bodies would have without contacts, among those that keep every gap open to the end:

    v* = argmin ½ |v − (v₀ + τ g)|²_M    where    gap_j + τ n_j·w_j ≥ 0 for all contacts j.

Two bodies whose distance along their first normal never falls below the sum of their radii never overlap in
between either. v = 0 is allowed, so v* satisfies ½|v*|² − τ⟨g, v*⟩ ≤ ½|v₀|² − ½|v₀ − v*|²: energy is never
gained, and what is at rest stays there. The price is that of every such scheme (Moreau's): first order, and
the part ½|v₀ − v*|² of the energy is lost.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from carom.integrators.event_driven.balls import (
    Balls,
    Components,
    Flight,
    Others,
    dot,
    gap_tolerance,
    in_front,
    of_others,
    plane_motion,
    separation,
    within_edge,
)
from carom.mechanics import length
from carom.mechanics.friction import share_within

ITERATIONS = 400
"""Of the projected gradient method; where it has not converged by then, `_feasible` scales the velocities."""
SWEEPS = 64
"""Of the Gauss–Seidel iteration over the planes that hold a ball."""
Bodies = Bool[Array, "scenes bodies"]


def supported(
    balls: Balls, flight: Flight, radii: Float[Array, "scenes bodies"], *, rest_speed: float
) -> tuple[Flight, Bool[Array, "planes scenes bodies"], Bool[Array, "planes scenes bodies"]]:
    """Bodies held by the planes that they rest on; also which planes those are, and which of them push.

    At a plane that a body touches without closing in, the acceleration loses what presses into it, and
    friction takes up to μ times that from the rest: against the slide, or all of it where the body sticks.
    """
    gap, rate, _ = plane_motion(balls, flight._replace(acceleration=None), radii)
    tolerance = gap_tolerance(flight.position)
    # Faster ones are impacts still to come, or bodies that have just rebounded.
    closed = (gap <= tolerance[None]) & in_front(balls, gap) & (jnp.abs(rate) <= rest_speed)
    for plane, end in balls.edges:
        closed = closed.at[plane].set(closed[plane] & within_edge(gap[end], rate[end], tolerance))
    normals = jnp.broadcast_to(balls.normals[:, :, None, None], (balls.planes, len(flight.position), 1, 1))
    # A body on a plane moves with the plane along its normal: the value stays, the derivative follows.
    drift = gap - lax.stop_gradient(gap)

    def snap(plane, carry):
        position, velocity = carry
        normal = normals[plane]
        position = position - jnp.where(closed[plane], drift[plane], 0)[None] * normal
        return position, velocity - jnp.where(closed[plane], dot(normal, velocity), 0)[None] * normal

    # A loop over planes, not a Python one: stairs have many, and each copy would be compiled.
    position, velocity = lax.fori_loop(0, balls.planes, snap, (flight.position, flight.velocity))
    speed = length(velocity, axis=0)
    slides = speed > rest_speed
    direction = velocity / jnp.where(slides, speed, 1)[None]
    field = jnp.broadcast_to(balls.field[:, None, None], velocity.shape)

    def visit(plane, carry):
        forces, total = carry
        normal, force = normals[plane], forces[plane]
        wanted = force - total
        push = jnp.maximum(dot(normal, wanted), 0)
        held = wanted - normal * dot(normal, wanted)[None]
        limit = balls.friction * push
        grip = share_within(limit, length(held, axis=0))
        across = jnp.where(slides[None], -limit[None] * direction, grip[None] * held)
        after = jnp.where(closed[plane][None], normal * push[None] + across, 0)
        return forces.at[plane].set(after), total + after - force

    def sweep(carry):
        count, forces, _ = carry
        after, _ = lax.fori_loop(0, balls.planes, visit, (forces, field + jnp.sum(forces, axis=0)))
        change, scale = (jnp.max(jnp.abs(lax.stop_gradient(x)), initial=0.0) for x in (after - forces, after))
        return count + 1, after, change > 1e-15 * scale

    forces = jnp.zeros((balls.planes, *velocity.shape), velocity.dtype)
    if balls.planes:
        start = 0, forces, jnp.any(closed)
        forces = lax.while_loop(lambda carry: (carry[0] < SWEEPS) & carry[2], sweep, start)[1]
    # What friction holds does not creep by the rounding of its last slide.
    sticks = jnp.any(closed, axis=0) & ~slides & (balls.friction > 0)
    held = Flight(position, jnp.where(sticks[None], 0, velocity), field + jnp.sum(forces, axis=0))
    return held, closed, jnp.any(forces != 0, axis=1)


def touching_cluster(
    balls: Balls, flight: Flight, members: Bodies, others: Others | None, *, rest_speed: float
) -> Bodies:
    """Some bodies and all that touch them at rest, directly or through others."""
    _, gap, rate, distinct = _pairs(balls, flight, others)
    touches = (gap <= gap_tolerance(flight.position)[..., None]) & (jnp.abs(rate) <= rest_speed) & distinct

    def grow(carry):
        _, cluster = carry
        return cluster, cluster | jnp.any(touches & of_others(cluster, others), axis=-1)

    def grows(carry):
        return jnp.any(carry[0] != carry[1])

    return lax.while_loop(grows, grow, (jnp.zeros_like(members), members))[1]


class _Contacts(NamedTuple):
    """Contacts of a cluster, seen from each of its bodies: a pair appears twice, a plane once.

    The last axis has the other bodies and then the planes.
    """

    balls: Balls
    others: Others | None
    cluster: Bodies
    time: Float[Array, "scenes 1"]
    normal: Float[Array, "dimension scenes bodies others"]
    gap: Float[Array, "scenes bodies others"]
    real: Bool[Array, "scenes bodies others"]
    """Whether it joins two bodies of the cluster, or one and the plane of a solid that keeps it out."""

    def theirs(self, values: Shaped[Array, "... scenes bodies"]) -> Shaped[Array, "... scenes bodies others"]:
        """What the other body of every contact has; a plane has 0."""
        pairs = of_others(values, self.others)
        pairs = jnp.broadcast_to(pairs, (*values.shape, self.gap.shape[-1] - self.balls.planes))
        return jnp.concatenate([pairs, jnp.zeros((*values.shape, self.balls.planes), values.dtype)], axis=-1)

    def room(self, common: Float[Array, "dimension scenes"]) -> Float[Array, "scenes bodies others"]:
        """Gaps at the end of the step when all bodies have one velocity: only those of planes change."""
        planes = jnp.arange(self.gap.shape[-1]) >= self.gap.shape[-1] - self.balls.planes
        approach = dot(self.normal, jnp.broadcast_to(common[..., None, None], self.normal.shape))
        return self.gap + jnp.where(planes[None, None], self.time[..., None] * approach, 0)


def resolve_cluster(
    balls: Balls,
    flight: Flight,
    cluster: Bodies,
    others: Others | None,
    remaining: Float[Array, "scenes"],
    *,
    rest_speed: float,
) -> tuple[Components, Bool[Array, "scenes bodies contacts"]]:
    """v* of clusters for the remaining time, and which contacts push; other bodies keep their velocities.

    The contacts have those with the other bodies first, then the planes. No derivatives.
    """
    balls, flight, remaining = lax.stop_gradient((balls, flight, remaining))
    # Divisors: the rest of a step may be 0.
    time = jnp.maximum(remaining, jnp.finfo(remaining.dtype).tiny)[:, None]
    free = jnp.where(cluster[None], flight.velocity + time[None] * balls.field[:, None, None], 0)
    contacts = _contacts(balls, flight, cluster, others, time)
    speed, inverse = length(free, axis=0), jnp.where(cluster, 1 / balls.masses[None], 0)
    # Others cannot close within the step, and would only slow down the iteration.
    reachable = contacts.gap <= time[..., None] * (speed[..., None] + contacts.theirs(speed))
    near = contacts.real & reachable
    # The diagonal that dominates the compliance, row by row: with it a step for all contacts at once is safe.
    compliance = inverse * jnp.sum(near, axis=-1).astype(free.dtype)
    diagonal = compliance[..., None] + contacts.theirs(compliance)
    stiffness = 1 / jnp.maximum(diagonal, jnp.finfo(free.dtype).tiny)

    def velocity_of(impulse):
        return free + inverse[None] * jnp.sum(impulse, axis=-1)

    def relative(velocity):
        return velocity[..., None] - contacts.theirs(velocity)

    def improve(impulse):
        motion = relative(velocity_of(impulse))
        along, push = dot(contacts.normal, motion), dot(contacts.normal, impulse)
        slip = motion - contacts.normal * along[None]
        wanted = push - stiffness * (along + contacts.gap / time[..., None])
        push_after = jnp.where(near, jnp.maximum(wanted, 0), 0)
        held = impulse - contacts.normal * push[None] - stiffness[None] * slip
        grip = share_within(balls.friction * push_after, length(held, axis=0))
        return contacts.normal * push_after[None] + grip[None] * held

    def iterate(carry):
        count, impulse, ahead, momentum, _ = carry
        after = improve(ahead)
        # Nesterov's extrapolation, restarted wherever it points uphill.
        uphill = jnp.sum((ahead - after) * (after - impulse), axis=(0, 2, 3)) > 0
        following = jnp.where(uphill, 1.0, 0.5 * (1 + jnp.sqrt(1 + 4 * momentum**2)))
        share = jnp.where(uphill, 0.0, (momentum - 1) / following)[None, :, None, None]
        change, scale = (jnp.max(jnp.abs(x), initial=0.0) for x in (after - ahead, after))
        return count + 1, after, after + share * (after - impulse), following, change > 1e-14 * scale

    def unfinished(carry):
        return (carry[0] < ITERATIONS) & carry[-1]

    nothing = jnp.zeros_like(contacts.normal)
    start = 0, nothing, nothing, jnp.ones_like(remaining), jnp.any(near)
    impulse = lax.while_loop(unfinished, iterate, start)[1]
    velocity = _feasible(contacts, flight, velocity_of(impulse), relative)
    # What the iteration left of a heap at rest would make it creep.
    velocity = jnp.where(length(velocity, axis=0)[None] > rest_speed, velocity, 0)
    return jnp.where(cluster[None], velocity, flight.velocity), jnp.any(impulse != 0, axis=0)


def _feasible(contacts: _Contacts, flight: Flight, velocity: Components, relative) -> Components:
    """Velocities that neither overlap nor gain energy, wherever the iteration for v* has ended.

    A common velocity c of all bodies is feasible: that of their centre of mass, which keeps their momentum
    and changes no gap between them; 0 where planes are in the way or where it would gain energy. The feasible
    set is convex, so c + θ (v − c) belongs to it up to some θ ≤ 1.
    """
    balls, time = contacts.balls, contacts.time[:, 0]
    mass = jnp.where(contacts.cluster, balls.masses[None], 0)
    total = jnp.maximum(jnp.sum(mass, axis=1), jnp.finfo(mass.dtype).tiny)
    field = balls.field[:, None]
    center = jnp.sum(mass[None] * velocity, axis=2) / total[None]
    before = jnp.sum(mass * dot(flight.velocity, flight.velocity), axis=1)
    work = time * dot(jnp.broadcast_to(field, center.shape), center)
    spare = before - total * (dot(center, center) - 2 * work)
    feasible = jnp.all((contacts.room(center) >= 0) | ~contacts.real, axis=(1, 2)) & (spare >= 0)
    common, spare = jnp.where(feasible[None], center, 0), jnp.where(feasible, spare, before)

    own = jnp.where(contacts.cluster[None], velocity - common[..., None], 0)
    room, closing = contacts.room(common), -time[:, None, None] * dot(contacts.normal, relative(own))
    overlaps = contacts.real & (room - closing < -gap_tolerance(flight.position)[..., None])
    share = jnp.min(jnp.where(overlaps, room / jnp.where(overlaps, closing, 1), 1), axis=(1, 2), initial=1.0)
    after = jnp.sum(mass * dot(own, own), axis=1)
    work = time * jnp.sum(mass * dot(jnp.broadcast_to(field[..., None], own.shape), own), axis=1)
    # ½ θ² after − θ work ≤ ½ spare: own velocities have no momentum beside a common one.
    affordable = (work + jnp.sqrt(jnp.maximum(work**2 + after * spare, 0))) / jnp.where(after > 0, after, 1)
    share = jnp.minimum(share, jnp.where(after > 0, affordable, 1))
    return common[..., None] + share[None, :, None] * own


def _pairs(balls: Balls, flight: Flight, others: Others | None):
    """Normal, gap and rate of every pair, from each of its bodies; and whether it is a pair at all."""
    bodies = jnp.arange(balls.bodies, dtype=jnp.int32)
    numbers = bodies[None, None, :] if others is None else others
    distinct = numbers != bodies[None, :, None]
    difference = flight.position[..., None] - of_others(flight.position, others)
    normal, distance = separation(difference, bodies[None, :, None], numbers)
    rate = dot(normal, flight.velocity[..., None] - of_others(flight.velocity, others))
    return normal, distance - balls.radii[None, :, None] - balls.radii[numbers], rate, distinct


def _contacts(balls: Balls, flight: Flight, cluster: Bodies, others: Others | None, time) -> _Contacts:
    """All contacts of clusters, closed or not."""
    normal, gap, _, distinct = _pairs(balls, flight, others)
    radii = jnp.broadcast_to(balls.radii[None], cluster.shape)
    plane_gap, _, _ = plane_motion(balls, flight._replace(acceleration=None), radii)
    outer = jnp.ones(plane_gap.shape, bool)
    for plane, other in balls.edges:
        # Of a solid one plane keeps the body out: that which it is farthest in front of.
        ahead = plane_gap[plane] - plane_gap[other]
        outer = outer.at[plane].set(outer[plane] & ((ahead > 0) if other < plane else (ahead >= 0)))
    planes = jnp.broadcast_to(balls.normals.T[:, None, None, :], (len(normal), *cluster.shape, balls.planes))
    real = [distinct & of_others(cluster, others), jnp.moveaxis(outer, 0, -1)]
    joins = cluster[..., None] & jnp.concatenate(real, axis=-1)
    normals = jnp.concatenate([normal, planes], axis=-1)
    # Overlap by rounding stays: to remove it within a short rest of a step could take any speed.
    gaps = jnp.maximum(jnp.concatenate([gap, jnp.moveaxis(plane_gap, 0, -1)], axis=-1), 0)
    return _Contacts(balls, others, cluster, time, normals, gaps, joins)
