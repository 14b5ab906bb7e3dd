"""Walls and pairs from kinks in motions that are known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import Recording, Run
from carom.estimation.detection.scene_inference import guess_contacts
from carom.mechanics import Pair, Wall
from carom.systems import Billiards
from tests.campaign import shortened
from tests.riders import encounters

STEP = 0.01
TIME = STEP * np.arange(120)


def recording(*positions, noise=1e-3, seed=0):
    generator = np.random.default_rng(seed)
    runs = [Run(TIME, p + noise * generator.standard_normal(p.shape)) for p in positions]
    return Recording(tuple(runs), STEP)


@pytest.mark.parametrize("seed", range(6))
def test_a_wall_in_any_direction(seed):
    """Reflection at a plane with restitution, from velocities and normals at random."""
    generator = np.random.default_rng(seed)
    angle = generator.uniform(0, 2 * np.pi)
    normal = np.array([np.cos(angle), np.sin(angle)])
    tangent = np.array([-normal[1], normal[0]])
    place, instant, e = generator.uniform(-1, 1), generator.uniform(0.4, 0.8), generator.uniform(0.5, 1.0)
    before = -generator.uniform(1, 2) * normal + generator.uniform(-1, 1) * tangent
    after = before - (1 + e) * (before @ normal) * normal
    foot = place * normal + generator.uniform(-1, 1) * tangent
    since = TIME[:, None] - instant
    path = foot + np.where(since < 0, before, after) * since
    guess = guess_contacts(recording(path[:, None], seed=seed))
    (wall,) = guess.candidates
    assert isinstance(wall, Wall)
    # A direction near an axis is taken for the axis.
    cosine = float(np.array(wall.normal) @ normal)
    snapped = max(np.abs(normal)) > 0.9
    assert cosine > (0.9 if snapped else 0.995)
    if not snapped:
        assert abs(wall.offset - place) < 0.03
    along = np.array(wall.normal)
    assert abs(guess.restitution + (after @ along) / (before @ along)) < 0.05


@pytest.mark.parametrize("seed", range(6))
def test_two_bodies_on_a_line(seed):
    """Conservation of momentum and Newton's law give both velocities after the impact."""
    generator = np.random.default_rng(10 + seed)
    ratio, e, distance = generator.uniform(0.4, 2.5), generator.uniform(0.4, 1.0), generator.uniform(0, 0.2)
    paths = []
    for _ in range(2):
        low, high, instant = (
            generator.uniform(0.5, 1.5),
            -generator.uniform(0.5, 1.5),
            generator.uniform(0.4, 0.8),
        )
        middle = (low + ratio * high) / (1 + ratio)
        low_after = middle - e * ratio / (1 + ratio) * (low - high)
        high_after = middle + e / (1 + ratio) * (low - high)
        since = TIME - instant
        first = np.where(since < 0, low, low_after) * since
        second = distance + np.where(since < 0, high, high_after) * since
        paths.append(np.stack([first, second], axis=1)[:, :, None])
    guess = guess_contacts(recording(*paths, seed=seed))
    assert [(type(c), c.bodies) for c in guess.candidates] == [(Pair, (1, 0))]
    assert guess.impacts == (2,)
    assert abs(guess.candidates[0].offset - distance) < 0.02
    assert abs(guess.restitution - e) < 0.08
    assert abs(np.log(guess.masses[1] / ratio)) < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_smooth_motion_has_no_contacts(seed):
    generator = np.random.default_rng(seed)
    rate, phase = generator.uniform(2, 6, 2), generator.uniform(0, 6, 2)
    path = np.cos(rate * TIME[:, None] + phase)[:, None, :]
    guess = guess_contacts(recording(path, noise=0.01, seed=seed))
    assert guess.candidates == ()
    assert guess.restitution is None


@pytest.mark.parametrize("seed", shortened(range(3), [1, 2]))
def test_contacts_that_last_are_seen_in_all_runs(seed):
    """Bumpers that are pressed for twenty samples, as sharp as motion capture sees them."""
    generator = np.random.default_rng(seed)
    speeds, ratio = generator.uniform(0.3, 2.0, 8), generator.uniform(0.7, 1.4)
    time = np.arange(0, 0.8, 0.002)
    law = {"scatter": 0.0, "generator": generator}
    cases = encounters(speeds, lambda speed: 0.6, **law, mass_ratio=ratio, duration=0.04)
    runs = [case.run(time, generator.uniform(0.3, 0.5), 2e-5, generator) for case in cases]
    guess = guess_contacts(Recording(tuple(runs), 0.002))
    assert [(type(c), c.bodies) for c in guess.candidates] == [(Pair, (0, 1))]
    assert guess.impacts == (8,)
    assert guess.mask >= 5
    assert abs(guess.restitution - 0.6) < 0.1
    assert abs(np.log(guess.masses[1] / ratio)) < 0.15


def test_many_smooth_runs_have_no_contacts():
    generator = np.random.default_rng(9)
    rates, phases = generator.uniform(2, 6, (6, 2)), generator.uniform(0, 6, (6, 2))
    paths = [
        np.cos(rate * TIME[:, None] + phase)[:, :, None] for rate, phase in zip(rates, phases, strict=True)
    ]
    for noise in (1e-5, 0.01):
        assert guess_contacts(recording(*paths, noise=noise, seed=1)).candidates == ()


def test_friction_turns_kinks_but_not_the_place_of_a_wall():
    """Balls that slide along a floor while they bounce, far from the origin."""
    table = Billiards(size=(3.0, 1.0), radii=(0.1,), restitution=0.9, friction=0.3)
    starts = [table.random_start(seed) for seed in range(40)]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *starts)
    motions = table.motions(stacked, steps=80, step_size=0.01)
    generator, time = np.random.default_rng(0), 0.01 * np.arange(81)
    noise = [1e-3 * generator.standard_normal((2, 81, 1, 2)) for _ in starts]
    runs = [
        Run(time, motions.position[:, k] + n[0], motions.velocity[:, k] + n[1]) for k, n in enumerate(noise)
    ]
    guess = guess_contacts(Recording(tuple(runs), 0.01))
    true = {(1, 0): 0.1, (0, 1): 0.1, (0, -1): -0.9, (-1, 0): -2.9}
    assert len(guess.candidates) >= 3
    for wall in guess.candidates:
        assert abs(wall.offset - true[wall.normal]) < 0.01


def test_a_wall_that_few_runs_touch_stays():
    """Twenty runs: six bounce at a floor, three at a ceiling, and in the others nothing happens."""
    heights = [
        np.abs(0.5 - TIME) * (1.0 if k < 6 else 0.0) + np.where(k < 9, 0.0, 0.3 * TIME) for k in range(20)
    ]
    heights[6:9] = [2 - np.abs(0.7 - TIME) for _ in range(3)]
    guess = guess_contacts(recording(*(h[:, None, None] for h in heights)))
    assert [wall.normal for wall in guess.candidates] == [(-1.0,), (1.0,)]
    assert (guess.impacts, guess.mask) == ((3, 6), 0)
