"""Real contacts: the ideal system is a limit, and every imperfection has the size that it states."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from carom.systems import BallBox, BentBall, Billiards, BouncingBall, Laboratory, NewtonsCradle
from carom.types import State

TIMES = np.linspace(0, 3, 151)


@pytest.mark.parametrize(
    "ideal",
    [
        BouncingBall(restitution=0.8),
        BentBall(restitution=0.9),
        NewtonsCradle(balls=3, restitution=0.9),
        NewtonsCradle(balls=5, restitution=1.0),
        Billiards(size=(1.0, 0.6), radii=(0.05, 0.05), ball_masses=(1.0, 2.0), restitution=0.9, friction=0.1),
    ],
)
def test_without_imperfections_it_is_the_ideal_system(ideal):
    start = ideal.random_start(seed=3) if isinstance(ideal, Billiards) else ideal.start
    motion, hits = Laboratory(ideal).motion(start, TIMES)
    exact = ideal.exact(start, TIMES)
    np.testing.assert_allclose(motion.position, exact.position, atol=1e-8)
    assert motion.contact[exact.contact].all()
    assert len(hits) >= exact.contact.any(axis=1).sum()


def test_a_ball_with_friction_comes_to_rest():
    box = BallBox(size=(2.0, 3.0), radii=(0.1,), friction=0.2, restitution=0.6)
    start = box.random_start(seed=2, speed=2.0)
    motion = Laboratory(box).exact(start, np.linspace(0, 5, 51))
    assert np.abs(motion.velocity[-1]).max() < 1e-3
    assert motion.position[-1, 0, 1] == pytest.approx(0.1, abs=1e-6)


def test_a_ball_at_rest_that_is_struck_leaves_the_floor():
    """A smaller ball runs against one at rest and lifts it, which then falls freely."""
    box = BallBox(size=(20.0, 3.0), radii=(0.2, 0.1), ball_masses=(1.0, 5.0), restitution=0.9)
    start = State(jnp.array([[10.0, 0.2], [9.0, 0.1]]), jnp.array([[0.0, 0.0], [4.0, 0.0]]))
    times = np.linspace(0, 1, 1001)
    motion = Laboratory(box).exact(start, times)
    hit = np.argmax(motion.velocity[:, 0, 1] > 0.1)
    flight = slice(hit, hit + np.argmax(motion.velocity[hit:, 0, 1] < -0.1))
    fallen = np.diff(motion.velocity[flight, 0, 1])
    assert len(fallen) > 100
    np.testing.assert_allclose(fallen, -9.81 * 0.001, atol=1e-8)
    assert motion.position[:, 0, 1].min() > 0.2 - 1e-9


def test_a_contact_lasts_and_keeps_its_restitution():
    """It begins at the rate −u and ends after τ at e u; between, the ball is behind the surface."""
    ball, time = BouncingBall(restitution=0.7), 0.02
    begin = np.sqrt(2 * 10 / 9.81)
    times = np.array([0.0, begin, begin + time / 2, begin + time, begin + time + 0.1])
    motion, hits = Laboratory(ball, contact_time=time).motion(ball.start, times)
    assert hits[0].time == pytest.approx(begin)
    assert motion.position[2, 0, 0] < -0.01
    assert motion.position[3, 0, 0] == pytest.approx(0, abs=1e-7)
    assert motion.velocity[3, 0, 0] == pytest.approx(0.7 * hits[0].speed, rel=1e-6)


def test_momentum_is_conserved_during_a_contact_that_lasts():
    table = Billiards(size=(10.0, 10.0), radii=(0.1, 0.1), ball_masses=(1.0, 3.0), friction=0.2)
    start = State(jnp.array([[5.0, 5.0], [5.5, 5.05]]), jnp.array([[1.0, 0.3], [0.0, 0.0]]))
    motion, hits = Laboratory(table, contact_time=0.05).motion(start, TIMES)
    momentum = np.einsum("k,skd->sd", np.array([1.0, 3.0]), motion.velocity)
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-8)
    assert len(hits) == 1


def test_restitution_falls_with_speed_and_scatters():
    ball = Laboratory(BouncingBall(restitution=0.9), restitution_loss=0.02, scatter=0.05, seed=1)
    starts = [State(jnp.full((1, 1), h), jnp.zeros((1, 1))) for h in np.linspace(2.0, 8.0, 30)]
    hits = [hit for start in starts for hit in ball.motion(start, np.linspace(0, 3, 4))[1]]
    ratio = np.array([hit.restitution / ball.mean_restitution(hit.speed) for hit in hits])
    assert ratio.mean() == pytest.approx(1, abs=0.02)
    assert ratio.std() == pytest.approx(0.05, rel=0.4)
    assert ball.mean_restitution(10.0) == pytest.approx(0.7)
    assert ball.motion(starts[0], TIMES)[1] == ball.motion(starts[0], TIMES)[1]
    assert replace(ball, seed=2).motion(starts[0], TIMES)[1] != ball.motion(starts[0], TIMES)[1]


def test_drag_approaches_the_terminal_speed():
    """v = √(g/k) tanh(√(g k) t) from rest."""
    ball = BouncingBall(gravity=9.81)
    start = State(jnp.full((1, 1), 100.0), jnp.zeros((1, 1)))
    motion = Laboratory(ball, drag=0.1).exact(start, TIMES)
    np.testing.assert_allclose(
        motion.velocity[:, 0, 0], -np.sqrt(98.1) * np.tanh(np.sqrt(0.981) * TIMES), atol=1e-7
    )
