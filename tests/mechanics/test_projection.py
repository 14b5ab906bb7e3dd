"""Removing overlap: who is moved, how far, and who is not."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings

from carom.mechanics import ContactGeometry, InertiaMatrix, Masses, Pair, Wall, chain, project_overlap
from tests.mechanics.random_mechanics import cholesky_factor, seeds

RADII = 2.0
PLANE = ContactGeometry(3, 2, (Wall(2, (0.0, 1.0)), Pair(0, 1, offset=RADII)))
TOUCHING = jnp.array([True, True])


@settings(max_examples=25)
@given(seed=seeds)
def test_inverse_mass_moves_a_pair_to_gap_zero_about_its_centre_of_mass(seed):
    random = np.random.default_rng(seed)
    masses, position = random.uniform(0.1, 10, 3), random.normal(size=(3, 2))
    position[1] = position[0] + random.uniform(0.2, 0.9) * (position[1] - position[0])
    position[2, 1] = -0.3
    before = np.linalg.norm(position[0] - position[1])
    moved = np.asarray(
        project_overlap("inverse_mass", PLANE, Masses(jnp.asarray(masses)), jnp.asarray(position), TOUCHING)
    )
    if before < RADII:
        np.testing.assert_allclose(np.linalg.norm(moved[0] - moved[1]), RADII, rtol=1e-13)
        shift = np.linalg.norm(moved - position, axis=1)
        np.testing.assert_allclose(shift[0] * masses[0], shift[1] * masses[1], rtol=1e-9)
    else:
        np.testing.assert_array_equal(moved[:2], position[:2])
    np.testing.assert_allclose(masses[:2] @ moved[:2], masses[:2] @ position[:2], atol=1e-12)
    # The third body overlaps its wall by 0.3 and stays: walls are not projected.
    np.testing.assert_array_equal(moved[2], position[2])


@settings(max_examples=25)
@given(seed=seeds)
def test_inverse_mass_with_full_inertia(seed):
    """On a line the gap is linear, so M⁻¹ Gᵀ moves it to zero at once whatever M couples."""
    random = np.random.default_rng(seed)
    factor, overlap = cholesky_factor(random, 2), random.uniform(0, 1)
    start = random.normal()
    position = np.array([[start - overlap], [start]])
    moved = np.asarray(
        project_overlap(
            "inverse_mass",
            ContactGeometry(2, 1, chain(2)),
            InertiaMatrix(jnp.asarray(factor)),
            jnp.asarray(position),
            jnp.array([True]),
        )
    )
    np.testing.assert_allclose(moved[0], moved[1], atol=1e-12)


def test_reference_point_moves_touching_pairs_there():
    geometry, inertia = ContactGeometry(3, 1, chain(3)), Masses(jnp.ones(3))
    position, reference = jnp.array([[-0.1], [0.2], [-0.5]]), ((0.0,), (0.0,), (0.0,))
    moved = project_overlap(
        "reference_point", geometry, inertia, position, jnp.array([True, False]), reference=reference
    )
    np.testing.assert_array_equal(moved, [[0.0], [0.0], [-0.5]])


def test_nothing_moves_without_contact_or_without_projection():
    inertia, position = Masses(jnp.ones(3)), jnp.array([[0.0, 0.0], [0.1, 0.0], [0.0, -1.0]])
    for mode, touching in (("none", TOUCHING), ("inverse_mass", ~TOUCHING), ("reference_point", ~TOUCHING)):
        moved = project_overlap(mode, PLANE, inertia, position, touching, reference=((0.0, 0.0),) * 3)
        np.testing.assert_array_equal(moved, position)


def test_walls_alone_are_never_projected():
    floor = ContactGeometry(1, 1, (Wall(0, (1.0,)),))
    position = jnp.array([[-0.4]])
    for mode in ("inverse_mass", "reference_point"):
        moved = project_overlap(
            mode, floor, Masses(jnp.ones(1)), position, jnp.array([True]), reference=((0.0,),)
        )
        np.testing.assert_array_equal(moved, position)
