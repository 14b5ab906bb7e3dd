"""A learned potential to first order in its weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from carom.forces import LearnedJointPotential, LinearisedPotentialForce
from carom.mechanics import Scene

MASSES, POSITION = np.ones(2), np.array([[0.3, -0.8], [0.5, 0.1]])


def random_potential(seed: int) -> LearnedJointPotential:
    force = LearnedJointPotential.for_scene(Scene(bodies=2, dimension=2), hidden=7)
    shapes = [part.shape for part in force.network.weights]
    keys = jax.random.split(jax.random.key(seed), 3)
    weights = tuple(jax.random.normal(k, shape, jnp.float64) for k, shape in zip(keys, shapes, strict=True))
    return eqx.tree_at(lambda f: f.network.weights, force, weights)


def test_it_is_the_limit_of_small_changes(float64):
    """Central differences of a network whose weights really change, in float64."""
    base, change, size = random_potential(3), random_potential(4).network, 1e-5
    linear, masses, position = (
        LinearisedPotentialForce(base, change),
        jnp.asarray(MASSES),
        jnp.asarray(POSITION),
    )

    def moved(sign: int) -> LearnedJointPotential:
        pairs = zip(base.network.weights, change.weights, strict=True)
        weights = tuple(weight + sign * size * step for weight, step in pairs)
        return eqx.tree_at(lambda f: f.network.weights, base, weights)

    for of in (lambda f: f.energy(position, masses), lambda f: f.gradient(position, masses)):
        slope = (of(moved(1)) - of(moved(-1))) / (2 * size)
        np.testing.assert_allclose(of(linear), of(base) + slope, rtol=1e-7)


def test_its_gradient_is_that_of_its_energy(float64):
    linear = LinearisedPotentialForce(random_potential(5), random_potential(6).network)
    masses, position = jnp.asarray(MASSES), jnp.asarray(POSITION)
    expected = jax.grad(linear.energy)(position, masses)
    np.testing.assert_allclose(linear.gradient(position, masses), expected, rtol=1e-12)
