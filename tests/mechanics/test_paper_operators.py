"""The paper's A, normals and effective masses say the same as the contact Jacobian."""

import jax
import numpy as np
from hypothesis import given, settings

from carom.mechanics import Masses, generalised_impulse, restitution_impulse
from tests.mechanics.paper_operators import WALL, body_impulses, effective_masses, selection_matrix
from tests.mechanics.random_mechanics import seeds, unit_vector

BODIES, DIMENSION = 5, 2


@jax.jit
def by_bodies(partner, touching, masses, normals, before, smooth, restitution):
    selection = selection_matrix(partner, touching)
    impulses = body_impulses(selection, masses, normals, before, smooth, restitution=restitution)
    return selection, effective_masses(selection, masses), impulses


@jax.jit
def by_contacts(jacobian, masses, before, smooth, restitution):
    active = restitution * 0 + 1
    impulse = restitution_impulse(
        jacobian, Masses(masses), before, smooth, restitution=restitution, active=active
    )
    return generalised_impulse(jacobian, impulse)


@settings(max_examples=40)
@given(seed=seeds)
def test_both_forms_agree(seed):
    """Bodies in random order: one pair, one at a wall, two free."""
    random = np.random.default_rng(seed)
    first, second, at_wall, *_ = order = random.permutation(BODIES)
    partner, touching = np.full(BODIES, WALL), np.zeros(BODIES, bool)
    partner[first], partner[second] = second, first
    touching[order[:3]] = True
    between, outward = unit_vector(random, DIMENSION), unit_vector(random, DIMENSION)
    normals = random.normal(size=(BODIES, DIMENSION))
    normals[first], normals[second], normals[at_wall] = between, -between, outward
    masses, e = random.uniform(0.1, 10, BODIES), random.uniform()
    before, smooth = random.normal(size=(2, BODIES, DIMENSION))

    _, effective, impulses = map(np.asarray, by_bodies(partner, touching, masses, normals, before, smooth, e))
    jacobian = np.zeros((2, BODIES, DIMENSION))
    jacobian[0, at_wall], jacobian[1, first], jacobian[1, second] = outward, between, -between
    general = by_contacts(jacobian, masses, before, smooth, np.full(2, e))
    np.testing.assert_allclose(impulses, general, atol=1e-12)

    # And both are the elementary formulae for two bodies and for a wall.
    reduced = masses[first] * masses[second] / (masses[first] + masses[second])
    np.testing.assert_allclose(effective[[first, second, at_wall]], [reduced, reduced, masses[at_wall]])
    assert (effective[order[3:]] == 0).all()
    closing = e * before + smooth
    np.testing.assert_allclose(
        impulses[first], -reduced * between * (between @ (closing[first] - closing[second]))
    )
    np.testing.assert_allclose(impulses[second], -impulses[first], rtol=1e-12)
    np.testing.assert_allclose(impulses[at_wall], -masses[at_wall] * outward * (outward @ closing[at_wall]))
    assert (impulses[order[3:]] == 0).all()


def test_selection_matrix_by_hand():
    """Bodies 0 and 1 touch each other, 2 touches a wall, 3 nothing: rows sum to 0 except at the wall."""
    partner, touching = np.array([1, 0, WALL, WALL]), np.array([True, True, True, False])
    selection, *_ = by_bodies(
        partner, touching, np.ones(4), np.ones((4, 1)), np.zeros((4, 1)), np.zeros((4, 1)), 1.0
    )
    np.testing.assert_array_equal(selection, [[-1, 1, 0, 0], [1, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, 0]])
