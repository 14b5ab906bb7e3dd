"""Products laid out for training have the values and gradients of plain ones."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.models import MODELS
from carom.networks import for_training
from carom.networks.products import narrowing_product, narrowing_sum, widening_product, widening_sum
from carom.systems import BouncingBall, NewtonsCradle
from carom.types import State


def plain(x, matrix, *, widening):
    return x @ matrix if widening else matrix @ x


KINDS = {"in training": (widening_product, narrowing_product), "sums": (widening_sum, narrowing_sum)}


def cases(widening: bool):
    """Vectors and matrices with either or both in batches, for one, two and many outputs."""
    random = np.random.default_rng(0)
    for outputs in (1, 2, 9):
        for batched in ((0, None), (None, 0), (0, 0)):
            rows = [(5,) if axis == 0 else () for axis in batched]
            shape = (3, outputs) if widening else (outputs, 3)
            x = random.normal(size=(*rows[0], 3))
            matrix = random.normal(size=(*rows[1], *shape))
            yield batched, x, matrix, random.normal(size=(5, outputs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("widening", [True, False])
def test_values_and_gradients(kind, widening):
    product = KINDS[kind][0 if widening else 1]

    def total(multiply, batched, x, matrix, weight):
        return jnp.sum(weight * jnp.sin(jax.vmap(multiply, in_axes=batched)(x, matrix)))

    batches, *numbers = zip(*cases(widening), strict=True)

    def all_cases(multiply, *numbers):
        derivative = jax.value_and_grad(total, argnums=(2, 3))
        return [derivative(multiply, *case) for case in zip(batches, *numbers, strict=True)]

    with jax.enable_x64(True):
        found = jax.jit(partial(all_cases, product))(*numbers)
        expected = jax.jit(partial(all_cases, partial(plain, widening=widening)))(*numbers)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), found, expected)


@pytest.mark.parametrize("name", ["cd-lagrange", "vin", "resnet", "contact-resnet"])
@pytest.mark.parametrize("system", [BouncingBall(), NewtonsCradle()], ids=["ball", "cradle"])
def test_models_in_training_are_the_same_models(name, system):
    recording = carom.simulate(system, steps=20, step_size=0.01)
    model = MODELS[name].for_recording(recording, hidden=12, key=jax.random.key(3))
    keys = jax.random.split(jax.random.key(4), 2)
    shape = (6, model.scene.bodies, model.scene.dimension)
    states = State(*(jax.random.normal(key, shape) for key in keys))
    signals = jnp.arange(6 * model.contact.size).reshape(6, -1) % 2 == 0

    def total(model):
        after = jax.vmap(model.step)(states, signals)
        logits = jax.vmap(model.contact_logits)(after)
        return jnp.sum(jnp.sin(after.position)) + jnp.sum(after.velocity**2) + jnp.sum(jnp.tanh(logits))

    ours = jax.jit(jax.grad(lambda m: total(for_training(m))))(model)
    expected = jax.jit(jax.grad(total))(model)
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), ours, expected)
