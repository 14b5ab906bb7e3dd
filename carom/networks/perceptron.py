"""Multilayer perceptrons, and networks in the form that training differentiates fastest."""

import functools
from dataclasses import replace
from itertools import pairwise
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from carom.errors import require_choice
from carom.networks.potential import PotentialNetwork
from carom.networks.products import affine

PerceptronActivation = Literal["tanh", "relu", "softplus"]
Module = TypeVar("Module", bound=eqx.Module)


class Perceptron(eqx.Module):
    """A fully connected network with a linear last layer.

    Written out rather than taken from Equinox, whose layers start from other distributions: Glorot-uniform
    kernels and zero biases are what the published baselines use.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, "_"], ...]
    activation: PerceptronActivation = eqx.field(static=True)
    in_training: bool = eqx.field(static=True, default=False)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the hidden layers."""
        return tuple(bias.shape[-1] for bias in self.biases[:-1])

    def __call__(self, x: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        activation = {"tanh": jnp.tanh, "relu": jax.nn.relu, "softplus": jax.nn.softplus}[self.activation]
        *hidden, (last_weight, last_bias) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = activation(affine(weight, bias, x, in_training=self.in_training))
        return affine(last_weight, last_bias, x, in_training=self.in_training)


def perceptron(
    sizes: tuple[int, ...], *, activation: PerceptronActivation, key: Key[Array, ""]
) -> Perceptron:
    """A random network with these layer sizes, inputs and outputs included."""
    require_choice("activation", activation, PerceptronActivation)
    return Perceptron(_kernels(key, sizes), tuple(jnp.zeros((size,)) for size in sizes[1:]), activation)


@functools.partial(jax.jit, static_argnames="sizes")
def _kernels(key: Key[Array, ""], sizes: tuple[int, ...]) -> tuple[Float[Array, "_ _"], ...]:
    glorot = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(sizes) - 1)
    # Transposed, because the initialiser counts inputs along the first axis of a shape.
    return tuple(glorot(layer_key, shape).T for layer_key, shape in zip(keys, pairwise(sizes), strict=True))


def for_training(model: Module) -> Module:
    """The model with networks whose gradients are fast, and which have no forward-mode derivatives."""

    # A static field, so that the choice costs nothing in the compiled program.
    def is_network(part) -> bool:
        return isinstance(part, PotentialNetwork | Perceptron)

    return jax.tree.map(
        lambda part: replace(part, in_training=True) if is_network(part) else part, model, is_leaf=is_network
    )
