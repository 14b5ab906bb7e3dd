"""A potential to first order in its weights."""

import jax
import jax.numpy as jnp
import numpy as np

from carom.networks import LinearisedPotential, PotentialNetwork, potential_network


def changed(base: PotentialNetwork, change: PotentialNetwork, size: float) -> PotentialNetwork:
    return jax.tree.map(lambda weight, step: weight + size * step, base, change)


def test_it_is_the_limit_of_small_changes(float64):
    """Central differences of a network whose weights really change, in float64."""
    keys = jax.random.split(jax.random.key(3), 3)
    base = potential_network(4, hidden=7, activation="softplus", key=keys[0])
    base, change = (
        jax.tree.map(lambda leaf, key=key: jax.random.normal(key, leaf.shape, jnp.float64), base)
        for key in keys[1:]
    )
    position = jax.random.normal(keys[0], (2, 2), jnp.float64)
    linear, size = LinearisedPotential(base, change), 1e-5
    for of in (lambda p: p(position), lambda p: p.gradient(position)):
        slope = (of(changed(base, change, size)) - of(changed(base, change, -size))) / (2 * size)
        np.testing.assert_allclose(of(linear), of(base) + slope, rtol=1e-7)


def test_its_gradient_is_that_of_its_value(float64):
    key = jax.random.key(5)
    base = potential_network(2, hidden=9, activation="tanh", key=key)
    base = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape, jnp.float64), base)
    linear = LinearisedPotential(base, jax.tree.map(lambda leaf: 0.3 * leaf[::-1], base))
    position = jnp.array([[0.3, -0.8]])
    np.testing.assert_allclose(linear.gradient(position), jax.grad(linear)(position), rtol=1e-12)
