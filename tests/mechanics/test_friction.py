"""Coulomb's law for bodies that cannot spin: within the cone, against the slip, never gaining energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from carom.mechanics import ContactGeometry, Masses, Pair, Wall
from carom.mechanics.friction import friction_impulses, frictional, holding_forces, removed_slip
from tests.mechanics.random_mechanics import seeds, unit_vector

WALLS_AND_PAIRS = ContactGeometry(
    3,
    3,
    (
        Wall(0, (0.0, 0.0, 1.0)),
        Wall(1, (0.6, 0.0, 0.8)),
        Pair(0, 1, 0.5),
        Pair(1, 2, 0.5),
        Pair(2, 0, 0.5),
    ),
)
SIGNS = WALLS_AND_PAIRS.signs


@jax.jit
def braking(position, velocity, masses, impulse, friction):
    contacts = frictional(WALLS_AND_PAIRS.jacobian(position), Masses(masses), SIGNS, friction=friction)
    push = friction_impulses(contacts, velocity, impulse)
    return push, velocity + contacts.momentum(push) / masses[:, None], contacts.normal


@settings(max_examples=100)
@given(seed=seeds)
def test_impulses_lie_in_the_cone_and_never_add_energy(seed):
    """Contacts that share bodies, any μ and any normal impulses, some of them none."""
    random = np.random.default_rng(seed)
    position, velocity = random.normal(size=(2, 3, 3))
    masses = random.uniform(0.1, 10, 3)
    impulse = np.maximum(random.normal(size=5), 0)
    friction = random.uniform(0, 2, 5)
    push, after, normal = (np.asarray(x) for x in braking(position, velocity, masses, impulse, friction))
    assert (np.linalg.norm(push, axis=1) <= friction * impulse * (1 + 1e-12) + 1e-15).all()
    np.testing.assert_allclose(np.sum(push * normal, axis=1), 0, atol=1e-13)
    assert masses @ np.sum(after**2, axis=1) <= masses @ np.sum(velocity**2, axis=1) * (1 + 1e-14)


@settings(max_examples=50)
@given(seed=seeds)
def test_one_contact_sticks_or_slides(seed):
    """One pair: what is left of the slip is what μ λ could not take, in the same direction."""
    random = np.random.default_rng(seed)
    slip, impulse = random.uniform(0, 3), random.uniform(0, 3)
    mu, compliance = random.uniform(0, 2), random.uniform(0.2, 3)
    share = float(
        removed_slip(
            jnp.asarray(slip),
            jnp.asarray(impulse),
            friction=jnp.asarray(mu),
            compliance=jnp.asarray(compliance),
        )
    )
    left = slip - compliance * min(mu * impulse, slip / compliance)
    np.testing.assert_allclose((1 - share) * slip, left, atol=1e-14)
    assert 0 <= share <= 1


def test_normals_are_those_of_the_jacobian():
    random = np.random.default_rng(0)
    position = jnp.asarray(random.normal(size=(3, 3)))
    jacobian = WALLS_AND_PAIRS.jacobian(position)
    rows = WALLS_AND_PAIRS.rows
    normal = np.asarray(rows.normal_of(rows.relative(position)))
    velocity = random.normal(size=(3, 3))
    rates = np.einsum("ckd,kd->c", np.asarray(jacobian), velocity)
    np.testing.assert_allclose(np.sum(normal * (SIGNS @ velocity), axis=1), rates, atol=1e-14)


def held(geometry, masses, pull, velocity, mu):
    """Accelerations of bodies on which `pull` acts, all candidates closed; and the forces."""
    contacts = frictional(
        geometry.jacobian(jnp.zeros(pull.shape)),
        Masses(jnp.asarray(masses)),
        geometry.signs,
        friction=jnp.full(len(geometry.candidates), mu),
    )
    closed = jnp.ones(len(geometry.candidates), bool)
    slip = contacts.across(contacts.relative(jnp.asarray(velocity)))
    force = holding_forces(
        contacts, contacts.relative(jnp.asarray(pull)), slip, closed=closed, rest_speed=1e-9
    )
    return np.asarray(pull + contacts.momentum(force) / np.asarray(masses)[:, None]), np.asarray(force)


@pytest.mark.parametrize(("mu", "slides"), [(0.2, True), (0.5, False)])
def test_a_block_on_a_slope(mu, slides):
    """tan 20° = 0.364. At rest: held, or pulled down with g (sin α − μ cos α)."""
    slope = np.radians(20)
    normal, down = np.array([np.sin(slope), np.cos(slope)]), np.array([np.cos(slope), -np.sin(slope)])
    geometry = ContactGeometry(1, 2, (Wall(0, tuple(normal)),))
    acceleration, _ = held(geometry, [2.0], np.array([[0.0, -9.81]]), np.zeros((1, 2)), mu)
    expected = 9.81 * (np.sin(slope) - mu * np.cos(slope)) * down if slides else np.zeros(2)
    np.testing.assert_allclose(acceleration[0], expected, atol=1e-12)


def test_sliding_in_a_corner_of_two_walls():
    """A body slides along a V of half angle 30°: each wall pushes with m g/(2 sin 30°) and drags μ of it."""
    half = np.radians(30)
    left, right = (np.cos(half), 0.0, np.sin(half)), (-np.cos(half), 0.0, np.sin(half))
    geometry = ContactGeometry(1, 3, (Wall(0, left), Wall(0, right)))
    velocity = np.array([[0.0, 1.5, 0.0]])
    acceleration, force = held(geometry, [2.0], np.array([[0.0, 0.0, -9.81]]), velocity, 0.1)
    push = 2.0 * 9.81 / (2 * np.sin(half))
    np.testing.assert_allclose(np.sum(force * [left, right], axis=1), push, atol=1e-11)
    np.testing.assert_allclose(acceleration[0], [0.0, -2 * 0.1 * push / 2.0, 0.0], atol=1e-11)


@settings(max_examples=30)
@given(seed=seeds, mu=st.sampled_from([0.1, 0.5, 1.5]))
def test_resting_forces_satisfy_their_law(seed, mu):
    """Random walls on one body in space, at rest: complementarity, cone, and friction against what starts."""
    random = np.random.default_rng(seed)
    walls = tuple(Wall(0, tuple(unit_vector(random, 3))) for _ in range(2))
    geometry = ContactGeometry(1, 3, walls)
    normals = np.array([wall.normal for wall in walls])
    # Between walls that almost face each other the sweeps converge slowly, and may end before they have.
    assume(normals[0] @ normals[1] > -0.9)
    pull = random.normal(size=(1, 3))
    acceleration, force = held(geometry, [1.0], pull, np.zeros((1, 3)), mu)
    push, opening = np.sum(force * normals, axis=1), normals @ acceleration[0]
    drag = force - push[:, None] * normals
    assert (push >= -1e-10).all()
    assert (opening >= -1e-7).all()
    np.testing.assert_allclose(push * opening, 0, atol=1e-6)
    assert (np.linalg.norm(drag, axis=1) <= mu * push * (1 + 1e-9) + 1e-10).all()
    # Friction does no work on what begins to move.
    across = acceleration[0] - opening[:, None] * normals
    assert (np.sum(drag * across, axis=1) <= 1e-6).all()
