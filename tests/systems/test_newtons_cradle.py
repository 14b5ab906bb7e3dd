"""The cradle: one pendulum's motion, handed from the first ball to the last."""

import numpy as np
import pytest

from carom.errors import InputError
from carom.systems import NewtonsCradle
from tests.systems.closed_forms import pendulum_from_bottom, start_state, time_between_bottoms

H = 0.01
TIMES = np.arange(541) * H
FREQUENCY = np.sqrt(9.81)


def handed_over(balls, speed, times):
    """The first ball above the bottom on one side, the last one on the other, the rest hanging still."""
    angle, rate = pendulum_from_bottom(speed, FREQUENCY, times)
    position, velocity = np.zeros((len(times), balls)), np.zeros((len(times), balls))
    first = angle > 0
    position[first, 0], velocity[first, 0] = angle[first], rate[first]
    position[~first, -1], velocity[~first, -1] = angle[~first], rate[~first]
    return position, velocity


@pytest.mark.parametrize("balls", [2, 3, 4, 5, 6])
def test_exact_is_one_pendulum_handed_over(balls):
    cradle = NewtonsCradle(balls=balls)
    motion = cradle.exact(cradle.start, TIMES)
    position, velocity = handed_over(balls, 2.0, TIMES[1:])
    np.testing.assert_allclose(motion.position[1:, :, 0], position, atol=1e-8)
    np.testing.assert_allclose(motion.velocity[1:, :, 0], velocity, atol=1e-7)
    np.testing.assert_allclose(cradle.energies(motion), 2.0, rtol=1e-9)
    # Every contact of the row carries the impulse of every passage, and only then.
    instants = time_between_bottoms(2.0, FREQUENCY) * np.arange(1, 6)
    expected = np.zeros((len(TIMES), balls - 1), bool)
    expected[np.ceil(instants / H).astype(int)] = True
    np.testing.assert_array_equal(motion.contact, expected)


def swings(motion):
    """Samples at which some ball is well away from the bottom, and which one it is."""
    speed = np.abs(motion.position[:, :, 0])
    away = speed.max(axis=1) > 0.3
    return speed.argmax(axis=1)[away], motion.velocity[away, :, 0], motion.position[away, :, 0]


@pytest.mark.parametrize("balls", [2, 3, 4, 5, 6])
def test_scheme_with_projection_passes_momentum_through(balls):
    """All motion is that of the first or the last ball, the others rest at exactly 0.

    In the scheme a ball overlaps its neighbour one step after it was hit itself, so the row takes
    `balls` − 1 steps; the last one leaves at 1.999 of the 2 rad/s.
    """
    cradle = NewtonsCradle(balls=balls)
    motion = cradle.scheme(cradle.start, steps=540, step_size=H, projection="reference_point")
    moving, velocity, position = swings(motion)
    assert set(moving) == {0, balls - 1}
    rows = np.arange(len(moving))
    still = np.ones_like(velocity, bool)
    still[rows, moving] = False
    assert (velocity[still] == 0).all()
    assert (position[still] == 0).all()
    first, last = np.flatnonzero(motion.contact[:, 0])[0], np.flatnonzero(motion.contact[:, -1])[0]
    assert last - first == balls - 2
    np.testing.assert_allclose(motion.velocity[last, :-1, 0], 0, atol=1e-15)
    np.testing.assert_allclose(motion.velocity[last, -1, 0], -2.0, rtol=2e-3)


@pytest.mark.parametrize("balls", [2, 3, 4, 5, 6])
def test_constraint_exact_passes_momentum_through(balls):
    """Within one step; the distance to the closed form is velocity Verlet's own, 3.4e-4 at h = 0.01."""
    cradle = NewtonsCradle(balls=balls)
    motion = cradle.constraint_exact(cradle.start, steps=540, step_size=H)
    exact = cradle.exact(cradle.start, TIMES)
    np.testing.assert_array_equal(motion.contact, exact.contact)
    np.testing.assert_allclose(motion.position, exact.position, atol=5e-4)
    np.testing.assert_allclose(motion.velocity, exact.velocity, atol=2e-3)
    idle = np.abs(motion.velocity[:, 1:-1])
    assert idle.max(initial=0) < 1e-9


def test_plastic_balls_swing_together():
    """e = 0: the first impact halves the speed and they stay together."""
    cradle = NewtonsCradle(restitution=0.0)
    times = np.arange(301) * H
    motion = cradle.exact(cradle.start, times)
    impact = time_between_bottoms(2.0, FREQUENCY)
    after = times > impact
    angle, _ = pendulum_from_bottom(1.0, FREQUENCY, times[after] - impact)
    for ball in range(2):
        np.testing.assert_allclose(motion.position[after, ball, 0], -angle, atol=1e-8)
    np.testing.assert_allclose(cradle.energies(motion)[after], 1.0, rtol=1e-8)


def test_inelastic_impact_splits_the_speed():
    """Just after the first impact: ((1 − e)/2, (1 + e)/2) of the incoming speed."""
    cradle = NewtonsCradle(restitution=0.6, length=2.0, mass=0.3)
    start = start_state([0.0, 0.0], [1.0, 0.0])
    impact = time_between_bottoms(1.0, np.sqrt(9.81 / 2))
    motion = cradle.exact(start, np.array([0.0, impact + 1e-9]))
    np.testing.assert_allclose(motion.velocity[-1, :, 0], [-0.2, -0.8], atol=1e-7)


def test_refusals():
    with pytest.raises(InputError, match="at least 2 balls"):
        NewtonsCradle(balls=1)
    with pytest.raises(InputError, match="no damping"):
        NewtonsCradle(damping=0.1)
