"""The random order of the windows of an epoch, when their number is known only as the program runs."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

EXPONENT = 3
"""JAX sorts as often as makes all keys different but for a chance of this power of one over the number."""


def sorts(count: int) -> int:
    """How often `jax.random.permutation` sorts so many numbers."""
    return int(np.ceil(EXPONENT * np.log(max(1, count)) / np.log(np.iinfo(np.uint32).max)))


def shuffled(
    key: Key[Array, ""], count: Int[Array, ""] | int, *, length: int, sorts: int
) -> Int[Array, "length"]:
    """The numbers below `count` in the order of `jax.random.permutation(key, count)`, then the others.

    JAX sorts the numbers by random keys, and draws for each place a key that does not depend on how many
    places there are. Keys behind `count` are the greatest, and the sort is stable: what lies there stays.

    Example:
        >>> key = jax.random.key(0)
        >>> order = shuffled(key, 5, length=8, sorts=sorts(5))
        >>> bool((order[:5] == jax.random.permutation(key, 5)).all()), order[5:].tolist()
        (True, [5, 6, 7])
    """
    places = jnp.arange(length, dtype=jnp.int32)
    order = places
    for _ in range(sorts):
        key, drawn = jax.random.split(key)
        bits = jax.random.bits(drawn, (length,), jnp.uint32)
        greatest = jnp.asarray(np.iinfo(np.uint32).max, jnp.uint32)
        _, order = jax.lax.sort_key_val(jnp.where(places < count, bits, greatest), order)
    return order


def minibatch(
    order: Int[Array, "length"], number: Int[Array, ""] | int, count: Int[Array, ""] | int, *, size: int
) -> tuple[Int[Array, "size"], Bool[Array, "size"]]:
    """One batch of an order, and which of it counts: the last is filled up with window 0."""
    places = number * size + jnp.arange(size, dtype=jnp.int32)
    counts = places < count
    return jnp.where(counts, order[jnp.minimum(places, len(order) - 1)], 0), counts
