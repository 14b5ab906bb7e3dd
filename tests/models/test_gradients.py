"""Gradients of every model against finite differences, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.models import batched_rollout, rollout
from carom.networks import PotentialNetwork, perceptron
from carom.types import State
from tests.campaign import shortened
from tests.models.conftest import KINDS

in_the_plane = pytest.mark.parametrize("scene", shortened(["ball", "plane"], ["ball"]), indirect=True)
"""Bodies of unlike mass with walls and a pair: a ball on a line has nothing that these have not."""


def _random_model(kind, scene):
    """A model whose biases are not zero, so that no gradient vanishes by symmetry."""
    model = kind(scene, jax.random.key(3))
    parameters, fixed = eqx.partition(model, eqx.is_inexact_array)
    generator = np.random.default_rng(4)
    moved = jax.tree.map(lambda x: jnp.asarray(x + 0.3 * generator.normal(size=x.shape)), _numpy(parameters))
    return eqx.combine(moved, fixed)


def _numpy(tree):
    """The same numbers for arithmetic by NumPy, which compiles no program for every shape."""
    return jax.tree.map(np.asarray, tree)


def _windows(scene, count, steps, model):
    generator = np.random.default_rng(5)
    shape = (count, scene.bodies, scene.dimension)
    start = State(jnp.asarray(generator.uniform(1, 2, shape)), jnp.asarray(generator.uniform(-1, 1, shape)))
    touch = generator.uniform(size=(count, steps, scene.bodies)) < 0.3
    there = jnp.broadcast_to(start.position[:, None], (count, steps, *start.position.shape[1:]))
    contact = jax.jit(jax.vmap(jax.vmap(model.contact.from_touch)))(touch, there)
    return start, contact


def _directional_check(function, parameters, *, tolerance):
    """Compare the gradient along random directions with central differences, by one compiled program."""
    value_and_gradient = jax.jit(jax.value_and_grad(function))
    parameters = _numpy(parameters)
    _, gradient = value_and_gradient(parameters)
    size = 1e-6  # so small that the step rarely crosses the corner of a relu
    for seed in range(3):
        generator = np.random.default_rng(seed)
        direction = jax.tree.map(lambda x, random=generator: random.normal(size=x.shape), parameters)
        moved = [jax.tree.map(lambda x, d, s=s: x + s * d, parameters, direction) for s in (size, -size)]
        (ahead, _), (behind, _) = map(value_and_gradient, moved)
        expected = (ahead - behind) / (2 * size)
        found = sum(np.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    return gradient


@in_the_plane
def test_ten_step_rollout_and_contact_logits(kind, scene):
    """With respect to the weights and the start state."""
    model = _random_model(kind, scene)
    parameters, fixed = eqx.partition(model, eqx.is_inexact_array)
    start, contact = _windows(scene, 1, 10, model)

    def loss(inputs):
        parameters, start = inputs
        model = eqx.combine(parameters, fixed)
        states = rollout(model, start, contact[0])
        logits = model.contact_logits(start)
        return jnp.mean(states.position**2) + jnp.mean(states.velocity**2) + jnp.sum(logits**2)

    first = jax.tree.map(lambda x: x[0], start)
    _directional_check(loss, (parameters, first), tolerance=1e-6)


@in_the_plane
def test_batched_rollout_equals_plain_rollout_with_its_gradient(kind, scene):
    """All windows in unrolled steps give the same as a scan over each window."""
    model = _random_model(kind, scene)
    parameters, fixed = eqx.partition(model, eqx.is_inexact_array)
    start, contact = _windows(scene, 3, 4, model)
    weights = jnp.asarray(np.random.default_rng(6).standard_normal((3, 5, scene.bodies, scene.dimension)))

    def score(position, velocity):
        return jnp.sum(weights * position) + jnp.sum(jnp.sin(weights * velocity))

    def unrolled(inputs):
        states = batched_rollout(eqx.combine(inputs[0], fixed), inputs[1], contact, steps=4)
        return score(states.position, states.velocity)

    def by_scan(inputs):
        model = eqx.combine(inputs[0], fixed)

        def one(state, contact):
            def step(state, signal):
                after = model.step(state, signal)
                return after, after

            _, after = jax.lax.scan(step, state, contact)
            return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), state, after)

        states = jax.vmap(one)(inputs[1], contact)
        return score(states.position, states.velocity)

    value, gradient = jax.jit(jax.value_and_grad(unrolled))((parameters, start))
    expected, expected_gradient = jax.jit(jax.value_and_grad(by_scan))((parameters, start))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for found, wanted in zip(*map(jax.tree.leaves, (gradient, expected_gradient)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


def test_gated_rollout_gradient_against_finite_differences(scene):
    """Without touch the soft contact signal is part of the step and receives a gradient through it."""
    model = _random_model(KINDS["cd-lagrange, half grid"], scene)
    parameters, fixed = eqx.partition(model, eqx.is_inexact_array)
    start, _ = _windows(scene, 2, 4, model)

    def loss(parameters):
        states = batched_rollout(eqx.combine(parameters, fixed), start, None, steps=4)
        return jnp.mean(states.position**2) + jnp.mean(states.velocity**2)

    gradient = _directional_check(loss, parameters, tolerance=1e-5)
    contact_gradient = jax.tree.leaves(gradient.contact)
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in contact_gradient) > 0


def test_potential_gradient_in_closed_form():
    """∇U written out equals automatic differentiation of U, for few and for many coordinates."""
    generator = np.random.default_rng(0)
    for activation in ("tanh", "softplus"):
        for coordinates, shape in ((1, (1, 1)), (2, (2, 1)), (6, (2, 3)), (10, (5, 2))):
            network = PotentialNetwork(
                weight=jnp.asarray(generator.standard_normal((20, coordinates))),
                bias=jnp.asarray(generator.standard_normal(20)),
                output=jnp.asarray(generator.standard_normal(20)),
                activation=activation,
            )
            position = jnp.asarray(generator.standard_normal(shape))
            np.testing.assert_allclose(network.gradient(position), jax.grad(network)(position), rtol=1e-10)


def test_perceptron_backpropagation_written_out():
    """Outputs and gradients of a batch against NumPy, for layers that widen, keep and narrow."""
    generator = np.random.default_rng(7)
    network = perceptron((3, 20, 20, 2), activation="tanh", key=jax.random.key(8))
    biases = tuple(jnp.asarray(generator.standard_normal(bias.shape)) for bias in network.biases)
    network = eqx.tree_at(lambda n: n.biases, network, biases)
    inputs, cotangent = generator.standard_normal((9, 3)), generator.standard_normal((9, 2))

    layers = [inputs]
    for weight, bias in zip(network.weights, network.biases, strict=True):
        value = layers[-1] @ np.asarray(weight).T + np.asarray(bias)
        layers.append(value if len(weight) == 2 else np.tanh(value))
    np.testing.assert_allclose(jax.vmap(network)(jnp.asarray(inputs)), layers[-1], rtol=1e-12)

    def score(network, inputs):
        return jnp.sum(jnp.asarray(cotangent) * jax.vmap(network)(inputs))

    by_weights = jax.jit(jax.grad(score))(network, jnp.asarray(inputs))
    by_inputs = jax.jit(jax.grad(score, argnums=1))(network, jnp.asarray(inputs))
    backward = cotangent
    for index in (2, 1, 0):
        np.testing.assert_allclose(by_weights.weights[index], backward.T @ layers[index], rtol=1e-10)
        np.testing.assert_allclose(by_weights.biases[index], backward.sum(axis=0), rtol=1e-10)
        backward = backward @ np.asarray(network.weights[index])
        if index:
            backward = backward * (1 - layers[index] ** 2)
    np.testing.assert_allclose(by_inputs, backward, rtol=1e-10)
