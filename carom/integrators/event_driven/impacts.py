"""The earliest event of every scene: its bodies and planes, its exact instant, and its impulse."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.constraint_exact.contact_times import implicit_root
from carom.integrators.event_driven.balls import Balls, Flight, dot, earliest, pick, separation
from carom.integrators.event_driven.next_event import event_codes
from carom.mechanics import impact_impulse

ReportKind = Literal["none", "contacts"]


class Options(NamedTuple):
    """As `event_driven_motion` takes them."""

    max_impacts: int
    grazing_speed: float
    rest_speed: float
    neighbours: int | None
    report: ReportKind


class Event(NamedTuple):
    """The earliest event of every scene."""

    time: Float[Array, "scenes"]
    code: Int[Array, "scenes"]
    subjects: Int[Array, "scenes 2"]
    """Both bodies; the first one twice where there is no other."""
    plane: Int[Array, "scenes"]
    active: Bool[Array, "scenes"]
    """Scenes that have one before their limit."""
    happens: Bool[Array, "scenes"]
    """Of these, the scenes in which it is known what it is."""
    with_body: Bool[Array, "scenes"]
    hits: Bool[Array, "scenes"]
    passes: Bool[Array, "scenes"]
    """The body passes the end of the plane that it rests on."""

    def chosen(self, bodies: int) -> tuple[Bool[Array, "scenes bodies"], Bool[Array, "scenes bodies"]]:
        """Which body of an active scene is the first one, and which the second, where there is one."""
        same = self.subjects[:, :, None] == jnp.arange(bodies, dtype=jnp.int32)[None, None]
        return same[:, 0] & self.active[:, None], same[:, 1] & self.with_body[:, None]


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
) -> tuple[Float[Array, "scenes"], Bool[Array, "scenes"]]:
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
    balls: Balls,
    pair: Flight,
    event: Event,
    *,
    plastic: Bool[Array, "scenes"] | None = None,
    rest_speed: float,
) -> Float[Array, "dimension scenes 2"]:
    """The velocities of both bodies after an impact, without rebound where it is `plastic` or slow."""
    _, normal, relative, rate = meeting(balls, pair, event)
    inverse = 1 / balls.masses[event.subjects]
    # A plane is a second body of infinite mass.
    inverse = inverse.at[:, 1].set(jnp.where(event.with_body, inverse[:, 1], 0))
    stops = -balls.restitution * rate <= rest_speed
    impulse = impact_impulse(
        normal,
        relative,
        inverse[:, 0] + inverse[:, 1],
        restitution=jnp.where(stops if plastic is None else stops | plastic, 0, balls.restitution),
        friction=balls.friction,
        axis=0,
    )
    # Rounding may have turned a graze around; a contact that opens exerts no impulse.
    impulse = jnp.where(event.hits & (rate < 0), impulse, 0)
    return pair.velocity + jnp.stack([inverse[None, :, 0] * impulse, -inverse[None, :, 1] * impulse], axis=-1)
