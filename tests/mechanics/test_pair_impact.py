"""Two bodies: Newton's law for their approach, total momentum kept."""

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


def pair_row(normal: np.ndarray) -> np.ndarray:
    """∂g/∂Q of g = |q₁ − q₂| − offset: the normal for the first body, its opposite for the second."""
    return np.stack([normal, -normal])[None]


@settings(max_examples=60)
@given(seed=seeds, dimension=dimensions)
def test_law_for_the_approach_and_momentum(seed, dimension):
    random = np.random.default_rng(seed)
    normal, e = unit_vector(random, dimension), restitution_of(random)
    masses = random.uniform(0.1, 10, 2)
    before = random.normal(size=(2, dimension))
    smooth = before + random.normal(size=(2, dimension))
    impulse, resolved = unilateral_with_masses(
        pair_row(normal), masses, before, smooth, np.array([e]), TOUCHING
    )
    push = float(impulse[0]) * normal
    after = smooth + np.stack([push, -push]) / masses[:, None]

    def approach(velocity):
        return normal @ (velocity[0] - velocity[1])

    reduced_mass = masses[0] * masses[1] / masses.sum()
    expected = max(0.0, -reduced_mass * (e * approach(before) + approach(smooth)))
    assert resolved
    np.testing.assert_allclose(impulse, [expected], atol=1e-12)
    np.testing.assert_allclose(masses @ after, masses @ smooth, atol=1e-12)
    if impulse[0] > 0:
        np.testing.assert_allclose(approach(after), -e * approach(before), atol=1e-12)
        assert 0.5 * reduced_mass * approach(after) ** 2 <= 0.5 * reduced_mass * approach(before) ** 2 + 1e-12
    across = np.eye(dimension) - np.outer(normal, normal)
    np.testing.assert_allclose(after @ across, smooth @ across, atol=1e-13)


@settings(max_examples=60)
@given(seed=seeds, dimension=dimensions)
def test_full_inertia_and_energy(seed, dimension):
    random = np.random.default_rng(seed)
    normal, e = unit_vector(random, dimension), restitution_of(random)
    factor = cholesky_factor(random, 2 * dimension)
    mass_matrix = factor @ factor.T
    row = pair_row(normal).ravel()
    before = random.normal(size=(2, dimension))
    impulse, _ = unilateral_with_matrix(pair_row(normal), factor, before, before, np.array([e]), TOUCHING)
    after = add_momentum(mass_matrix, before, float(impulse[0]) * row)

    energy_before = 0.5 * before.ravel() @ mass_matrix @ before.ravel()
    energy_after = 0.5 * after.ravel() @ mass_matrix @ after.ravel()
    rate = row @ before.ravel()
    if rate < 0:
        np.testing.assert_allclose(row @ after.ravel(), -e * rate, atol=1e-12)
        # All that is lost is the part (1 − e²) of ½ μ u² of the approach.
        effective_mass = 1 / (row @ np.linalg.solve(mass_matrix, row))
        lost = 0.5 * (1 - e**2) * effective_mass * rate**2
        np.testing.assert_allclose(energy_after, energy_before - lost, rtol=1e-11)
    else:
        np.testing.assert_array_equal(after, before)


def test_equal_masses_exchange_velocities():
    for before, after in (([-1.0, 0.0], [0.0, -1.0]), ([-2.0, 3.0], [3.0, -2.0])):
        velocity = np.array(before)[:, None]
        impulse, _ = unilateral_with_masses(
            pair_row(np.ones(1)), np.ones(2), velocity, velocity, np.ones(1), TOUCHING
        )
        np.testing.assert_allclose(velocity[:, 0] + float(impulse[0]) * np.array([1.0, -1.0]), after)
