"""What holds for any scene of balls: conservation, no overlap, symmetry, the motion of a plain event loop."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carom.integrators.event_driven.balls import Balls
from carom.types import State
from tests.campaign import shortened
from tests.integrators.ball_scenes import (
    balls_in_a_box,
    energies,
    examples,
    least_gap,
    motion,
    reference_motion,
    scattered_states,
)

seeds = st.integers(0, 2**32 - 1)
SHAPES = {1: 5, 2: 8, 3: 20}
"""Bodies by dimension."""


def downwards(dimension):
    return np.eye(dimension)[-1] * -9.81


def random_laws(random):
    return {
        "restitution": random.choice([0.0, 1.0, random.uniform()]),
        "friction": random.choice([0.0, 0.3, random.uniform(0, 3)]),
    }


@pytest.mark.parametrize("dimension", SHAPES)
@examples(4)
@given(seed=seeds)
@example(seed=26805)  # a clump without rebound, for which the iteration for the cluster does not converge
def test_free_balls_keep_their_momentum_and_gain_no_energy(dimension, seed):
    """Without walls and field: whatever e and μ, impulses are equal and opposite."""
    random = np.random.default_rng(seed)
    inside = balls_in_a_box(random, SHAPES[dimension], dimension, **random_laws(random))
    start = scattered_states(random, inside, 3)
    # Towards the middle, so that they meet.
    start = State(start.position, start.velocity - 2 * (start.position - 0.5))
    balls = Balls(
        inside.masses,
        inside.radii,
        jnp.zeros((0, dimension)),
        jnp.zeros(0),
        inside.restitution,
        inside.friction,
        None,
        (),
    )
    states, report = motion(balls, start, jnp.full(20, 0.05))
    assert report.contact.any()
    momentum = np.einsum("k,nskd->nsd", np.asarray(balls.masses), np.asarray(states.velocity))
    before = np.einsum("k,skd->sd", np.asarray(balls.masses), np.asarray(start.velocity))
    scale = np.abs(np.asarray(balls.masses)[:, None] * np.asarray(start.velocity)).sum()
    np.testing.assert_allclose(momentum, np.broadcast_to(before, momentum.shape), atol=1e-14 * scale)
    assert (np.diff(energies(balls, states), axis=0) <= 1e-12 * energies(balls, start)).all()
    assert least_gap(balls, states.position) > -1e-12


@pytest.mark.parametrize(
    ("dimension", "field"),
    shortened(itertools.product(SHAPES, [False, True]), [(3, True), (2, False)]),
)
@examples(3)
@given(seed=seeds)
def test_energy_is_never_gained_and_nothing_overlaps(dimension, field, seed):
    """For e ≤ 1 and any μ, through rest and heaps; 100 steps."""
    random = np.random.default_rng(seed)
    gravity = downwards(dimension) if field else None
    balls = balls_in_a_box(random, SHAPES[dimension], dimension, gravity=gravity, **random_laws(random))
    start = scattered_states(random, balls, 2)
    states, _ = motion(balls, start, jnp.full(100, 0.02))
    energy = np.concatenate([energies(balls, start)[None], energies(balls, states)])
    assert (np.diff(energy, axis=0) <= 1e-11 * energy[:-1]).all()
    assert least_gap(balls, states.position) > -1e-9
    assert np.isfinite(np.asarray(states.velocity)).all()


@pytest.mark.parametrize("field", [False, True], ids=["free table", "gravity"])
def test_energy_is_constant_over_thousands_of_steps(field):
    """e = 1, μ = 0. Measured: 3e-13 of the energy."""
    random = np.random.default_rng(1)
    gravity = downwards(2) if field else None
    balls = balls_in_a_box(random, 8, 2, restitution=1, friction=0, gravity=gravity)
    start = scattered_states(random, balls, 2)
    states, report = motion(balls, start, jnp.full(4000, 0.01))
    assert np.asarray(report.contact.any(axis=-1)).sum() > 4000
    assert not report.exhausted.any()
    energy, before = energies(balls, states), energies(balls, start)
    np.testing.assert_allclose(energy, np.broadcast_to(before, energy.shape), rtol=1e-9)
    assert least_gap(balls, states.position) > -1e-9


@pytest.mark.parametrize("field", [False, True], ids=["free table", "gravity"])
@examples(2)
@given(seed=seeds)
@example(seed=35)  # inelastic collapses
@example(seed=230)
def test_a_plain_event_loop_gives_the_same_motion(field, seed):
    """As long as neighbours stay together: rounding grows with every impact, by some flight over radius."""
    random = np.random.default_rng(seed)
    laws = {"restitution": random.uniform(0.6, 1), "friction": random.uniform(0, 0.5)}
    gravity = downwards(2) if field else None
    balls = balls_in_a_box(random, 8, 2, gravity=gravity, **laws)
    start = scattered_states(random, balls, 2)
    states, _ = motion(balls, start, jnp.full(100, 0.01))
    beside = State(start.position, start.velocity + 1e-12 * random.normal(size=start.velocity.shape))
    neighbours, _ = motion(balls, beside, jnp.full(100, 0.01))
    growth = np.abs(np.asarray(neighbours.velocity - states.velocity)).max(axis=(2, 3))
    times = 0.01 * np.arange(1, 31)
    for scene in range(2):
        position, velocity = reference_motion(balls, start.position[scene], start.velocity[scene], times)
        # The first five samples count in any case, unless bodies stay in contact before.
        tame = min(len(position), max(5, np.argmax(np.append(growth[:30, scene], 1) > 1e-8)))
        np.testing.assert_allclose(states.position[:tame, scene], position[:tame], atol=1e-7)
        np.testing.assert_allclose(states.velocity[:tame, scene], velocity[:tame], atol=1e-5)


def rotation(random, dimension):
    """A random orthogonal matrix, a reflection in half of the cases."""
    return np.linalg.qr(random.normal(size=(dimension, dimension)))[0]


@pytest.mark.parametrize("dimension", [2, pytest.param(3, marks=pytest.mark.campaign)])
@examples(2)
@given(seed=seeds)
def test_rotations_reflections_and_other_numbers_change_nothing(dimension, seed):
    random = np.random.default_rng(seed)
    laws = {"restitution": random.uniform(0.5, 1), "friction": random.uniform(0, 0.5)}
    bodies = SHAPES[dimension]
    balls = balls_in_a_box(random, bodies, dimension, gravity=downwards(dimension), **laws)
    start = scattered_states(random, balls, 2)
    intervals = jnp.full(100, 0.02)
    states, _ = motion(balls, start, intervals)
    turn, order = rotation(random, dimension), random.permutation(bodies)
    turned = Balls(
        balls.masses[order],
        balls.radii[order],
        balls.normals @ turn.T,
        balls.offsets,
        balls.restitution,
        balls.friction,
        turn @ balls.gravity,
        balls.solids,
    )
    begun = State(start.position[:, order] @ turn.T, start.velocity[:, order] @ turn.T)
    again, _ = motion(turned, begun, intervals)
    expected = np.asarray(states.position)[:12][:, :, order] @ turn.T
    np.testing.assert_allclose(np.asarray(again.position)[:12], expected, atol=1e-8)


@examples(2)
@given(seed=seeds)
def test_a_motion_goes_on_from_any_of_its_states(seed):
    """Time shift, and other samples in between: the motion is that of the balls, not of the sampling."""
    random = np.random.default_rng(seed)
    balls = balls_in_a_box(random, 8, 2, gravity=downwards(2), restitution=0.9, friction=0.2)
    start = scattered_states(random, balls, 2)
    states, _ = motion(balls, start, jnp.full(100, 0.01))
    middle = State(states.position[9], states.velocity[9])
    later, _ = motion(balls, middle, jnp.full(100, 0.01))
    np.testing.assert_allclose(later.position[:15], states.position[10:25], atol=1e-8)
    uneven = jnp.asarray(np.diff(np.sort(np.concatenate([[0, 0.25], random.uniform(0, 0.25, 99)]))))
    resampled, _ = motion(balls, start, uneven)
    np.testing.assert_allclose(resampled.position[-1], states.position[24], atol=1e-8)


@pytest.mark.parametrize("dimension", SHAPES)
def test_the_fast_path_of_a_free_table_gives_the_same_motion(dimension):
    random = np.random.default_rng(dimension)
    balls = balls_in_a_box(random, SHAPES[dimension], dimension, restitution=0.95, friction=0.1)
    start = scattered_states(random, balls, 2)
    # More samples than fit in one window, and not a multiple of it.
    step_by_step, _ = motion(balls, start, jnp.full(100, 0.02))
    at_once, report = motion(balls, start, jnp.full(100, 0.02), report="none")
    assert report.contact is None
    np.testing.assert_allclose(at_once.position[:40], step_by_step.position[:40], atol=1e-8)
    energy = energies(balls, at_once)
    assert (np.diff(energy, axis=0) <= 1e-12 * energy[:-1]).all()
    assert least_gap(balls, at_once.position) > -1e-12


def test_scenes_of_a_batch_do_not_know_of_each_other():
    random = np.random.default_rng(0)
    balls = balls_in_a_box(random, 8, 2, gravity=downwards(2), restitution=0.7, friction=0.2)
    start = scattered_states(random, balls, 2)
    both, _ = motion(balls, start, jnp.full(100, 0.02))
    swapped, _ = motion(balls, State(start.position[::-1], start.velocity[::-1]), jnp.full(100, 0.02))
    np.testing.assert_allclose(both.position[:, ::-1], swapped.position, atol=1e-8)


@pytest.mark.parametrize(
    "options",
    [{"report": "contacts"}, {"report": "none"}, {"report": "none", "neighbours": 1}],
    ids=["with a report", "fast", "fast, with lists"],
)
def test_exhausted_impacts_do_not_overlap_or_gain_energy(options):
    """A hundred impacts are due in the interval; after `max_impacts` everything goes without rebound."""
    balls = Balls(
        jnp.array([1.0, 1.0]),
        jnp.array([0.1, 0.1]),
        jnp.array([[1.0], [-1.0]]),
        jnp.array([0.0, -1.0]),
        jnp.array(1.0),
        jnp.array(0.0),
        None,
        ((0,), (1,)),
    )
    start = State(jnp.array([[[0.8], [0.3]]]), jnp.array([[[-30.0], [20.0]]]))
    states, report = motion(balls, start, jnp.full(3, 2.0), max_impacts=4, **options)
    assert report.exhausted.any()
    assert (np.diff(energies(balls, states), axis=0) <= 1e-9).all()
    assert least_gap(balls, states.position) > -1e-9


def test_heap_comes_to_rest():
    """Eight rough balls: after ten seconds nothing moves, and nothing has sunk."""
    random = np.random.default_rng(3)
    balls = balls_in_a_box(random, 8, 2, gravity=downwards(2), restitution=0.4, friction=0.5)
    start = scattered_states(random, balls, 2, speed=0.2)
    states, report = motion(balls, start, jnp.full(100, 0.1))
    np.testing.assert_allclose(states.velocity[-20:], 0, atol=1e-9)
    np.testing.assert_allclose(states.position[-1], states.position[-20], atol=1e-9)
    assert np.asarray(report.contact)[-1].any(axis=-1).all()
    assert least_gap(balls, states.position) > -1e-9


@pytest.mark.campaign
@pytest.mark.parametrize("field", [False, True], ids=["free table", "gravity"])
@pytest.mark.parametrize(("dimension", "bodies"), [(1, 12), (2, 20), (3, 20)])
def test_long_runs_of_every_size(dimension, bodies, field):
    """10 000 steps: e = 1 keeps the energy to 1e-9, and e < 1 loses it, without overlap."""
    random = np.random.default_rng(dimension)
    gravity = downwards(dimension) if field else None
    for restitution, friction in ((1.0, 0.0), (0.8, 0.0), (0.6, 0.4)):
        balls = balls_in_a_box(
            random, bodies, dimension, restitution=restitution, friction=friction, gravity=gravity
        )
        start = scattered_states(random, balls, 1)
        states, _ = motion(balls, start, jnp.full(10_000, 0.01))
        energy = np.concatenate([energies(balls, start)[None], energies(balls, states)])
        if restitution == 1:
            np.testing.assert_allclose(energy, np.broadcast_to(energy[0], energy.shape), rtol=1e-9)
        assert (np.diff(energy, axis=0) <= 1e-9 * energy[0]).all()
        assert least_gap(balls, states.position) > -1e-9
