"""Long runs of the scheme: nothing sinks, nothing pulls, nothing pushes from a distance."""

import numpy as np
import pytest

from carom.systems import BouncingBall, NewtonsCradle
from tests.systems.closed_forms import start_state


@pytest.mark.parametrize("velocity_grid", ["sample", "half"])
@pytest.mark.parametrize("restitution", [1.0, 0.9, 0.5, 0.0])
def test_ball(restitution, velocity_grid):
    """g ≥ −h |v|max, and touch only where g < 0; the change of velocity in a touching step is upwards."""
    h = 0.02
    ball = BouncingBall(restitution=restitution)
    motion = ball.scheme(start_state([10.0], [0.0]), steps=5000, step_size=h, velocity_grid=velocity_grid)
    gap, velocity, touch = motion.position[:, 0, 0], motion.velocity[:, 0, 0], motion.contact[:, 0]
    assert gap.min() >= -h * np.abs(velocity).max()
    assert (gap[touch] < 0).all()
    if velocity_grid == "sample":
        # λ/m is what the velocity changed beyond gravity: zero in flight, positive in touch.
        push = np.diff(velocity) + h * ball.gravity
        assert (push[touch[1:]] > 0).all()
        np.testing.assert_allclose(push[~touch[1:]], 0, atol=1e-10)
        np.testing.assert_allclose(
            velocity[1:][touch[1:]], -restitution * velocity[:-1][touch[1:]], atol=1e-13
        )
    if restitution == 1:
        assert velocity[-1000:].max() > 10
        return
    # Once at rest: touch stays on without flicker, and the ball neither moves nor sinks.
    last_flight = np.flatnonzero(~touch)[-1]
    fall = np.sqrt(2 * 10 / ball.gravity)
    assert last_flight * h < fall * (1 + restitution) / (1 - restitution) + 2 * h
    np.testing.assert_allclose(velocity[-1000:], 0, atol=1e-13)
    np.testing.assert_allclose(gap[-1000:], gap[-1], rtol=1e-13)
    # It rests where an impact caught it: no deeper than one step of the last velocities.
    assert gap[last_flight + 50 :].min() >= (
        -h * ball.gravity * h if restitution else -h * np.abs(velocity).max()
    )


@pytest.mark.parametrize("balls", [2, 4])
@pytest.mark.parametrize("restitution", [1.0, 0.7])
def test_cradle(balls, restitution):
    """Over 2000 steps without projection; contacts of neighbours share balls here."""
    h = 0.01
    cradle = NewtonsCradle(balls=balls, restitution=restitution)
    motion = cradle.scheme(cradle.start, steps=2000, step_size=h, velocity_grid="sample")
    gap = -np.diff(motion.position[:, :, 0], axis=1)
    velocity = motion.velocity[:, :, 0]
    assert gap.min() >= -2 * h * np.abs(velocity).max()
    assert (gap[motion.contact] < 0).all()
    # Momentum beyond that of gravity, summed from the first ball on, is minus the impulse at each contact.
    torque = -cradle.gravity * np.sin(motion.position[1:, :, 0])
    beyond = np.diff(velocity, axis=0) - h * torque
    impulse = np.cumsum(beyond, axis=1)[:, :-1]
    assert (impulse[motion.contact[1:]] > 0).all()
    np.testing.assert_allclose(impulse[~motion.contact[1:]], 0, atol=1e-10)
    np.testing.assert_allclose(beyond.sum(axis=1), 0, atol=1e-10)
    # Newton's law where a contact acts alone on its balls.
    alone = motion.contact[1:].sum(axis=1) == 1
    step, contact = np.nonzero(motion.contact[1:] & alone[:, None])
    before = velocity[step, contact] - velocity[step, contact + 1]
    after = velocity[step + 1, contact] - velocity[step + 1, contact + 1]
    np.testing.assert_allclose(after, -restitution * before, atol=1e-12)


def test_touch_names_the_step_that_carried_the_impulse():
    """contact[n] is about (t_{n−1}, t_n]: the velocity at sample n is already the one after the impact."""
    motion = BouncingBall().scheme(
        start_state([10.0], [0.0]), steps=200, step_size=0.02, velocity_grid="sample"
    )
    (first,) = np.flatnonzero(motion.contact[:100, 0])
    assert motion.velocity[first - 1, 0, 0] < 0 < motion.velocity[first, 0, 0]
    exact = BouncingBall().exact(start_state([10.0], [0.0]), motion.time)
    (first,) = np.flatnonzero(exact.contact[:100, 0])
    assert exact.velocity[first - 1, 0, 0] < 0 < exact.velocity[first, 0, 0]
