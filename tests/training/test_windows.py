"""Random orders of a number of windows that the program does not know when it is compiled."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.training.minibatches import minibatch, shuffled, sorts


@pytest.mark.parametrize("count", [1, 2, 63, 64, 70, 1000, 1624, 1626, 2048, 3000])
def test_the_order_is_that_of_jax(count):
    """Published numbers rest on it; 1625 is where JAX begins to sort twice."""
    length = max(64, 1 << (count - 1).bit_length())
    program = jax.jit(partial(shuffled, length=length, sorts=sorts(count)))
    for seed in range(3):
        key = jax.random.key(seed)
        order = program(key, count)
        np.testing.assert_array_equal(order[:count], jax.random.permutation(key, count))
        np.testing.assert_array_equal(order[count:], np.arange(count, length))


@pytest.mark.parametrize(("count", "size"), [(70, 32), (64, 32), (5, 32), (70, 30), (70, 128)])
def test_minibatches_visit_every_window_once(count, size):
    order = shuffled(jax.random.key(0), count, length=128, sorts=sorts(count))
    seen: list[int] = []
    for number in range(-(-count // size)):
        index, counts = minibatch(order, jnp.asarray(number), jnp.asarray(count), size=size)
        assert index.shape == counts.shape == (size,)
        assert (np.asarray(index) < count).all()
        seen += np.asarray(index)[np.asarray(counts)].tolist()
    assert sorted(seen) == list(range(count))
