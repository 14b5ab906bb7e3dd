"""A scalar potential by a network of one hidden layer."""

import functools
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from carom.errors import require_choice
from carom.networks.products import affine, long_axis_last, products

Activation = Literal["tanh", "softplus"]

_FUNCTION_AND_DERIVATIVE: dict[Activation, tuple[Callable, Callable]] = {
    "tanh": (jnp.tanh, lambda x: 1 - jnp.tanh(x) ** 2),
    "softplus": (jax.nn.softplus, jax.nn.sigmoid),
}


class PotentialNetwork(eqx.Module):
    """One hidden layer, U(q) = w · φ(W q + b); no output bias, since only differences of U matter.

    The gradient Wᵀ (w ⊙ φ′(W q + b)) is written out: training differentiates the force, and a closed form
    saves one level of automatic differentiation.
    """

    weight: Float[Array, "hidden coordinates"]
    bias: Float[Array, "hidden"]
    output: Float[Array, "hidden"]
    activation: Activation = eqx.field(static=True)
    in_training: bool = eqx.field(static=True, default=False)
    """Whether only gradients over batches are needed; see `carom.networks.products`."""

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return self.bias.shape[-1]

    def __call__(self, position: Float[Array, "bodies dimension"]) -> Float[Array, ""]:
        function, _ = _FUNCTION_AND_DERIVATIVE[self.activation]
        return self.output @ function(affine(self.weight, self.bias, position.ravel()))

    def gradient(self, position: Float[Array, "bodies dimension"]) -> Float[Array, "bodies dimension"]:
        """∂U/∂q."""
        _, derivative = _FUNCTION_AND_DERIVATIVE[self.activation]
        # The input is (q, 1), whose last entry carries the bias, so that no axis of a product has length 1:
        # XLA turns such a product into a sum, and repeats for every hidden unit the arithmetic that feeds it.
        kernel = long_axis_last(jnp.column_stack([self.weight, self.bias]))
        extended = jnp.concatenate([position.ravel(), jnp.ones((1,), position.dtype)])
        widen, narrow = products(self.in_training)
        slope = derivative(widen(extended, kernel))
        # The output weights multiply the kernel, which exists once, rather than the slopes of a whole batch.
        return narrow(slope, self.output[None, :] * kernel)[:-1].reshape(position.shape)


def potential_network(
    coordinates: int, *, hidden: int, activation: Activation, key: Key[Array, ""]
) -> PotentialNetwork:
    """A random potential with Glorot-uniform kernels and zero biases."""
    require_choice("activation", activation, Activation)
    weight, output = _kernels(key, coordinates, hidden)
    return PotentialNetwork(weight, jnp.zeros((hidden,)), output, activation)


@functools.partial(jax.jit, static_argnames=("coordinates", "hidden"))
def _kernels(
    key: Key[Array, ""], coordinates: int, hidden: int
) -> tuple[Float[Array, "hidden coordinates"], Float[Array, "hidden"]]:
    first, second = jax.random.split(key)
    glorot = jax.nn.initializers.glorot_uniform()
    return glorot(first, (coordinates, hidden)).T, glorot(second, (hidden, 1))[:, 0]
