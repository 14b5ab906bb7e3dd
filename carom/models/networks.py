"""The networks inside models: a potential with its gradient in closed form, and multilayer perceptrons."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from carom.errors import require_choice
from carom.models.products import narrowing_product, narrowing_sum, widening_product, widening_sum

Module = TypeVar("Module", bound=eqx.Module)
Activation = Literal["tanh", "softplus"]

_FUNCTION_AND_DERIVATIVE: dict[Activation, tuple[Callable, Callable]] = {
    "tanh": (jnp.tanh, lambda x: 1 - jnp.tanh(x) ** 2),
    "softplus": (jax.nn.softplus, jax.nn.sigmoid),
}


class PotentialNetwork(eqx.Module):
    """One hidden layer, U(q) = w · φ(W q + b); no output bias, since only differences of U matter.

    The gradient Wᵀ (w ⊙ φ′(W q + b)) is written out: training differentiates the force, and a closed form
    spares one level of automatic differentiation.
    """

    weight: Float[Array, "hidden coordinates"]
    bias: Float[Array, "hidden"]
    output: Float[Array, "hidden"]
    activation: Activation = eqx.field(static=True)
    in_training: bool = eqx.field(static=True, default=False)
    """Whether derivatives are gradients over batches; see `carom.models.products`."""

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return self.bias.shape[-1]

    def __call__(self, position: Float[Array, "bodies dimension"]) -> Float[Array, ""]:
        function, _ = _FUNCTION_AND_DERIVATIVE[self.activation]
        return self.output @ function(_affine(self.weight, self.bias, position.ravel()))

    def gradient(self, position: Float[Array, "bodies dimension"]) -> Float[Array, "bodies dimension"]:
        """∂U/∂q."""
        _, derivative = _FUNCTION_AND_DERIVATIVE[self.activation]
        # By (q, 1), whose last entry carries the bias, so that no axis of a product has length 1: XLA turns
        # such a product into a sum, and repeats for every hidden unit the arithmetic of a step that feeds it.
        kernel = _long_axis_last(jnp.column_stack([self.weight, self.bias]))
        extended = jnp.concatenate([position.ravel(), jnp.ones((1,), position.dtype)])
        widen, narrow = _products(self.in_training)
        slope = derivative(widen(extended, kernel))
        # The last weights join the kernel, which is there once, and not the slopes, of which there are many.
        return narrow(slope, self.output[None, :] * kernel)[:-1].reshape(position.shape)


class LinearisedPotential(eqx.Module):
    """A potential to first order in a change of its weights: U(q; θ) + ∂U/∂θ · δθ.

    Laplace's approximation holds for this one. A network with changed weights would bend where the data say
    nothing of single weights, however well they determine what the weights do together.
    """

    base: PotentialNetwork
    change: PotentialNetwork
    """δθ, in the place of weights."""

    @property
    def hidden(self) -> int:
        return self.base.hidden

    @property
    def activation(self) -> Activation:
        return self.base.activation

    def __call__(self, position: Float[Array, "bodies dimension"]) -> Float[Array, ""]:
        return self._changed(lambda potential: potential(position))

    def gradient(self, position: Float[Array, "bodies dimension"]) -> Float[Array, "bodies dimension"]:
        """∂U/∂q."""
        return self._changed(lambda potential: potential.gradient(position))

    def _changed(self, of: Callable[[PotentialNetwork], Array]) -> Array:
        value, tangent = jax.jvp(of, (self.base,), (self.change,))
        return value + tangent


def _affine(
    weight: Float[Array, "outputs inputs"],
    bias: Float[Array, "outputs"],
    x: Float[Array, "inputs"],
    *,
    in_training: bool = False,
) -> Float[Array, "outputs"]:
    """W x + b."""
    widen, narrow = _products(in_training)
    if weight.shape[0] <= weight.shape[1]:
        return narrow(x, weight) + bias
    if not in_training:
        return widen(x, _long_axis_last(weight)) + bias
    # As a row of the kernel, the derivative of the bias comes with that of the weights.
    kernel = _long_axis_last(jnp.column_stack([weight, bias]))
    return widen(jnp.concatenate([x, jnp.ones((1,), x.dtype)]), kernel)


def _products(in_training: bool) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """x K for more outputs than inputs, and W x for fewer."""
    if jax.default_backend() != "cpu":
        return widening_sum, narrowing_sum
    if in_training:
        return widening_product, narrowing_product
    return jnp.matmul, lambda x, weight: x @ weight.T


def for_training(model: Module) -> Module:
    """The model with networks that have fast gradients, and no derivatives in forward mode."""

    def network(part) -> bool:
        return isinstance(part, PotentialNetwork | Perceptron)

    return jax.tree.map(
        lambda part: replace(part, in_training=True) if network(part) else part, model, is_leaf=network
    )


def _long_axis_last(weight: Float[Array, "outputs inputs"]) -> Float[Array, "inputs outputs"]:
    """Wᵀ where outputs are many and inputs few, kept apart from the products that it enters.

    XLA would merge the transpose into them. On the CPU their derivative by the weights is ten times faster
    when its long axis is the last.
    """
    return jax.lax.optimization_barrier(weight.T) if jax.default_backend() == "cpu" else weight.T


def potential_network(
    coordinates: int, *, hidden: int, activation: Activation, key: Key[Array, ""] | None
) -> PotentialNetwork:
    """A random potential with Glorot-uniform kernels and zero biases; all zero without a key."""
    require_choice("activation", activation, Activation)
    if key is None:
        zeros = jnp.asarray(np.zeros((hidden, coordinates)))
        return PotentialNetwork(zeros, zeros[:, 0], zeros[:, 0], activation)
    first, second = jax.random.split(key)
    glorot = jax.nn.initializers.glorot_uniform()
    return PotentialNetwork(
        weight=glorot(first, (coordinates, hidden)).T,
        bias=jnp.zeros((hidden,)),
        output=glorot(second, (hidden, 1))[:, 0],
        activation=activation,
    )


class Perceptron(eqx.Module):
    """A fully connected network with a linear last layer.

    Written out rather than taken from Equinox, whose layers start from other distributions: Glorot-uniform
    kernels and zero biases are what the published baselines use.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, "_"], ...]
    activation: Literal["tanh", "relu"] = eqx.field(static=True)
    in_training: bool = eqx.field(static=True, default=False)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the hidden layers."""
        return tuple(bias.shape[-1] for bias in self.biases[:-1])

    def __call__(self, x: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        activation = jnp.tanh if self.activation == "tanh" else jax.nn.relu
        *hidden, (last_weight, last_bias) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = activation(_affine(weight, bias, x, in_training=self.in_training))
        return _affine(last_weight, last_bias, x, in_training=self.in_training)


def perceptron(
    sizes: tuple[int, ...], *, activation: Literal["tanh", "relu"], key: Key[Array, ""]
) -> Perceptron:
    """A random network of these layers, inputs and outputs included."""
    glorot = jax.nn.initializers.glorot_uniform()
    keys = jax.random.split(key, len(sizes) - 1)
    weights = tuple(
        glorot(layer_key, shape).T for layer_key, shape in zip(keys, pairwise(sizes), strict=True)
    )
    return Perceptron(weights, tuple(jnp.zeros((size,)) for size in sizes[1:]), activation)
