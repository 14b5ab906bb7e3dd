"""Balls that rest on planes: what the planes leave of the field, and what friction takes of that."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.flights import (
    Flight,
    dot,
    gap_tolerance,
    in_front,
    plane_motion,
    within_edge,
)
from carom.mechanics import length, share_within


def supported(
    balls: Balls, flight: Flight, radii: Float[Array, "scenes bodies"], *, rest_speed: float
) -> tuple[Flight, Bool[Array, "planes scenes bodies"], Bool[Array, "planes scenes bodies"]]:
    """Bodies held by the planes that they rest on; also which planes those are, and which of them push.

    At a plane that a body touches without closing in, the acceleration loses what presses into it, and
    friction takes up to μ times that from the rest: against the slide, or all of it where the body stays.
    """
    gap, rate, _ = plane_motion(balls, Flight(flight.position, flight.velocity, None), radii)
    tolerance = gap_tolerance(flight.position)
    closed = (gap <= tolerance[None]) & in_front(balls, gap) & (jnp.abs(rate) <= rest_speed)
    for plane, companions in enumerate(balls.companions):
        for other in companions:
            within = within_edge(gap[other], rate[other], tolerance)
            closed = closed.at[plane].set(closed[plane] & within)
    normals = jnp.broadcast_to(balls.normals[:, :, None, None], (balls.planes, len(flight.position), 1, 1))

    # What rests on a plane goes where the plane goes, and nowhere else along its normal.
    drift = gap - lax.stop_gradient(gap)

    def snap(plane, carry):
        position, velocity = carry
        normal = normals[plane]
        position = position - jnp.where(closed[plane], drift[plane], 0)[None] * normal
        return position, velocity - jnp.where(closed[plane], dot(normal, velocity), 0)[None] * normal

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
        start = forces, field + jnp.sum(forces, axis=0)
        after, _ = lax.fori_loop(0, balls.planes, visit, start)
        change = jnp.max(jnp.abs(lax.stop_gradient(after - forces)), initial=0.0)
        scale = jnp.max(jnp.abs(lax.stop_gradient(after)), initial=0.0)
        return count + 1, after, change > 1e-15 * scale

    def unsettled(carry):
        return (carry[0] < 64) & carry[2]

    start = jnp.zeros((balls.planes, *velocity.shape), velocity.dtype)
    forces = start
    if balls.planes:
        forces = lax.while_loop(unsettled, sweep, (0, start, jnp.any(closed)))[1]
    acceleration = field + jnp.sum(forces, axis=0)
    pushes = jnp.any(forces != 0, axis=1)
    # What friction holds does not creep by the rounding of its last slide.
    stays = jnp.any(closed, axis=0) & ~slides & (balls.friction > 0)
    velocity = jnp.where(stays[None], 0, velocity)
    return Flight(position, velocity, acceleration), closed, pushes
