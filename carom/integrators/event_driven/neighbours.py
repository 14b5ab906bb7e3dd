"""Which bodies are near enough to meet: sort and sweep, with memory for the neighbours only."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from carom.integrators.event_driven.balls import Components, Flight, Others, Scenes, dot


class NeighbourLists(NamedTuple):
    """The neighbours of every body, valid until two bodies may have approached each other by the margin."""

    others: Others
    margin: Float[Array, "scenes"]
    travelled: Float[Array, "scenes"]
    """The farthest that any body can have moved since the lists were made."""

    def after(self, flight: Flight, elapsed: Float[Array, "scenes"]) -> "NeighbourLists":
        """The same lists that much later; the flight is that before."""
        return self._replace(travelled=self.travelled + elapsed * greatest_speed(flight, elapsed))

    def expiry(self, flight: Flight, clock, limit) -> Float[Array, "scenes"]:
        """When they expire if no body gains speed by an impact, at most the limit."""
        clock = lax.stop_gradient(clock)
        speed = greatest_speed(flight, limit - clock)
        # Two bodies approach each other with at most twice the greatest speed.
        left = (0.5 * self.margin - self.travelled) / jnp.where(speed > 0, speed, 1)
        return jnp.where(speed > 0, jnp.minimum(clock + left, limit), limit)


def greatest_speed(flight: Flight, duration: Float[Array, "scenes"]) -> Float[Array, "scenes"]:
    """A bound on the speeds of all bodies of a scene in free flight of that duration."""
    flight, duration = lax.stop_gradient((flight, duration))
    speed = jnp.sqrt(dot(flight.velocity, flight.velocity))
    if flight.acceleration is not None:
        # By the triangle inequality: gravity may not point along the velocity.
        speed = speed + duration[:, None] * jnp.sqrt(dot(flight.acceleration, flight.acceleration))
    return jnp.max(speed, axis=1)


def neighbour_lists(
    position: Components, radii: Float[Array, "bodies"], margin: Float[Array, "scenes"], *, capacity: int
) -> tuple[Int[Array, "scenes bodies capacity"], Scenes]:
    """For every body those whose gap to it is at most `margin`, and which scenes have too many for a list.

    Bodies are sorted along the first axis; then each is compared with the next one in that order, with the
    next but one, and so on, until no two are near along that axis. Unused entries name the body itself.
    """
    scenes, bodies = position.shape[1:]
    # One axis is enough: a grid of cells would need a bound on the bodies of each.
    order = jnp.argsort(position[0], axis=1).astype(jnp.int32)
    sorted_position = jnp.take_along_axis(position, order[None], axis=2)
    radius = radii[order]
    widest = 2 * jnp.max(radii) + margin[:, None]
    scene = jnp.arange(scenes, dtype=jnp.int32)[:, None]
    rank = jnp.arange(bodies, dtype=jnp.int32)

    def compare(carry):
        shift, lists, counts, _ = carry
        later = jnp.minimum(rank + shift, bodies - 1)
        difference = sorted_position[:, :, later] - sorted_position
        close = (rank + shift < bodies)[None] & (difference[0] <= widest)
        reach = radius + radius[:, later] + margin[:, None]
        near = close & (dot(difference, difference) <= reach**2)
        for one, other in ((order, order[:, later]), (order[:, later], order)):
            # What does not belong on the list, or does not fit, is written past its end and dropped.
            slot = jnp.where(near, jnp.take_along_axis(counts, one, axis=1), capacity)
            lists = lists.at[scene, one, slot].set(other, mode="drop")
            counts = counts.at[scene, one].add(near.astype(jnp.int32))
        return shift + 1, lists, counts, jnp.any(close)

    def overlapping(carry):
        return (carry[0] < bodies) & carry[-1]

    themselves = jnp.broadcast_to(rank[None, :, None], (scenes, bodies, capacity))
    start = jnp.ones((), jnp.int32), themselves, jnp.zeros((scenes, bodies), jnp.int32), jnp.ones((), bool)
    _, lists, counts, _ = lax.while_loop(overlapping, compare, start)
    return lists, jnp.any(counts > capacity, axis=1)
