"""Derivatives through an impact: the saltation matrix, written by hand.

For a flow ẏ = F(y) with an impact y ↦ R(y) where g(y) = 0, the derivative across the impact is
Ξ = DR + (F⁺ − DR F⁻) ∇g / (∇g · F⁻): the impact comes earlier or later for a neighbour.
"""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.integrators.impact_problems import (
    GRAVITY,
    ball_derivative,
    ball_step,
    central_difference,
    pair_derivative,
    pair_step,
)

seeds = st.integers(0, 2**32 - 1)
H = 0.1


def saltation(reset, flow_before, flow_after, gradient):
    return reset + np.outer(flow_after - reset @ flow_before, gradient) / (gradient @ flow_before)


def free_fall(time, bodies):
    """∂(q, v)(t)/∂(q, v)(0) under constant forces."""
    unit = np.eye(bodies)
    return np.block([[unit, time * unit], [np.zeros((bodies, bodies)), unit]])


@settings(max_examples=60)
@given(seed=seeds)
def test_ball(seed):
    """A ball that reaches the floor within the step; the next bounce lies beyond its end."""
    random = np.random.default_rng(seed)
    e, impact = random.uniform(), random.uniform(0.05, 0.95) * H
    before = random.uniform(-5, -0.5)  # speed just before the impact
    assume(2 * e * -before / GRAVITY > H - impact + 1e-3)
    v = before + GRAVITY * impact
    y = np.array([-(v * impact - 0.5 * GRAVITY * impact**2), v])
    after = -e * before
    jump = saltation(
        np.diag([1.0, -e]), np.array([before, -GRAVITY]), np.array([after, -GRAVITY]), np.array([1.0, 0.0])
    )
    # The closed form of the same matrix for a ball.
    np.testing.assert_allclose(jump, [[-e, 0], [-(1 + e) * GRAVITY / before, -e]], atol=1e-12)
    expected = free_fall(H - impact, 1) @ jump @ free_fall(impact, 1)

    reached, report = ball_step(y, H, e)
    rest = H - impact
    np.testing.assert_allclose(
        reached, [after * rest - 0.5 * GRAVITY * rest**2, after - GRAVITY * rest], atol=1e-12
    )
    assert report.contact.all()
    assert not report.grazing
    np.testing.assert_allclose(ball_derivative(y, H, e), expected, atol=1e-9)
    np.testing.assert_allclose(
        central_difference(lambda y: ball_step(y, H, e)[0], y), expected, rtol=1e-4, atol=1e-5
    )


def random_pair(random):
    """Two masses under constant forces that meet at a time inside the step, built backwards from there."""
    masses, e = random.uniform(0.3, 3, 2), random.uniform()
    forces = random.normal(size=2)
    impact = random.uniform(0.1, 0.9) * H
    meeting, speed = random.normal(), random.normal(size=2)
    speed[1] = speed[0] + random.uniform(0.5, 3)  # the second, lower ball is the faster one
    acceleration = forces / masses
    start = speed - acceleration * impact
    position = meeting - start * impact - 0.5 * acceleration * impact**2
    return masses, e, forces, impact, speed, np.concatenate([position, start])


@settings(max_examples=60)
@given(seed=seeds)
def test_pair_under_constant_forces(seed):
    random = np.random.default_rng(seed)
    masses, e, forces, impact, speed, y = random_pair(random)
    acceleration = forces / masses
    row = np.array([1.0, -1.0])
    # One impact only: the forces must not bring the balls together again.
    assume(e * (speed[1] - speed[0]) + (acceleration[0] - acceleration[1]) * (H - impact) > 0.05)
    exchange = np.eye(2) - (1 + e) * np.outer(row / masses, row) / (row @ (row / masses))
    reset = np.block([[np.eye(2), np.zeros((2, 2))], [np.zeros((2, 2)), exchange]])
    jump = saltation(
        reset,
        np.concatenate([speed, acceleration]),
        np.concatenate([exchange @ speed, acceleration]),
        np.concatenate([row, np.zeros(2)]),
    )
    expected = free_fall(H - impact, 2) @ jump @ free_fall(impact, 2)
    arguments = (masses, forces, np.zeros(2))
    np.testing.assert_allclose(pair_derivative(y, H, e, *arguments), expected, atol=1e-9)
    np.testing.assert_allclose(
        central_difference(lambda y: pair_step(y, H, e, *arguments)[0], y), expected, rtol=1e-4, atol=1e-5
    )


@settings(max_examples=40)
@given(seed=seeds)
def test_pair_under_nonlinear_forces(seed):
    """No closed form here: the derivative is that of the step as it is computed."""
    random = np.random.default_rng(seed)
    masses, e, forces, _, speed, y = random_pair(random)
    arguments = (H, e, masses, forces, random.uniform(0, 1, 2))
    reached, report = pair_step(y, *arguments)
    # An impact that no neighbour misses, after which the balls are clearly apart.
    shifted = [pair_step(y + 1e-4 * d, *arguments)[1].contact[0] for d in [*np.eye(4), *-np.eye(4)]]
    assume(report.contact[0] and all(shifted) and reached[0] - reached[1] > 1e-3)
    assume(reached[2] - reached[3] > 0.5 * e * (speed[1] - speed[0]))
    np.testing.assert_allclose(
        pair_derivative(y, *arguments),
        central_difference(lambda y: pair_step(y, *arguments)[0], y),
        rtol=1e-4,
        atol=1e-5,
    )
