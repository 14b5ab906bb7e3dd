"""Lists of neighbours against all distances, and many balls with lists against the same without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carom.integrators.event_driven.neighbours import neighbour_lists
from tests.campaign import shortened
from tests.integrators.ball_scenes import balls_in_a_box, energies, least_gap, motion, scattered_states

lists_of = jax.jit(neighbour_lists, static_argnames="capacity")


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.sampled_from([1, 2, 3]))
def test_lists_hold_all_that_are_near(seed, dimension):
    random = np.random.default_rng(seed)
    position = random.uniform(size=(dimension, 2, 30))
    radii, margin = random.uniform(0.01, 0.05, 30), random.uniform(0, 0.2, 2)
    lists, crowded = lists_of(jnp.asarray(position), jnp.asarray(radii), jnp.asarray(margin), capacity=29)
    assert not crowded.any()
    for scene in range(2):
        place = position[:, scene].T
        distance = np.linalg.norm(place[:, None] - place[None], axis=-1)
        near = distance <= radii[:, None] + radii[None] + margin[scene]
        for body in range(30):
            named = [other for other in np.asarray(lists)[scene, body] if other != body]
            assert len(named) == len(set(named))
            assert set(named) == set(np.flatnonzero(near[body])) - {body}


def test_lists_that_are_too_short_are_reported():
    position = jnp.zeros((2, 1, 4)).at[0, 0].set(jnp.array([0.0, 0.1, 0.2, 0.3]))
    _, crowded = lists_of(position, jnp.full(4, 0.05), jnp.full(1, 1.0), capacity=2)
    assert crowded.all()


@pytest.mark.parametrize("field", shortened([False, True], [True]))
def test_motion_with_lists_is_the_same(field):
    random = np.random.default_rng(5)
    gravity = np.array([0.0, -9.81]) if field else None
    balls = balls_in_a_box(random, 30, 2, restitution=0.8, friction=0.2, gravity=gravity, fill=0.2)
    start = scattered_states(random, balls, 1)
    plain, _ = motion(balls, start, jnp.full(40, 0.01))
    listed, report = motion(balls, start, jnp.full(40, 0.01), neighbours=20)
    assert not report.crowded.any()
    np.testing.assert_allclose(listed.position[:12], plain.position[:12], atol=1e-8)
    energy = energies(balls, listed)
    assert (np.diff(energy, axis=0) <= 1e-11 * energy[:-1]).all()
    assert least_gap(balls, listed.position) > -1e-9


@pytest.mark.parametrize("capacity", shortened([2, 20], [20]))  # crowded, with room
def test_exhausted_scenes_with_lists_do_not_overlap(capacity):
    """Far more impacts are due within the interval than are allowed, in a crowd that lists hold or do not."""
    random = np.random.default_rng(6)
    balls = balls_in_a_box(random, 30, 2, restitution=0.9, friction=0.1, gravity=None, fill=0.3)
    start = scattered_states(random, balls, 2)
    states, report = motion(balls, start, jnp.full(4, 0.5), max_impacts=1, report="none", neighbours=capacity)
    assert report.exhausted.any()
    energy = energies(balls, states)
    assert (np.diff(energy, axis=0) <= 1e-11 * energy[:-1]).all()
    assert least_gap(balls, states.position) > -1e-9


def memory(bodies, **options):
    """Bytes that the compiled program needs beside its input and output."""
    random = np.random.default_rng(0)
    gravity = options.pop("gravity", None)
    balls = balls_in_a_box(random, bodies, 2, restitution=1, friction=0, gravity=gravity, fill=0.05)
    start = scattered_states(random, balls, 4)
    program = motion.lower(balls, start, jnp.full(3, 0.01), **options).compile()
    return program.memory_analysis().temp_size_in_bytes


@pytest.mark.campaign
@pytest.mark.parametrize(
    "options",
    [{"report": "none", "neighbours": 12}, {"neighbours": 12, "gravity": np.array([0.0, -9.81])}],
    ids=["free", "gravity"],
)
def test_memory_grows_like_the_number_of_bodies(options):
    """From 64 to 256 balls: four times as much, not sixteen."""
    assert memory(256, **dict(options)) < 5 * memory(64, **dict(options))
