"""Several contacts at once: energy, complementarity, and momentum that passes through a row of balls."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tests.mechanics.random_mechanics import (
    add_momentum,
    cholesky_factor,
    restitution_of,
    seeds,
    unilateral_with_masses,
    unilateral_with_matrix,
)

# (contacts, bodies, dimension); the last has more contacts than coordinates, so that some are redundant.
shapes = st.sampled_from([(2, 1, 2), (3, 2, 2), (6, 2, 2)])


def random_problem(seed, shape):
    contacts, bodies, dimension = shape
    random = np.random.default_rng(seed)
    jacobian = random.normal(size=shape)
    jacobian /= np.linalg.norm(jacobian, axis=(1, 2), keepdims=True)
    factor = cholesky_factor(random, bodies * dimension)
    before = random.normal(size=(bodies, dimension))
    restitution = np.full(contacts, restitution_of(random))
    return random, jacobian, factor, before, restitution


@settings(max_examples=150)
@given(seed=seeds, shape=shapes)
def test_kinetic_energy_never_rises_without_force(seed, shape):
    """Also where the bound on sweeps is hit and the impulses are what was found so far."""
    random, jacobian, factor, before, restitution = random_problem(seed, shape)
    touching = random.uniform(size=shape[0]) < 0.8
    impulse, resolved = unilateral_with_matrix(jacobian, factor, before, before, restitution, touching)
    impulse = np.asarray(impulse)
    mass_matrix = factor @ factor.T
    after = add_momentum(mass_matrix, before, np.einsum("ckd,c->kd", jacobian, impulse)).ravel()

    assert (impulse >= 0).all()
    assert (impulse[~touching] == 0).all()
    energy = before.ravel() @ mass_matrix @ before.ravel()
    assert after @ mass_matrix @ after <= energy * (1 + 1e-12)
    if resolved:
        rates = jacobian.reshape(shape[0], -1) @ after
        assert (rates[touching] >= -1e-7).all()


@settings(max_examples=40)
@given(seed=seeds)
def test_kinetic_energy_never_rises_with_masses(seed):
    """Random unit normals between three bodies in the plane, every pair touching."""
    random = np.random.default_rng(seed)
    angles = random.uniform(0, 2 * np.pi, 3)
    jacobian = np.zeros((3, 3, 2))
    for row, (first, second) in enumerate(combinations(range(3), 2)):
        jacobian[row, first] = [np.cos(angles[row]), np.sin(angles[row])]
        jacobian[row, second] = -jacobian[row, first]
    masses, before = random.uniform(0.1, 10, 3), random.normal(size=(3, 2))
    restitution = np.full(3, restitution_of(random))
    impulse, _ = unilateral_with_masses(jacobian, masses, before, before, restitution, np.ones(3, bool))
    after = before + np.einsum("ckd,c->kd", jacobian, np.asarray(impulse)) / masses[:, None]

    assert masses @ np.sum(after**2, axis=1) <= masses @ np.sum(before**2, axis=1) * (1 + 1e-12)
    np.testing.assert_allclose(masses @ after, masses @ before, atol=1e-11)


def impacts_one_by_one(rows, mass_matrix, velocity, restitution):
    """Newton's law at one closing contact after another, in velocities: the last one, and the impulses."""
    velocity, impulses = velocity.copy(), np.zeros(len(rows))
    for _ in range(20_000):
        if (rows @ velocity >= -1e-14).all():
            break
        for j, row in enumerate(rows):
            if row @ velocity < 0:
                response = np.linalg.solve(mass_matrix, row)
                push = -(1 + restitution[j]) * (row @ velocity) / (row @ response)
                velocity, impulses[j] = velocity + push * response, impulses[j] + push
    return velocity, impulses


def complementary(compliance, missing):
    """0 ≤ λ ⟂ S λ − missing ≥ 0 by trying every set of pushing contacts."""
    contacts = range(len(missing))
    for pushing in map(list, chain.from_iterable(combinations(contacts, n) for n in range(len(missing) + 1))):
        impulse = np.zeros(len(missing))
        impulse[pushing] = np.linalg.solve(compliance[np.ix_(pushing, pushing)], missing[pushing])
        if (impulse >= 0).all() and (compliance @ impulse - missing >= -1e-11).all():
            return impulse
    raise AssertionError("A positive-definite problem has a solution.")


@settings(max_examples=60)
@given(seed=seeds, shape=st.sampled_from([(2, 1, 2), (3, 2, 2)]))
def test_impulses_are_the_complementary_ones(seed, shape):
    random, jacobian, factor, before, restitution = random_problem(seed, shape)
    mass_matrix, rows = factor @ factor.T, jacobian.reshape(shape[0], -1)
    smooth = before + 0.3 * random.normal(size=before.shape)
    impulse, resolved = unilateral_with_matrix(
        jacobian, factor, before, smooth, restitution, np.ones(shape[0], bool)
    )
    assume(resolved)
    bounced, impacts = impacts_one_by_one(rows, mass_matrix, before.ravel(), restitution)
    allowed = np.where(impacts > 0, rows @ bounced, -restitution * (rows @ bounced))
    compliance = rows @ np.linalg.solve(mass_matrix, rows.T)
    missing = allowed - rows @ smooth.ravel()
    # Velocities and not impulses: contacts that almost repeat each other share an impulse in any proportion.
    # 1e-5: what still closes by 1e-6 of the fastest rate counts as resolved and is stopped.
    np.testing.assert_allclose(
        np.linalg.solve(mass_matrix, rows.T @ np.asarray(impulse)),
        np.linalg.solve(mass_matrix, rows.T @ complementary(compliance, missing)),
        atol=1e-5,
    )


@settings(max_examples=60)
@given(seed=seeds, shape=st.sampled_from([(2, 1, 2), (3, 2, 2)]))
def test_bodies_at_rest_are_held_like_non_negative_least_squares(seed, shape):
    """From rest, λ minimises ½ (V⁺)ᵀ M V⁺ over λ ≥ 0 (Gauss' principle): a problem SciPy solves too."""
    random, jacobian, factor, before, restitution = random_problem(seed, shape)
    smooth = random.normal(size=before.shape)
    impulse, resolved = unilateral_with_matrix(
        jacobian, factor, np.zeros_like(before), smooth, restitution, np.ones(shape[0], bool)
    )
    assume(resolved)
    directions = np.linalg.solve(factor, jacobian.reshape(shape[0], -1).T)
    expected, _ = nnls(directions, -factor.T @ smooth.ravel())
    np.testing.assert_allclose(directions @ np.asarray(impulse), directions @ expected, atol=1e-9)


@pytest.mark.parametrize("steepness", [5, 20, 45, 70])
def test_ball_at_rest_in_a_corner(steepness):
    """Two walls carry m g h: λ₁ = λ₂ = m g h / (2 cos α). Shallow corners couple their walls strongly."""
    slope = np.radians(steepness)
    jacobian = np.array([[[np.sin(slope), np.cos(slope)]], [[-np.sin(slope), np.cos(slope)]]])
    weight = np.array([[0.0, -0.2]])
    impulse, resolved = unilateral_with_masses(
        jacobian, np.array([3.0]), np.zeros((1, 2)), weight, np.full(2, 0.7), np.ones(2, bool)
    )
    assert resolved
    np.testing.assert_allclose(impulse, 3 * 0.2 / (2 * np.cos(slope)), rtol=1e-12)


@pytest.mark.parametrize("balls", [2, 3, 4, 5, 6])
def test_row_of_balls_passes_momentum_through(balls):
    """(1, 0, …, 0) becomes (0, …, 0, 1), not (−⅓, ⅔, ⅔) or (0, ½, ½)."""
    jacobian = np.zeros((balls - 1, balls, 1))
    for j in range(balls - 1):
        jacobian[j, j], jacobian[j, j + 1] = 1, -1
    before = np.zeros((balls, 1))
    before[0] = -1
    for direction in (1, -1):
        # Reversed, the last ball comes in and the contacts are met against their order.
        velocity = before if direction == 1 else -before[::-1]
        impulse, resolved = unilateral_with_masses(
            jacobian, np.ones(balls), velocity, velocity, np.ones(balls - 1), np.ones(balls - 1, bool)
        )
        after = velocity + np.einsum("ckd,c->kd", jacobian, np.asarray(impulse))
        assert resolved
        np.testing.assert_allclose(after, velocity[::-1], atol=1e-14)


def test_bound_on_sweeps_is_reported_and_stops_what_still_closes():
    """Two walls of a narrow wedge and a bouncing body: more impacts than any small bound."""
    slope = np.radians(89)
    jacobian = np.array([[[np.sin(slope), np.cos(slope)]], [[-np.sin(slope), np.cos(slope)]]])
    before = np.array([[0.3, -1.0]])
    arguments = (jacobian, np.ones(1), before, before, np.full(2, 0.99), np.ones(2, bool))
    impulse, resolved = unilateral_with_masses(*arguments)
    after = before[0] + np.einsum("ckd,c->d", jacobian, np.asarray(impulse))
    assert not resolved
    assert (jacobian[:, 0] @ after >= -1e-12).all()
    assert after @ after <= before[0] @ before[0]
