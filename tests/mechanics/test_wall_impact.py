"""One body against a wall: Newton's law along the normal, nothing across it."""

import numpy as np
from hypothesis import given, settings

from tests.mechanics.random_mechanics import (
    add_momentum,
    cholesky_factor,
    dimensions,
    restitution_of,
    seeds,
    unilateral_with_masses,
    unilateral_with_matrix,
    unit_vector,
)

TOUCHING = np.array([True])


@settings(max_examples=60)
@given(seed=seeds, dimension=dimensions)
def test_law_along_the_normal_and_free_motion_across_it(seed, dimension):
    random = np.random.default_rng(seed)
    normal, mass, e = unit_vector(random, dimension), random.uniform(0.1, 10), restitution_of(random)
    before = random.normal(size=(1, dimension))
    smooth = before + random.normal(size=(1, dimension))
    impulse, resolved = unilateral_with_masses(
        normal[None, None], np.array([mass]), before, smooth, np.array([e]), TOUCHING
    )
    after = smooth + np.asarray(impulse) * normal / mass

    assert resolved
    np.testing.assert_allclose(impulse, [max(0.0, -mass * normal @ (e * before + smooth)[0])], atol=1e-12)
    if impulse[0] > 0:
        np.testing.assert_allclose(after[0] @ normal, -e * before[0] @ normal, atol=1e-13)
        assert 0.5 * mass * (after[0] @ normal) ** 2 <= 0.5 * mass * (before[0] @ normal) ** 2 + 1e-12
    across = np.eye(dimension) - np.outer(normal, normal)
    np.testing.assert_allclose(after @ across, smooth @ across, atol=1e-13)


@settings(max_examples=60)
@given(seed=seeds, dimension=dimensions)
def test_law_with_full_inertia(seed, dimension):
    random = np.random.default_rng(seed)
    normal, e = unit_vector(random, dimension), restitution_of(random)
    factor = cholesky_factor(random, dimension)
    mass_matrix = factor @ factor.T
    before = random.normal(size=(1, dimension))
    smooth = before + np.linalg.solve(mass_matrix, random.normal(size=dimension))
    impulse, _ = unilateral_with_matrix(normal[None, None], factor, before, smooth, np.array([e]), TOUCHING)
    after = add_momentum(mass_matrix, smooth, np.asarray(impulse) * normal)

    effective_mass = 1 / (normal @ np.linalg.solve(mass_matrix, normal))
    expected = max(0.0, -effective_mass * normal @ (e * before + smooth)[0])
    np.testing.assert_allclose(impulse, [expected], atol=1e-12)
    if impulse[0] > 0:
        np.testing.assert_allclose(after[0] @ normal, -e * before[0] @ normal, atol=1e-12)
        assert (after[0] @ normal) ** 2 <= (before[0] @ normal) ** 2 + 1e-12
    else:
        np.testing.assert_array_equal(after, smooth)


@settings(max_examples=60)
@given(seed=seeds, dimension=dimensions)
def test_kinetic_energy_never_rises_without_force(seed, dimension):
    random = np.random.default_rng(seed)
    normal, e = unit_vector(random, dimension), restitution_of(random)
    factor = cholesky_factor(random, dimension)
    mass_matrix = factor @ factor.T
    before = random.normal(size=(1, dimension))
    impulse, _ = unilateral_with_matrix(normal[None, None], factor, before, before, np.array([e]), TOUCHING)
    after = add_momentum(mass_matrix, before, np.asarray(impulse) * normal)

    energy = before[0] @ mass_matrix @ before[0]
    assert after[0] @ mass_matrix @ after[0] <= energy * (1 + 1e-13)
    if e == 1:
        np.testing.assert_allclose(after[0] @ mass_matrix @ after[0], energy, rtol=1e-12)
    # A wall never pulls, and a body that already leaves is left alone.
    assert (impulse[0] > 0) == (normal @ before[0] < 0)


def test_a_wall_that_is_not_touched_does_nothing():
    normal = np.array([[[1.0]]])
    impulse, resolved = unilateral_with_masses(
        normal, np.ones(1), np.array([[-3.0]]), np.array([[-4.0]]), np.ones(1), np.array([False])
    )
    assert impulse[0] == 0
    assert resolved


def test_resting_contact_carries_the_weight_of_one_step():
    """V = 0 and V^S = −g h: "closing" alone would let the ball sink, λ > 0 holds it."""
    for e in (0.0, 0.5, 0.9):
        impulse, _ = unilateral_with_masses(
            np.ones((1, 1, 1)), np.array([2.0]), np.zeros((1, 1)), np.array([[-0.1]]), np.array([e]), TOUCHING
        )
        np.testing.assert_allclose(impulse, [0.2], rtol=1e-15)
