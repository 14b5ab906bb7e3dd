"""What models keep of mechanics whatever their weights."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.mechanics import Pair, Scene, Wall
from carom.models import (
    CandidateContact,
    CDLagrangeNetwork,
    VariationalIntegratorNetwork,
    forecast,
    rollout,
)
from carom.types import State

BALL = Scene(1, 1, (Wall(0, (1.0,)),), restitution=0.6)


def _state(position, velocity):
    return State(jnp.asarray(position, float), jnp.asarray(velocity, float))


@pytest.mark.parametrize("seed", range(5))
def test_wall_contact_reverses_the_normal_velocity(seed):
    """v⁺ = −e v⁻ exactly, for random weights, where the contact is given."""
    model = CDLagrangeNetwork(
        replace(BALL, velocity_grid="sample"), 0.02, hidden=16, key=jax.random.key(seed)
    )
    velocity = float(np.random.default_rng(seed).uniform(-5, -1))
    after = model.step(_state([[0.1]], [[velocity]]), jnp.ones((1,), bool))
    np.testing.assert_allclose(after.velocity, [[-0.6 * velocity]], rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_pair_contact_exchanges_momentum_by_the_learned_masses(seed):
    """With learned inertia, u⁺ = −e u⁻, and the momentum of the smooth step changes only along Gᵀ."""
    scene = Scene(2, 1, (Pair(0, 1),), restitution=0.5, velocity_grid="sample")
    model = CDLagrangeNetwork(scene, 0.01, hidden=16, learn_inertia=True, key=jax.random.key(seed))
    generator = np.random.default_rng(seed)
    start = _state(generator.uniform(-1, 1, (2, 1)), [[-1.0], [2.0]])
    touched, free = (model.step(start, jnp.array([flag])) for flag in (True, False))
    relative = touched.velocity[0, 0] - touched.velocity[1, 0]
    np.testing.assert_allclose(relative, -0.5 * (-1.0 - 2.0), rtol=1e-12)
    inertia = model.inertia()
    change = inertia.momentum(touched.velocity) - inertia.momentum(free.velocity)
    np.testing.assert_allclose(change[0, 0], -change[1, 0], rtol=1e-10)


def test_smooth_models_conserve_their_own_energy():
    """Half-grid CD-Lagrange without contact, and velocity Verlet, keep ½v² + U bounded for random weights."""
    scene = Scene(1, 1)
    for model in (
        CDLagrangeNetwork(scene, 0.01, hidden=16, key=jax.random.key(0)),
        VariationalIntegratorNetwork(scene, 0.01, hidden=16, key=jax.random.key(0)),
    ):
        motion = forecast(model, _state([[0.3]], [[0.5]]), 20_000)
        energy = 0.5 * motion.velocity[:, 0, 0] ** 2 + jax.vmap(model.potential)(motion.position)
        assert float(jnp.ptp(energy)) < 1e-4


def test_stormer_verlet_forecasts_what_velocity_verlet_does():
    """The two schemes are the same motion: positions and velocities agree from the same start state."""
    scene = Scene(2, 1)
    one = VariationalIntegratorNetwork(scene, 0.05, hidden=16, key=jax.random.key(1))
    other = VariationalIntegratorNetwork(
        scene, 0.05, hidden=16, scheme="stormer_verlet", key=jax.random.key(1)
    )
    start = _state([[0.3], [-0.4]], [[0.5], [1.0]])
    expected, found = forecast(one, start, 200), forecast(other, start, 200)
    np.testing.assert_allclose(found.position, expected.position, atol=1e-9)
    np.testing.assert_allclose(found.velocity, expected.velocity, atol=1e-7)


def test_half_grid_without_contact_is_velocity_verlet():
    model = CDLagrangeNetwork(Scene(1, 2), 0.03, hidden=16, key=jax.random.key(2))
    verlet = VariationalIntegratorNetwork(Scene(1, 2), 0.03, hidden=16, key=jax.random.key(9))
    verlet = eqx.tree_at(lambda m: m.potential, verlet, model.potential)
    start = _state([[0.3, 0.1]], [[0.5, -0.2]])
    contact = jnp.zeros((100, 0), bool)
    expected, found = rollout(verlet, start, contact), rollout(model, start, contact)
    np.testing.assert_allclose(found.position, expected.position, atol=1e-12)
    np.testing.assert_allclose(found.velocity, expected.velocity, atol=1e-12)


def test_cradle_of_four_passes_the_momentum_through():
    """Given touched contacts, the learned model hands the speed to the last ball, like the system does."""
    scene = Scene(4, 1, (Pair(0, 1), Pair(1, 2), Pair(2, 3)), velocity_grid="sample")
    model = CDLagrangeNetwork(scene, 1e-6, hidden=4, key=jax.random.key(0))
    after = model.step(_state(np.zeros((4, 1)), [[-1.0], [0], [0], [0]]), jnp.ones((3,), bool))
    np.testing.assert_allclose(after.velocity[:, 0], [0, 0, 0, -1], atol=1e-5)


def test_touch_is_the_or_of_contacts():
    scene = Scene(3, 1, (Pair(0, 1), Pair(1, 2)))
    signal = CandidateContact(scene, hidden=(4,), key=jax.random.key(0))
    assert signal.to_touch(jnp.array([True, False])).tolist() == [True, True, False]
    apart = jnp.array([[1.0], [0.0], [-1.0]])
    assert signal.from_touch(jnp.array([True, True, False]), apart).tolist() == [True, False]
    assert signal.from_touch(jnp.array([True, True, True]), apart).tolist() == [True, True]
    logits = jnp.array([0.3, -1.2])
    p = 1 / (1 + np.exp(-np.array([0.3, -1.2])))
    touched = np.array([p[0], 1 - (1 - p[0]) * (1 - p[1]), p[1]])
    expected = -np.mean(np.log([touched[0], touched[1], 1 - touched[2]]))
    found = signal.cross_entropy(logits, jnp.array([True, True, False]))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_damping_takes_energy_out_and_inertia_stays_positive():
    """Whatever the raw parameters are."""
    scene = Scene(2, 2)
    for seed in range(5):
        model = CDLagrangeNetwork(
            scene, 0.01, hidden=4, learn_inertia=True, learn_damping=True, key=jax.random.key(seed)
        )
        raw = jax.random.normal(jax.random.key(seed), (2, 4, 4))
        model = eqx.tree_at(
            lambda m: (m.learned_inertia.raw, m.learned_damping.factor), model, (raw[0], raw[1])
        )
        velocity = jax.random.normal(jax.random.key(seed + 100), (2, 2))
        assert float(jnp.sum(velocity * model.inertia().momentum(velocity))) > 0
        damping = model.force(velocity, velocity) - model.force(velocity, jnp.zeros_like(velocity))
        assert float(jnp.sum(velocity * damping)) <= 0
        np.testing.assert_allclose(
            model.inertia().solve(model.inertia().momentum(velocity)), velocity, rtol=1e-8
        )


def test_a_touched_body_feels_the_wall_beside_it():
    """Floor and ceiling of one ball; a corner; both walls where both overlap."""
    between = Scene(1, 1, (Wall(0, (1.0,)), Wall(0, (-1.0,), -3.0)))
    signal = CandidateContact(between, hidden=(4,), key=jax.random.key(0))
    touched = jnp.ones((1,), bool)
    assert signal.from_touch(touched, jnp.array([[0.1]])).tolist() == [True, False]
    assert signal.from_touch(touched, jnp.array([[2.9]])).tolist() == [False, True]
    assert signal.from_touch(~touched, jnp.array([[2.9]])).tolist() == [False, False]
    corner = CandidateContact(
        Scene(1, 2, (Wall(0, (1.0, 0.0)), Wall(0, (0.0, 1.0)))), hidden=(4,), key=jax.random.key(0)
    )
    assert corner.from_touch(touched, jnp.array([[0.5, -0.01]])).tolist() == [False, True]
    assert corner.from_touch(touched, jnp.array([[-0.02, -0.01]])).tolist() == [True, True]


def test_opposite_walls_flagged_together_stay_finite():
    """A forecast may flag both; the read-out on the half grid must not divide by a singular matrix."""
    scene = Scene(1, 1, (Wall(0, (1.0,)), Wall(0, (-1.0,), -3.0)))
    model = CDLagrangeNetwork(scene, 0.02, hidden=4, key=jax.random.key(0))
    before = _state([[0.1]], [[-1.0]])
    both = jnp.ones((2,), bool)
    after = model.step(before, both)
    assert np.isfinite(model.leave(before, after, both).velocity).all()
