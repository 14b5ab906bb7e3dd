"""The task shared with torchdiffeq: both take the same gradient steps, and these lead to the truth."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import event_gradients as peer
from carom.systems import BouncingBall
from carom.types import State


@pytest.fixture(scope="module")
def heights():
    ball = BouncingBall(gravity=float(peer.TRUE[0]), restitution=float(peer.TRUE[1]))
    start = State(jnp.full((1, 1), peer.HEIGHT), jnp.zeros((1, 1)))
    return ball.exact(start, np.arange(peer.SAMPLES + 1) * peer.STEP_SIZE).position[1:, 0, 0]


@pytest.fixture(scope="module")
def course(heights):
    """The parameters after every step."""
    step, parameters = peer.our_learner(heights), [peer.GUESS]
    while len(parameters) < 150:
        parameters.append(step(parameters[-1]))
    return np.array(parameters)


def test_gravity_and_restitution_are_learned(course):
    np.testing.assert_allclose(course[-1], peer.TRUE, rtol=1e-3)


def test_torchdiffeq_takes_the_same_steps(heights, course):
    if peer.missing():
        pytest.skip(f"{' and '.join(peer.missing())} is not installed (extra bench)")
    step, parameters = peer.their_learner(heights), peer.GUESS
    for expected in course[1:6]:
        parameters = step(parameters)
        np.testing.assert_allclose(parameters, expected, rtol=1e-6)
