"""The ball's bounces in closed form, for the exact and the constraint-exact truth."""

import numpy as np
import pytest

from carom.systems import BouncingBall
from tests.systems.closed_forms import bounces, start_state

GRAVITY, HEIGHT = 9.81, 10.0


@pytest.mark.parametrize("restitution", [1.0, 0.9, 0.5])
def test_impacts_at_their_instants(restitution):
    """t₀ = √(2h/g), then flights of 2 eᵏ √(2h/g); touch marks the first sample at or after each."""
    ball = BouncingBall(restitution=restitution)
    times = np.arange(501) * 0.02
    motion = ball.exact(start_state([HEIGHT], [0.0]), times)
    instants, _ = bounces(HEIGHT, GRAVITY, restitution, 12)
    np.testing.assert_allclose(instants[0], np.sqrt(2 * HEIGHT / GRAVITY))
    expected = np.ceil(instants[instants < 4.0] / 0.02).astype(int)
    touched = np.flatnonzero(motion.contact[: int(4.0 / 0.02) + 1, 0])
    np.testing.assert_array_equal(touched, np.unique(expected))


@pytest.mark.parametrize(("restitution", "radius"), [(1.0, 0.0), (0.9, 0.01), (0.5, 0.3)])
def test_parabolas_between_impacts(restitution, radius):
    """Heights fall by e² per bounce, and every sample lies on its parabola."""
    ball = BouncingBall(restitution=restitution, radius=radius, mass=3.0)
    times = np.linspace(0, 4, 2001)
    motion = ball.exact(start_state([HEIGHT + radius], [0.0]), times)
    instants, speeds = bounces(HEIGHT, GRAVITY, restitution, 5)
    fall = times < instants[0]
    np.testing.assert_allclose(
        motion.position[fall, 0, 0], radius + HEIGHT - 0.5 * GRAVITY * times[fall] ** 2
    )
    for bounce in range(4):
        flight = (times >= instants[bounce]) & (times < instants[bounce + 1])
        if not flight.any():
            continue
        since = times[flight] - instants[bounce]
        height = radius + speeds[bounce] * since - 0.5 * GRAVITY * since**2
        np.testing.assert_allclose(motion.position[flight, 0, 0], height, atol=1e-11)
        np.testing.assert_allclose(
            motion.velocity[flight, 0, 0], speeds[bounce] - GRAVITY * since, atol=1e-11
        )
        apex = radius + speeds[bounce] ** 2 / (2 * GRAVITY)
        np.testing.assert_allclose(apex - radius, HEIGHT * restitution ** (2 * (bounce + 1)), rtol=1e-12)
        energy = 3.0 * GRAVITY * apex
        np.testing.assert_allclose(ball.energies(motion)[flight], energy, rtol=1e-11)


def test_rest_instant():
    """All bounces are over after √(2h/g) (1 + e)/(1 − e); from there on nothing changes."""
    ball = BouncingBall(restitution=0.6, radius=0.05)
    rest = np.sqrt(2 * HEIGHT / GRAVITY) * 1.6 / 0.4
    times = np.concatenate([[0.0], rest + np.array([-1e-3, -1e-6, 1e-6, 1e-3, 1.0, 100.0])])
    motion = ball.exact(start_state([HEIGHT + 0.05], [0.0]), times)
    assert motion.velocity[1, 0, 0] != 0
    np.testing.assert_array_equal(motion.position[3:, 0, 0], 0.05)
    np.testing.assert_array_equal(motion.velocity[3:, 0, 0], 0.0)
    assert motion.contact[3:].all()


@pytest.mark.parametrize("restitution", [1.0, 0.5, 0.0])
def test_a_ball_laid_on_the_floor_stays(restitution):
    motion = BouncingBall(restitution=restitution).exact(start_state([0.0], [0.0]), np.linspace(0, 1, 11))
    np.testing.assert_array_equal(motion.position, 0.0)
    np.testing.assert_array_equal(motion.velocity, 0.0)
    assert motion.contact.all()


def test_thrown_upwards_and_downwards():
    times = np.arange(201) * 0.01
    for speed in (3.0, -3.0):
        motion = BouncingBall().exact(start_state([2.0], [speed]), times)
        impact = (speed + np.sqrt(speed**2 + 2 * GRAVITY * 2.0)) / GRAVITY
        assert np.flatnonzero(motion.contact[:, 0])[0] == np.ceil(impact / 0.01)


@pytest.mark.parametrize(
    ("restitution", "tolerance"), [(1.0, 1e-10), (0.5, 1e-12), (0.0, 1e-12), (0.9, 3e-6)]
)
def test_constraint_exact_is_the_closed_form(restitution, tolerance):
    """Constant gravity makes velocity Verlet exact, so all that could differ is the impacts; through rest.

    Measured: 6e-12 for e = 1 after 14 impacts, 3e-14 for e = ½, 2e-14 for e = 0. With e = 0.9 the ball makes
    more than the eight bounces allowed in one step just before its rest: it then rests 1.1e-6 too early.
    """
    ball, start = BouncingBall(restitution=restitution), start_state([HEIGHT], [0.0])
    exact = ball.exact(start, np.arange(2001) * 0.02)
    stepped = ball.constraint_exact(start, steps=2000, step_size=0.02)
    np.testing.assert_allclose(stepped.position, exact.position, atol=tolerance)
    np.testing.assert_allclose(stepped.velocity, exact.velocity, atol=max(tolerance, 1e-10) * 150)
    np.testing.assert_array_equal(stepped.contact, exact.contact)
