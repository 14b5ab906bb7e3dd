"""Bodies on parabolas, many scenes at once, and the planes that they fly among.

Between events a ball has a constant acceleration: that of the field in flight, what the planes leave of it on
them. Arrays have the layout (dimension, scenes, bodies), so that a scene's bodies lie side by side in memory.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from carom.integrators.event_driven.balls import Balls
from carom.mechanics import length

Components = Float[Array, "dimension scenes bodies"]
Others = Int[Array, "scenes subjects others"]
"""Which bodies some bodies may meet."""


class Flight(NamedTuple):
    """Where all bodies are and how they go on."""

    position: Components
    velocity: Components
    acceleration: Components | None
    """None on a free table, where nothing is ever held."""

    def after(self, time: Float[Array, "scenes"]) -> "Flight":
        """The same bodies that much later."""
        time = time[None, :, None]
        position, velocity, acceleration = self
        if acceleration is None:
            return Flight(position + time * velocity, velocity, None)
        position = position + time * (velocity + 0.5 * time * acceleration)
        return Flight(position, velocity + time * acceleration, acceleration)

    def of(self, bodies: Int[Array, "scenes *any"]) -> "Flight":
        """The flights of some bodies of every scene."""
        return jax.tree.map(lambda values: pick(values, bodies), self)


class Codes(NamedTuple):
    """What the next event of a body is, as one number: the other body, or a plane, or neither."""

    bodies: int
    planes: int

    @property
    def edge(self) -> int:
        """From here on: the body passes the plane that ends the one it rests on."""
        return self.bodies + self.planes

    @property
    def halt(self) -> int:
        """The body stops sliding."""
        return self.bodies + 2 * self.planes

    @property
    def press(self) -> int:
        """The body is pressed against another one that it touches at rest."""
        return self.halt + 1

    @property
    def unknown(self) -> int:
        """The other body has gone another way since; what comes next comes no sooner than this was to."""
        return self.halt + 2


def pick(
    values: Shaped[Array, "dimension scenes bodies"], bodies: Int[Array, "scenes *any"]
) -> Shaped[Array, "dimension scenes *any"]:
    """values[:, scene, bodies[scene]]."""
    flat = bodies.reshape(bodies.shape[0], -1)
    picked = jnp.take_along_axis(values, flat[None], axis=2)
    return picked.reshape(values.shape[0], *bodies.shape)


def earliest(times: Float[Array, "*any"], axis: int) -> tuple[Float[Array, "*rest"], Int[Array, "*rest"]]:
    """The least of non-negative times along an axis, and where it is."""
    if times.dtype != jnp.float64:
        which = jnp.argmin(times, axis=axis)
    else:
        # Positive numbers are ordered as their bits are. With the place in the last bits one plain minimum
        # finds both, several times faster than a reduction over pairs; nearer times count as equal.
        size = times.shape[axis]
        mask = (1 << max(size - 1, 1).bit_length()) - 1
        places = jnp.arange(size).reshape([-1 if a == axis % times.ndim else 1 for a in range(times.ndim)])
        bits = lax.bitcast_convert_type(times, jnp.int64)
        which = jnp.min((bits & ~mask) | places, axis=axis) & mask
    least = jnp.take_along_axis(times, jnp.expand_dims(which, axis), axis=axis)
    return jnp.squeeze(least, axis), which.astype(jnp.int32)


def dot(first: Float[Array, "dimension ..."], second: Float[Array, "dimension ..."]) -> Float[Array, "..."]:
    """The scalar product over the leading axis, which is too short for a reduction to pay."""
    total = first[0] * second[0]
    for one, other in zip(first[1:], second[1:], strict=True):
        total = total + one * other
    return total


def separation(
    away: Float[Array, "dimension *any"], first: Int[Array, "..."], second: Int[Array, "..."]
) -> tuple[Float[Array, "dimension *any"], Float[Array, "*any"]]:
    """The unit vector from the second of two bodies to the first, `away` being the way, and their distance.

    On a line the distance has a sign, as bodies cannot pass each other: the first in number is above.
    """
    if len(away) == 1:
        side = jnp.where(first < second, 1, -1).astype(away.dtype)
        return jnp.broadcast_to(side[None], away.shape), side * away[0]
    distance = length(away, axis=0)
    return away / jnp.where(distance > 0, distance, 1)[None], distance


def gap_tolerance(position: Float[Array, "dimension *any"]) -> Float[Array, "*any"]:
    """How far from 0 the gap of a contact may be that is closed to rounding."""
    return 64 * jnp.finfo(position.dtype).eps * (1 + jnp.max(jnp.abs(position), axis=0))


def plane_motion(balls: Balls, flight: Flight, radii: Float[Array, "*any"]):
    """Gap, rate and pull of every plane for every subject, with a leading axis of planes."""
    shape = (balls.planes,) + (1,) * (flight.position.ndim - 1)

    def along(vector):
        return sum(
            balls.normals[:, axis].reshape(shape) * component[None] for axis, component in enumerate(vector)
        ) + jnp.zeros(shape, vector.dtype)

    gap = along(flight.position) - balls.offsets.reshape(shape) - radii[None]
    pull = jnp.zeros_like(gap) if flight.acceleration is None else along(flight.acceleration)
    return gap, along(flight.velocity), pull


def within_edge(gap, rate, tolerance):
    """Whether a body is over a plane that ends at another one: not any more where it is just passing that."""
    return (gap < -tolerance) | ((gap <= tolerance) & (rate <= 0))


def in_front(balls: Balls, gap: Float[Array, "planes *any"]) -> Bool[Array, "planes *any"]:
    """Which planes a body has not passed. A wall of one plane cannot be passed: overlap is rounding there."""
    alone = jnp.asarray([not companions for companions in balls.companions], bool)
    return alone.reshape((-1,) + (1,) * (gap.ndim - 1)) | (gap >= -1e-9)
