"""Windows of a recording, and their random order where their number is an input of the compiled program."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.models import ResNet
from carom.training import TrainingSettings
from carom.training.windows import minibatch, recorded_windows, shuffled, sort_rounds


@pytest.mark.parametrize("count", [1, 2, 63, 64, 70, 1000, 1624, 1626, 2048, 3000])
def test_the_order_is_that_of_jax(count):
    """Published numbers rest on it; 1625 is where JAX begins to sort twice."""
    length = max(64, 1 << (count - 1).bit_length())
    program = jax.jit(partial(shuffled, length=length, rounds=sort_rounds(count)))
    for seed in range(3):
        key = jax.random.key(seed)
        order = program(key, count)
        np.testing.assert_array_equal(order[:count], jax.random.permutation(key, count))
        np.testing.assert_array_equal(order[count:], np.arange(count, length))


@pytest.mark.parametrize(("count", "size"), [(70, 32), (64, 32), (5, 32), (70, 30), (70, 128)])
def test_minibatches_visit_every_window_once(count, size):
    order = shuffled(jax.random.key(0), count, length=128, rounds=sort_rounds(count))
    seen: list[int] = []
    for number in range(-(-count // size)):
        index, counts = minibatch(order, jnp.asarray(number), jnp.asarray(count), size=size)
        assert index.shape == counts.shape == (size,)
        assert (np.asarray(index) < count).all()
        seen += np.asarray(index)[np.asarray(counts)].tolist()
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize(("horizon", "stride"), [(10, 1), (7, 3), (10, 11)])
def test_windows_cover_every_run_and_span_none(ball, horizon, stride):
    """Samples gathered on the device are those of the runs, whatever is padded behind them."""
    model = ResNet.for_recording(ball, hidden=4, key=jax.random.key(0))
    windows, count = recorded_windows(model, ball, TrainingSettings(horizon=horizon, stride=stride))
    expected = [
        (run, slice(first, first + horizon + 1))
        for run in ball.runs
        for first in range(0, len(run) - horizon, stride)
    ]
    assert count == len(expected)
    batch = windows.batch(jnp.arange(count), horizon)
    for name in batch._fields:
        values = getattr(batch, name)
        by_hand = np.stack([getattr(run, name)[samples] for run, samples in expected])
        np.testing.assert_array_equal(values, by_hand.astype(values.dtype))
