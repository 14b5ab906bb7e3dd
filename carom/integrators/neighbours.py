"""Which bodies are near enough to meet: sort and sweep, with memory for the neighbours only."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.flights import Components, dot


def neighbour_lists(
    position: Components, radii: Float[Array, "bodies"], margin: Float[Array, "scenes"], *, capacity: int
) -> tuple[Int[Array, "scenes bodies capacity"], Bool[Array, "scenes"]]:
    """For every body those whose gap to it is at most `margin`, and which scenes have too many for a list.

    Bodies are sorted along the first axis; then each is compared with the next one in that order, with the
    next but one, and so on, until no two are near along that axis. Places that stay free name the body itself.
    """
    scenes, bodies = position.shape[1:]
    order = jnp.argsort(position[0], axis=1).astype(jnp.int32)
    place = jnp.take_along_axis(position, order[None], axis=2)
    radius = radii[order]
    widest = 2 * jnp.max(radii) + margin[:, None]
    scene = jnp.arange(scenes, dtype=jnp.int32)[:, None]
    rank = jnp.arange(bodies, dtype=jnp.int32)

    def compare(carry):
        shift, lists, counts, _ = carry
        later = jnp.minimum(rank + shift, bodies - 1)
        within = (rank + shift < bodies)[None]
        apart = place[:, :, later] - place
        close = within & (apart[0] <= widest)
        reach = radius + radius[:, later] + margin[:, None]
        near = close & (dot(apart, apart) <= reach**2)
        for one, other in ((order, order[:, later]), (order[:, later], order)):
            count = jnp.take_along_axis(counts, one, axis=1)
            # What does not belong on the list, or does not fit, goes past its end.
            slot = jnp.where(near, count, capacity)
            lists = lists.at[scene, one, slot].set(other, mode="drop")
            counts = counts.at[scene, one].add(near.astype(jnp.int32))
        return shift + 1, lists, counts, jnp.any(close)

    def overlapping(carry):
        return (carry[0] < bodies) & carry[-1]

    themselves = jnp.broadcast_to(rank[None, :, None], (scenes, bodies, capacity))
    start = jnp.ones((), jnp.int32), themselves, jnp.zeros((scenes, bodies), jnp.int32), jnp.ones((), bool)
    _, lists, counts, _ = lax.while_loop(overlapping, compare, start)
    return lists, jnp.any(counts > capacity, axis=1)
