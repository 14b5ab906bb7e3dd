"""Motions of balls that are known in closed form: bounces to rest, chains, friction, stacks and edges."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from carom.integrators.event_driven.balls import Balls
from carom.types import State
from tests.campaign import shortened
from tests.integrators.ball_scenes import motion

G = 9.81


def floor(dimension, *, restitution, friction=0.0, slope=0.0, gravity=G, radius=0.0) -> Balls:
    """One ball over a plane through the origin that rises by `slope` radians along the first axis."""
    normal = np.zeros(dimension)
    normal[0], normal[-1] = -np.sin(slope), np.cos(slope)
    field = np.zeros(dimension)
    field[-1] = -gravity
    return Balls(
        jnp.array([2.0]),
        jnp.array([radius]),
        jnp.asarray(normal)[None],
        jnp.zeros(1),
        jnp.array(restitution),
        jnp.array(friction),
        jnp.asarray(field),
        ((0,),),
    )


def one_ball(position, velocity) -> State:
    return State(jnp.asarray(position)[None, None], jnp.asarray(velocity)[None, None])


@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.9])
def test_a_bouncing_ball_comes_to_rest_at_the_right_instant(restitution):
    """√(2h/g) (1 + e)/(1 − e): before that it bounces as it should, after it lies still."""
    balls = floor(2, restitution=restitution)
    fall = np.sqrt(2 / G)
    rest = fall * (1 + restitution) / (1 - restitution)
    start = one_ball([0.0, 1.0], [0.0, 0.0])
    # Samples up to shortly before, at and after that instant.
    times = rest * np.array([0.2, 0.5, 0.9, 0.99, 0.999, 1.0 + 1e-6, 1.1, 2.0])
    states, report = motion(balls, start, jnp.asarray(np.diff(times, prepend=0.0)), max_impacts=1000)
    for index, time in enumerate(times):
        height, speed = bounce(time, restitution, fall, rest)
        np.testing.assert_allclose(states.position[index, 0, 0, 1], height, atol=1e-9)
        np.testing.assert_allclose(states.velocity[index, 0, 0, 1], speed, atol=1e-7)
    np.testing.assert_array_equal(states.velocity[-2:], 0)
    assert report.contact[-1].any(axis=-1).all()
    assert not report.exhausted.any()


def bounce(time, restitution, fall, rest):
    if time < fall:
        return 1 - 0.5 * G * time**2, -G * time
    speed, now = np.sqrt(2 * G), fall
    while time < rest:
        speed *= restitution
        if time < now + 2 * speed / G:
            return speed * (time - now) - 0.5 * G * (time - now) ** 2, speed - G * (time - now)
        now += 2 * speed / G
    return 0.0, 0.0


@pytest.mark.parametrize("friction", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("restitution", [1.0, 0.6])
def test_oblique_hit_on_a_rough_wall(restitution, friction):
    """Δv_t = −min(μ (1 + e) |u|, |v_t|) along the slip, in any direction of the plane."""
    balls = floor(3, restitution=restitution, friction=friction, gravity=0.0)
    before = np.array([1.2, -0.5, -2.0])
    states, report = motion(balls, one_ball([0.1, 0.2, 1.0], before), jnp.array([0.5, 0.5]))
    slip = before[:2]
    lost = min(friction * (1 + restitution) * 2.0, np.linalg.norm(slip))
    after = np.concatenate([slip * (1 - lost / np.linalg.norm(slip)), [2.0 * restitution]])
    meeting = np.array([0.1, 0.2, 1.0]) + 0.5 * before
    np.testing.assert_allclose(states.velocity[1, 0, 0], after, atol=1e-14)
    np.testing.assert_allclose(states.position[1, 0, 0], meeting + 0.5 * after, atol=1e-14)
    assert report.contact.any()


def test_a_sliding_ball_stops_where_it_should():
    """v²/(2 μ g) far and v/(μ g) later."""
    balls = floor(2, restitution=0.0, friction=0.3)
    times = np.array([0.2, 0.5, 2.0])
    states, _ = motion(balls, one_ball([0.0, 0.0], [1.5, 0.0]), jnp.asarray(np.diff(times, prepend=0.0)))
    stop = 1.5 / (0.3 * G)
    sliding = np.minimum(times, stop)
    np.testing.assert_allclose(states.position[:, 0, 0, 0], 1.5 * sliding - 0.15 * G * sliding**2, atol=1e-14)
    np.testing.assert_allclose(states.position[:, 0, 0, 1], 0, atol=1e-15)
    np.testing.assert_array_equal(states.velocity[-1], 0)


@pytest.mark.parametrize(("friction", "holds"), shortened([(0.2, False), (0.5, True)], [(0.5, True)]))
def test_a_ball_on_a_slope_stays_or_slides(friction, holds):
    """tan 20° = 0.364: below that it slides down with g (sin α − μ cos α)."""
    slope = np.radians(20)
    balls = floor(2, restitution=0.0, friction=friction, slope=slope)
    states, _ = motion(balls, one_ball([0.0, 0.0], [0.0, 0.0]), jnp.full(3, 0.4))
    down = -np.array([np.cos(slope), np.sin(slope)])
    pull = 0.0 if holds else G * (np.sin(slope) - friction * np.cos(slope))
    expected = 0.5 * pull * (0.4 * np.arange(1, 4)) ** 2
    np.testing.assert_allclose(states.position[:, 0, 0] @ down, expected, atol=1e-13)
    np.testing.assert_allclose(states.position[:, 0, 0] @ np.array([-down[1], down[0]]), 0, atol=1e-13)


def test_a_ball_sliding_uphill_turns_around_or_sticks():
    """It stops after v/(g (sin α + μ cos α)), and starts down again only if friction cannot hold it."""
    slope = np.radians(20)
    up = np.array([np.cos(slope), np.sin(slope)])
    for friction in (0.2, 0.5):
        balls = floor(2, restitution=0.0, friction=friction, slope=slope)
        states, _ = motion(balls, one_ball([0.0, 0.0], 2.0 * up), jnp.array([1.0]))
        slowing = G * (np.sin(slope) + friction * np.cos(slope))
        stop, reached = 2.0 / slowing, 2.0**2 / (2 * slowing)
        pull = max(G * (np.sin(slope) - friction * np.cos(slope)), 0.0)
        expected = reached - 0.5 * pull * (1.0 - stop) ** 2
        np.testing.assert_allclose(states.position[-1, 0, 0] @ up, expected, atol=1e-12)


def line(masses, restitution) -> Balls:
    return Balls(
        jnp.asarray(masses),
        jnp.full(len(masses), 0.5),
        jnp.zeros((0, 1)),
        jnp.zeros(0),
        jnp.array(restitution),
        jnp.array(0.0),
        None,
        (),
    )


@pytest.mark.parametrize("restitution", [1.0, 0.7, 0.0])
def test_chains_of_unequal_masses(restitution):
    """v₁⁺ = v₁ − (1 + e) m₂/(m₁ + m₂) (v₁ − v₂), ball by ball: two impacts, or one velocity for e = 0."""
    masses = np.array([1.0, 2.0, 3.0])
    start = State(jnp.array([[[4.0], [2.0], [0.0]]]), jnp.array([[[0.0], [0.0], [1.5]]]))
    states, _ = motion(line(masses, restitution), start, jnp.array([1.0, 1.0, 2.0]))
    velocity = np.array([0.0, 0.0, 1.5])
    for first, second in ((1, 2), (0, 1)):
        rate, total = velocity[first] - velocity[second], masses[first] + masses[second]
        velocity[first] -= (1 + restitution) * masses[second] / total * rate
        velocity[second] += (1 + restitution) * masses[first] / total * rate
    if restitution == 0:
        velocity = np.full(3, masses @ [0, 0, 1.5] / masses.sum())
    np.testing.assert_allclose(states.velocity[-1, 0, :, 0], velocity, atol=1e-13 if restitution else 1e-8)
    # The gap of 1 between the last two closes after 1/1.5 s.
    after = 1.5 * (1 + restitution) * 3 / 5
    np.testing.assert_allclose(states.position[0, 0, 1, 0], 2 + after * (1 - 1 / 1.5), atol=1e-14)


def test_a_row_of_equal_balls_passes_the_speed_on():
    """(0, 0, v) becomes (v, 0, 0), with the times of the flights in between."""
    start = State(jnp.array([[[4.0], [2.0], [0.0]]]), jnp.array([[[0.0], [0.0], [2.0]]]))
    states, report = motion(line(np.ones(3), 1.0), start, jnp.array([0.5, 0.5, 1.0]))
    np.testing.assert_allclose(states.velocity[-1, 0, :, 0], [2.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(states.position[-1, 0, :, 0], [6.0, 3.0, 1.0], atol=1e-14)
    contact = np.asarray(report.contact)[:, 0]
    assert contact[1, 1, 2]
    assert contact[1, 2, 1]
    assert not contact[:2, 0].any() or contact[1, 0, 1]


def test_a_stack_rests_and_a_hit_goes_through_it():
    """Two balls on the floor, one on the other: they stay. Hit from above with e = 0, they stay again."""
    balls = Balls(
        jnp.array([1.0, 2.0, 3.0]),
        jnp.full(3, 0.5),
        jnp.array([[1.0]]),
        jnp.zeros(1),
        jnp.array(0.0),
        jnp.array(0.0),
        jnp.array([-G]),
        ((0,),),
    )
    start = State(jnp.array([[[4.5], [1.5], [0.5]]]), jnp.zeros((1, 3, 1)))
    states, report = motion(balls, start, jnp.full(40, 0.05))
    np.testing.assert_allclose(states.position[:, 0, 1:, 0], np.tile([1.5, 0.5], (40, 1)), atol=1e-12)
    np.testing.assert_allclose(states.position[-1, 0, :, 0], [2.5, 1.5, 0.5], atol=1e-9)
    np.testing.assert_allclose(states.velocity[-1], 0, atol=1e-9)
    assert report.contact[0, 0, 1:].any(axis=-1).all()
    assert report.contact[-1].any(axis=-1).all()


def test_a_ball_slides_off_an_edge():
    """It rests on a block that ends at x = 1, leaves at 2 m/s, falls on the plane below and stays there."""
    balls = Balls(
        jnp.array([1.0]),
        jnp.array([0.0]),
        jnp.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),
        jnp.array([0.5, 1.0, 0.0]),
        jnp.array(0.0),
        jnp.array(0.0),
        jnp.array([0.0, -G]),
        ((0, 1), (2,)),
    )
    times = np.array([0.25, 0.5, 0.6, 1.0])
    states, report = motion(balls, one_ball([0.0, 0.5], [2.0, 0.0]), jnp.asarray(np.diff(times, prepend=0.0)))
    fallen = 0.5 * G * 0.1**2
    expected = [[0.5, 0.5], [1.0, 0.5], [1.2, 0.5 - fallen], [2.0, 0.0]]
    np.testing.assert_allclose(states.position[:, 0, 0], expected, atol=1e-13)
    # What it rested on: the block's top, then nothing, then the floor.
    np.testing.assert_array_equal(
        np.asarray(report.contact)[:, 0, 0, 1:],
        [[True, False, False], [True, False, False], [False, False, False], [False, False, True]],
    )
    # Thrown at the block's side from beyond, it bounces off the riser.
    bouncy = eqx.tree_at(lambda b: b.restitution, balls, jnp.array(1.0))
    start, intervals = one_ball([1.5, 0.4], [-5.0, 0.0]), jnp.array([0.15, 0.05, 0.0, 0.0])
    states, _ = motion(bouncy, start, intervals)
    np.testing.assert_allclose(states.position[-1, 0, 0], [1.5, 0.4 - 0.5 * G * 0.04], atol=1e-13)
