"""What two bodies, or a body and a plane, do to each other when they meet."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.flights import Codes, Flight, dot, separation
from carom.mechanics import length, removed_slip


class Settings(NamedTuple):
    """As `event_driven_motion` takes them."""

    max_impacts: int
    grazing_speed: float
    rest_speed: float


class Meeting(NamedTuple):
    """Two bodies, or a body and a plane, at one instant, seen from the first body."""

    normal: Float[Array, "dimension scenes"]
    gap: Float[Array, "scenes"]
    relative: Float[Array, "dimension scenes"]
    rate: Float[Array, "scenes"]


class Event(NamedTuple):
    """Which bodies and planes an event is about."""

    first: Int[Array, "scenes"]
    second: Int[Array, "scenes"]
    plane: Int[Array, "scenes"]
    code: Int[Array, "scenes"]
    happens: Bool[Array, "scenes"]
    with_body: Bool[Array, "scenes"]
    hits: Bool[Array, "scenes"]
    passes: Bool[Array, "scenes"]

    @property
    def subjects(self) -> Int[Array, "scenes 2"]:
        """Both bodies; the first one twice where there is no other."""
        return jnp.stack([self.first, self.second], axis=1)

    def is_first(self, bodies: int) -> Bool[Array, "scenes bodies"]:
        """Which body is the first one."""
        return self.first[:, None] == jnp.arange(bodies, dtype=jnp.int32)[None]

    def is_second(self, bodies: int) -> Bool[Array, "scenes bodies"]:
        """Which body is the second one, where there is one."""
        same = self.second[:, None] == jnp.arange(bodies, dtype=jnp.int32)[None]
        return same & self.with_body[:, None]


def event_of(
    balls: Balls,
    events: Int[Array, "scenes bodies"],
    first: Int[Array, "scenes"],
    active: Bool[Array, "scenes"],
) -> Event:
    """The event that the first body of every scene has coming, where the scene is active."""
    codes = Codes(balls.bodies, balls.planes)
    code = jnp.take_along_axis(events, first[:, None], axis=1)[:, 0]
    happens = active & (code != codes.unknown)
    with_body = happens & (code < codes.bodies)
    with_plane = happens & (code >= codes.bodies) & (code < codes.edge)
    passes = happens & (code >= codes.edge) & (code < codes.halt)
    plane = jnp.clip(code - jnp.where(passes, codes.edge, codes.bodies), 0, max(balls.planes - 1, 0))
    second = jnp.where(with_body, code, first)
    return Event(first, second, plane, code, happens, with_body, with_body | with_plane, passes)


def meeting(balls: Balls, pair: Flight, event: Event) -> Meeting:
    """How the two bodies of an event, or its body and its plane, stand to each other."""
    own, other = pair.position[..., 0], pair.position[..., 1]
    away, radii = own - other, balls.radii[event.subjects]
    normal, distance = separation(away, event.first, event.second)
    gap, relative = distance - radii[:, 0] - radii[:, 1], pair.velocity[..., 0] - pair.velocity[..., 1]
    if balls.planes:
        facing = balls.normals[event.plane].T
        normal = jnp.where(event.with_body[None], normal, facing)
        clearance = dot(facing, own) - balls.offsets[event.plane] - radii[:, 0]
        gap = jnp.where(event.with_body, gap, clearance)
        relative = jnp.where(event.with_body[None], relative, pair.velocity[..., 0])
    return Meeting(normal, gap, relative, dot(normal, relative))


def exact_instant(
    balls: Balls, pair: Flight, event: Event, elapsed: Float[Array, "scenes"], *, grazing_speed: float
) -> tuple[Float[Array, "scenes"], Bool[Array, "scenes"]]:
    """The time until an event from a near guess, with its derivative; and whether it is a graze.

    One Newton step at a fixed slope makes the instant exact to rounding, and carries the derivative
    −(∂g/∂ξ)/(dg/dt) of the implicit function theorem, clipped at `grazing_speed`. A graze takes place where
    it was planned, as a clipped slope would lead astray, and nothing takes place before now: rounding of slow
    contacts must not turn back the time of all others.
    """
    elapsed = lax.stop_gradient(elapsed)
    there = meeting(balls, pair.after(elapsed), event)
    rate = lax.stop_gradient(there.rate)
    slope = jnp.where(event.passes, jnp.maximum(rate, grazing_speed), jnp.minimum(rate, -grazing_speed))
    correction = jnp.where(event.hits | event.passes, there.gap / slope, 0)
    applied = jnp.minimum(jnp.where(jnp.abs(rate) < grazing_speed, 0, correction), elapsed)
    exact = elapsed - correction + lax.stop_gradient(correction - applied)
    if pair.acceleration is not None:
        speed, slowing = (dot(pair.velocity, x)[:, 0] for x in (pair.velocity, pair.acceleration))
        halts = event.happens & (event.code == Codes(balls.bodies, balls.planes).halt)
        exact = jnp.where(halts, speed / jnp.where(halts, -slowing, 1), exact)
    return exact, event.hits & (rate > -grazing_speed)


def velocity_changes(
    balls: Balls,
    meeting: Meeting,
    event: Event,
    *,
    tired: Bool[Array, "scenes"],
    rest_speed: float,
) -> Float[Array, "dimension scenes 2"]:
    """The changes of velocity of both bodies: Newton's law along the normal, Coulomb's across it."""
    inverse = 1 / balls.masses[event.subjects]
    inverse = inverse.at[:, 1].set(jnp.where(event.with_body, inverse[:, 1], 0))
    compliance = inverse[:, 0] + inverse[:, 1]
    rebound = -balls.restitution * meeting.rate
    rebound = jnp.where(tired | (rebound <= rest_speed), 0, rebound)
    push = jnp.where(event.hits, jnp.maximum(rebound - meeting.rate, 0) / compliance, 0)
    slip = meeting.relative - meeting.normal * meeting.rate[None]
    share = removed_slip(length(slip, axis=0), push, friction=balls.friction, compliance=compliance)
    braking = jnp.where(event.hits, share / compliance, 0)
    impulse = push[None] * meeting.normal - braking[None] * slip
    return jnp.stack([inverse[None, :, 0] * impulse, -inverse[None, :, 1] * impulse], axis=-1)
