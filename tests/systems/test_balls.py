"""Billiards, box and stairs: closed forms, many scenes, scenes for learners, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import simulate
from carom.errors import InputError
from carom.systems import BallBox, Billiards, Stairs
from carom.types import State


def test_contacts_are_those_of_the_candidates():
    """A ball in each corner of attention: one hits a wall, two hit each other, the last hits nothing."""
    table = Billiards(radii=(0.1,) * 4, size=(2.0, 2.0))
    start = State(
        jnp.array([[0.3, 1.0], [0.8, 1.5], [1.4, 1.5], [1.5, 0.5]]),
        jnp.array([[-1.0, 0.0], [0.5, 0.0], [-0.5, 0.0], [0.0, 0.1]]),
    )
    motion = table.exact(start, np.arange(0, 0.61, 0.1))
    candidates = table.geometry.candidates
    touched = {
        (candidate.bodies, getattr(candidate, "normal", None)): np.flatnonzero(column).tolist()
        for candidate, column in zip(candidates, motion.contact.T, strict=True)
        if column.any()
    }
    assert touched == {((0,), (1.0, 0.0)): [2], ((1, 2), None): [4]}
    np.testing.assert_allclose(motion.velocity[-1, :, 0], [1.0, -0.5, 0.5, 0.0], atol=1e-14)


def test_many_motions_are_the_single_ones():
    table = Billiards(restitution=0.9, friction=0.1)
    starts = [table.random_start(seed=seed) for seed in range(3)]
    batch = State(*(jnp.stack([getattr(s, name) for s in starts]) for name in ("position", "velocity")))
    motions = table.motions(batch, steps=40, step_size=0.02)
    assert motions.position.shape == (41, 3, 5, 2)
    for scene, start in enumerate(starts):
        exact = table.exact(start, np.arange(41) * 0.02)
        np.testing.assert_allclose(motions.position[:, scene], exact.position, atol=1e-6)
        np.testing.assert_allclose(motions.position[:15, scene], exact.position[:15], atol=1e-10)


def test_balls_do_not_overlap_after_long_steps():
    """Balls at rest and in flight: they overlap by 0.09 m where meetings are sought too far ahead."""
    box = BallBox(restitution=0.995)
    motion = box.exact(box.random_start(seed=0, speed=3.0), np.array([0.0, 50.0, 200.0]))
    gaps = jax.vmap(box.geometry.gap)(jnp.asarray(motion.position))
    assert float(gaps.min()) > -1e-6


def test_more_balls_than_are_compared_with_each_other():
    """With neighbour lists, contacts included: a ball without contact falls freely."""
    box = BallBox(size=(1.0, 1.0), radii=(0.02,) * 50)
    start = box.random_start(seed=0, speed=0.5)
    motion = box.exact(start, np.array([0.0, 0.05]))
    free = ~(motion.contact[1] @ box.geometry.incidence)
    assert 10 < free.sum() < 50
    position, velocity = np.asarray(start.position, float), np.asarray(start.velocity, float)
    fallen = position + 0.05 * velocity + 0.5 * 0.05**2 * np.array([0.0, -9.81])
    np.testing.assert_allclose(motion.position[1, free], fallen[free], atol=1e-12)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_boxes_of_every_dimension(dimension):
    """A box of one ball is a bouncing ball along the last axis, and a straight line across it."""
    size = (4.0,) * (dimension - 1) + (12.0,)
    box = BallBox(size=size, radii=(0.5,), gravity=9.81, restitution=0.8)
    height, drift = 10.5, 0.3
    start = State(
        jnp.array([[1.0] * (dimension - 1) + [height]]), jnp.array([[drift] * (dimension - 1) + [0.0]])
    )
    times = np.linspace(0, 3.6, 37)  # the second impact is after 3.71 s
    motion = box.exact(start, times)
    fall = np.sqrt(2 * 10 / 9.81)
    before = times < fall
    np.testing.assert_allclose(motion.position[before, 0, -1], height - 0.5 * 9.81 * times[before] ** 2)
    speed = 0.8 * np.sqrt(2 * 9.81 * 10)
    since = times[~before] - fall
    expected = 0.5 + speed * since - 0.5 * 9.81 * since**2
    np.testing.assert_allclose(motion.position[~before, 0, -1], expected, atol=1e-12)
    for axis in range(dimension - 1):
        np.testing.assert_allclose(motion.position[:, 0, axis], 1 + drift * times, atol=1e-13)


def test_a_ball_hops_down_the_stairs():
    """It lands on every tread and on the floor, moves on evenly, and is never inside a step."""
    stairs = Stairs(steps=3, tread=1.0, rise=0.5, restitution=0.5, gravity=10.0)
    # From rest half a metre above the first tread it falls 1, then rises to ¼ of that above each tread.
    start = State(jnp.array([[0.2, 2.0]]), jnp.array([[0.8, 0.0]]))
    times = np.linspace(0, 3, 301)
    motion = stairs.exact(start, times)
    position = motion.position[:, 0]
    surface = np.select(
        [position[:, 0] < 1, position[:, 0] < 2, position[:, 0] < 3], [1.5, 1.0, 0.5], default=0.0
    )
    assert (position[:, 1] >= surface - 1e-12).all()
    np.testing.assert_allclose(position[:, 0], 0.2 + 0.8 * times, atol=1e-12)
    treads = [np.flatnonzero(motion.contact[:, j]) for j in range(3)]
    # The first landing is after √(2·0.5/10) s at √10 m/s.
    first = treads[0][0]
    assert times[first - 1] < np.sqrt(0.1) <= times[first]
    assert [len(hits) > 0 for hits in treads] == [True, True, True]
    energies = stairs.energies(motion)
    assert (np.diff(energies) < 1e-12).all()


@pytest.mark.campaign
def test_stairs_by_the_scheme_come_close():
    stairs = Stairs(restitution=0.6, friction=0.1)
    times = np.arange(401) * 0.005
    exact = stairs.exact(stairs.start, times)
    scheme = stairs.scheme(stairs.start, steps=400, step_size=0.005)
    stepped = stairs.constraint_exact(stairs.start, steps=400, step_size=0.005)
    np.testing.assert_allclose(stepped.position, exact.position, atol=1e-7)
    np.testing.assert_allclose(scheme.position, exact.position, atol=0.1)


def test_scheme_with_friction_approaches_the_exact_motion():
    """Mean over 6 scenes of three balls, up to 0.4 s. Measured: 4.9e-3 at h = 0.01, 1.1e-3 at 0.0025."""
    table = Billiards(radii=(0.1, 0.12, 0.08), ball_masses=(1.0, 2.0, 0.5), restitution=0.8, friction=0.3)
    errors = []
    for substeps in (1, 4):
        error = []
        for seed in range(6):
            start = table.random_start(seed=seed)
            exact = table.exact(start, np.arange(41) * 0.01)
            scheme = table.scheme(start, steps=40 * substeps, step_size=0.01 / substeps)
            error.append(np.abs(scheme.position[::substeps] - exact.position).max())
        errors.append(np.median(error))
    assert errors[1] < 0.5 * errors[0]


def test_recordings_of_balls_carry_friction_and_touch():
    box = BallBox(size=(1.0, 1.0), restitution=0.7, friction=0.2)
    recording = simulate(box, steps=50, step_size=0.02, starts=[box.random_start(seed=1)])
    assert recording.scene is not None
    assert recording.scene.friction == 0.2
    assert recording.scene.contacts == 3 * 4 + 3
    assert recording.runs[0].touch.any()


def test_a_cradle_of_balls_on_a_line():
    """Three balls of radius ½ on a line, walls at both ends: the speed goes to and fro."""
    row = Billiards(size=(10.0,), radii=(0.5,) * 3)
    start = State(jnp.array([[7.5], [5.0], [1.5]]), jnp.array([[0.0], [0.0], [1.0]]))
    # Impacts after 2.5, 4 (gap of 1.5), 6 (the wall, 2 away), 8 and 9.5 s.
    motion = row.exact(start, np.array([0.0, 2.0, 3.9, 7.0, 9.0]))
    np.testing.assert_allclose(motion.velocity[1, :, 0], [0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(motion.velocity[2, :, 0], [0, 1, 0], atol=1e-15)
    np.testing.assert_allclose(motion.velocity[3, :, 0], [-1, 0, 0], atol=1e-14)
    np.testing.assert_allclose(motion.velocity[4, :, 0], [0, -1, 0], atol=1e-14)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Billiards(damping=0.1), "without damping"),
        (lambda: Billiards(restitution=1.1), "between 0 and 1"),
        (lambda: Billiards(friction=-0.1), "friction must be at least 0"),
        (lambda: Billiards(radii=(0.1, -0.1)), "radius must be at least 0"),
        (lambda: Billiards(ball_masses=(1.0,)), "5 radii were given for 1 masses"),
        (lambda: Billiards(ball_masses=(1.0, 1.0, 0.0, 1.0, 1.0)), "Masses must be positive"),
        (lambda: Billiards(radii=(0.3,) * 9).random_start(seed=0), "do not fit"),
        (lambda: Billiards(radii=(0.3,) * 9).start, "do not fit"),
        (lambda: Stairs(steps=0), "at least one step"),
        (lambda: Stairs(radii=(0.1,)), "one point"),
        (
            lambda: Billiards().exact(State(jnp.full((5, 2), 0.5), jnp.zeros((5, 2))), np.array([0.0, 1.0])),
            "overlap",
        ),
        (
            lambda: Billiards().exact(State(jnp.full((4, 2), 0.5), jnp.zeros((4, 2))), np.array([0.0, 1.0])),
            "5 balls in 2 dimensions",
        ),
    ],
)
def test_refusals(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()
