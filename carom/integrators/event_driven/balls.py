"""Balls among planes in a uniform field as arrays, many scenes at once, and their parabolic flight.

Between events a ball has a constant acceleration: that of the field in flight, what the planes leave of it
where the ball rests on them. Arrays have the layout (dimension, scenes, bodies), so that a scene's bodies lie
side by side in memory.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from carom.mechanics import length
from carom.types import PerBody

Components = Float[Array, "dimension scenes bodies"]
Scenes = Bool[Array, "scenes"]
Others = Int[Array, "scenes subjects others"]
"""Which bodies some bodies may meet."""


class Balls(eqx.Module):
    """K balls and what they may hit: each other, and solids bounded by planes.

    Every field but `solids` may carry derivatives. In one dimension the balls are listed from the greatest
    coordinate to the least, as they cannot pass each other.

    Arguments:
        masses: one per ball.
        radii: one per ball.
        normals: of all planes, each of length 1 and pointing to where balls may be.
        offsets: a ball of radius r touches a plane where n·q = offset + r.
        solids: the planes of every solid, by number. A ball is inside a solid where it is behind all of its
            planes: a wall is a solid of one plane, a step of stairs one of two.
        restitution: e of all impacts.
        friction: μ of all contacts.
        gravity: the acceleration of the field; None on a free table.
    """

    masses: PerBody
    radii: PerBody
    normals: Float[Array, "planes dimension"]
    offsets: Float[Array, "planes"]
    restitution: Float[Array, ""]
    friction: Float[Array, ""]
    gravity: Float[Array, "dimension"] | None
    solids: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def bodies(self) -> int:
        """K."""
        return len(self.masses)

    @property
    def planes(self) -> int:
        """Number of planes, those of all solids together."""
        return len(self.offsets)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Each plane with each other plane of its solid: it can be touched only behind all of them."""
        return tuple((one, end) for solid in self.solids for one in solid for end in solid if one != end)

    @property
    def field(self) -> Float[Array, "dimension"]:
        """The acceleration of a ball in flight."""
        still = jnp.zeros(self.normals.shape[1], self.normals.dtype)
        return still if self.gravity is None else self.gravity


class Flight(NamedTuple):
    """Positions of bodies and how they move on."""

    position: Components
    velocity: Components
    acceleration: Components | None
    """None on a free table, where nothing ever rests."""

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


def pick(
    values: Shaped[Array, "*leading scenes bodies"], bodies: Int[Array, "scenes *any"]
) -> Shaped[Array, "..."]:
    """values[..., scene, bodies[scene]]."""
    flat = bodies.reshape((1,) * (values.ndim - 2) + (len(bodies), -1))
    return jnp.take_along_axis(values, flat, axis=-1).reshape(*values.shape[:-2], *bodies.shape)


def of_others(values: Shaped[Array, "*leading scenes bodies"], others: Others | None) -> Shaped[Array, "..."]:
    """What the other body of every pair has, pairs by subject and other body; None for all other bodies."""
    return values[..., None, :] if others is None else pick(values, others)


def earliest(times: Float[Array, "*any"], axis: int) -> tuple[Float[Array, "*rest"], Int[Array, "*rest"]]:
    """The least of non-negative times along an axis, and its index."""
    if times.dtype != jnp.float64:
        which = jnp.argmin(times, axis=axis)
    else:
        # Positive numbers are ordered as their bits are. With the index in the last bits one plain minimum
        # finds both, several times faster than a reduction over pairs; times nearer than that count as equal.
        size = times.shape[axis]
        mask = (1 << max(size - 1, 1).bit_length()) - 1
        index = jnp.arange(size).reshape([-1 if a == axis % times.ndim else 1 for a in range(times.ndim)])
        bits = lax.bitcast_convert_type(times, jnp.int64)
        which = jnp.min((bits & ~mask) | index, axis=axis) & mask
    least = jnp.take_along_axis(times, jnp.expand_dims(which, axis), axis=axis)
    return jnp.squeeze(least, axis), which.astype(jnp.int32)


def dot(first: Float[Array, "dimension ..."], second: Float[Array, "dimension ..."]) -> Float[Array, "..."]:
    """The scalar product over the leading axis, which is too short for a reduction to pay."""
    total = first[0] * second[0]
    for one, other in zip(first[1:], second[1:], strict=True):
        total = total + one * other
    return total


def separation(
    difference: Float[Array, "dimension *any"], first: Int[Array, "..."], second: Int[Array, "..."]
) -> tuple[Float[Array, "dimension *any"], Float[Array, "*any"]]:
    """The unit vector from the second of two bodies to the first, and their distance.

    On a line the distance has a sign, as bodies cannot pass each other: the first in number is above.
    """
    if len(difference) == 1:
        side = jnp.where(first < second, 1, -1).astype(difference.dtype)
        return jnp.broadcast_to(side[None], difference.shape), side * difference[0]
    # Centres that coincide have no direction: the normal is 0 there instead of NaN.
    distance = length(difference, axis=0)
    return difference / jnp.where(distance > 0, distance, 1)[None], distance


def gap_tolerance(position: Float[Array, "dimension *any"]) -> Float[Array, "*any"]:
    """How far from 0 the gap of a contact may be that is closed to rounding."""
    return 64 * jnp.finfo(position.dtype).eps * (1 + jnp.max(jnp.abs(position), axis=0))


def plane_motion(balls: Balls, flight: Flight, radii: Float[Array, "..."]):
    """Gap of every plane to every subject, its rate and its acceleration, with a leading axis of planes."""
    shape = (balls.planes,) + (1,) * (flight.position.ndim - 1)

    def along(vector):
        components = (balls.normals[:, axis].reshape(shape) * x[None] for axis, x in enumerate(vector))
        return sum(components, start=jnp.zeros(shape, vector.dtype))

    gap = along(flight.position) - balls.offsets.reshape(shape) - radii[None]
    # Planes do not move, so rate and acceleration have no further terms.
    acceleration = jnp.zeros_like(gap) if flight.acceleration is None else along(flight.acceleration)
    return gap, along(flight.velocity), acceleration


def within_edge(gap, rate, tolerance):
    """Whether a body is over a plane that ends at another one: not where it is just passing that one."""
    return (gap < -tolerance) | ((gap <= tolerance) & (rate <= 0))


def in_front(balls: Balls, gap: Float[Array, "planes *any"]) -> Bool[Array, "planes *any"]:
    """Which planes a body has not passed. A wall of one plane cannot be passed: overlap is rounding there."""
    bounded = {plane for plane, _ in balls.edges}
    alone = jnp.asarray([plane not in bounded for plane in range(balls.planes)], bool)
    return alone.reshape((-1,) + (1,) * (gap.ndim - 1)) | (gap >= -1e-9)
