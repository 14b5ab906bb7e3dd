"""Gaps and their Jacobians, inertia, and what a geometry refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from carom.errors import InputError
from carom.mechanics import (
    ContactGeometry,
    InertiaMatrix,
    Masses,
    Pair,
    Wall,
    chain,
    contact_compliance,
    contact_rate,
    kinetic_energy,
)
from tests.mechanics.random_mechanics import cholesky_factor, seeds, unit_vector

TILTED = (0.6, 0.0, 0.8)
SCENE = ContactGeometry(
    3, 3, (Wall(1, TILTED, offset=-0.3), Wall(2, (0.0, -1.0, 0.0)), Pair(0, 2, offset=0.5))
)
gap, jacobian = jax.jit(lambda q: SCENE.gap(q)), jax.jit(lambda q: SCENE.jacobian(q))


@settings(max_examples=40)
@given(seed=seeds)
def test_gap_and_jacobian(seed):
    random = np.random.default_rng(seed)
    position, velocity = random.normal(size=(2, 3, 3))
    apart = position[0] - position[2]
    np.testing.assert_allclose(
        gap(position), [position[1] @ TILTED + 0.3, -position[2, 1], np.linalg.norm(apart) - 0.5], atol=1e-14
    )
    expected = np.zeros((3, 3, 3))
    expected[0, 1], expected[1, 2] = TILTED, (0, -1, 0)
    expected[2, 0] = apart / np.linalg.norm(apart)
    expected[2, 2] = -expected[2, 0]
    np.testing.assert_allclose(jacobian(position), expected, atol=1e-14)
    # The rate of the gap along a motion, against a central difference.
    difference = (gap(position + 1e-6 * velocity) - gap(position - 1e-6 * velocity)) / 2e-6
    np.testing.assert_allclose(
        contact_rate(jnp.asarray(expected), jnp.asarray(velocity)), difference, atol=1e-7
    )


def random_geometry(random, dimension) -> ContactGeometry:
    """Up to five bodies with some walls each and some pairs, in any order of the bodies."""
    bodies = int(random.integers(2, 6))
    walls = [
        Wall(int(body), tuple(unit_vector(random, dimension)), offset=random.normal())
        for body in random.integers(bodies, size=random.integers(0, 4))
    ]
    pairs = [
        Pair(*map(int, random.permutation(bodies)[:2]), offset=random.uniform())
        for _ in range(random.integers(0, 4))
    ]
    return ContactGeometry(bodies, dimension, (*walls, *pairs))


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_written_out_jacobian_is_the_derivative_of_the_gap(dimension, seed):
    """First derivatives by automatic differentiation of the gap, second ones of both."""
    random = np.random.default_rng(seed)
    geometry = random_geometry(random, dimension)
    position = jnp.asarray(random.normal(size=(geometry.bodies, dimension)))
    slope = jax.jacfwd(geometry.gap)
    functions = (geometry.jacobian, slope, jax.jacfwd(geometry.jacobian), jax.jacfwd(slope))
    written, expected, bend, curvature = jax.jit(lambda q: [function(q) for function in functions])(position)
    assert written.shape == (len(geometry.candidates), geometry.bodies, dimension)
    np.testing.assert_allclose(written, expected, atol=1e-14)
    np.testing.assert_allclose(bend, curvature, atol=1e-10)
    assert geometry.affine == (not np.any(curvature))


def test_on_a_line_the_gap_keeps_its_sign():
    line = ContactGeometry(3, 1, chain(3))
    np.testing.assert_array_equal(line.gap(jnp.array([[1.0], [0.0], [2.0]])), [1.0, -2.0])
    np.testing.assert_array_equal(line.incidence, [[True, True, False], [False, True, True]])
    assert line.coupled
    assert line.body_pairs.all()
    assert not ContactGeometry(2, 1, chain(2)).coupled


@settings(max_examples=20)
@given(seed=seeds)
def test_inertia_products(seed):
    random = np.random.default_rng(seed)
    factor, masses = cholesky_factor(random, 4), random.uniform(0.1, 10, 2)
    rows = np.stack([[unit_vector(random, 2), unit_vector(random, 2)] for _ in range(3)])
    velocity = random.normal(size=(2, 2))
    flat = rows.reshape(3, 4)
    for inertia, matrix in (
        (InertiaMatrix(jnp.asarray(factor)), factor @ factor.T),
        (Masses(jnp.asarray(masses)), np.diag(np.repeat(masses, 2))),
    ):
        momentum = (matrix @ velocity.ravel()).reshape(2, 2)
        np.testing.assert_allclose(inertia.momentum(jnp.asarray(velocity)), momentum, atol=1e-12)
        np.testing.assert_allclose(inertia.solve(jnp.asarray(momentum)), velocity, atol=1e-12)
        compliance = flat @ np.linalg.solve(matrix, flat.T)
        np.testing.assert_allclose(contact_compliance(inertia, jnp.asarray(rows)), compliance, atol=1e-12)
        energy = 0.5 * velocity.ravel() @ matrix @ velocity.ravel()
        np.testing.assert_allclose(kinetic_energy(inertia, jnp.asarray(velocity)), energy, rtol=1e-13)


@pytest.mark.parametrize(
    ("candidates", "complaint"),
    [
        ((Wall(3, (1.0,)),), "beyond the 2"),
        ((Pair(0, 0),), "with itself"),
        ((Wall(0, (1.0, 0.0)),), "1 components"),
        ((Wall(0, (0.5,)),), "length 1"),
        ((Pair(0, 1), Wall(0, (1.0,))), "walls before the pairs"),
    ],
)
def test_impossible_candidates_are_refused(candidates, complaint):
    with pytest.raises(InputError, match=complaint):
        ContactGeometry(2, 1, candidates)
