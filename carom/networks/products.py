"""Matrix–vector products of dense layers, each in the form that the device computes fastest.

On a GPU thin products are written as sums, which XLA fuses into one kernel with the code around them. On the
CPU their derivatives are laid out for training: under `vmap` a product with fixed weights is a matrix product
with one row per batch element. Its derivative with respect to the weights multiplies transposed cotangents by
inputs, which XLA does slowly unless the long axis comes last and the first factor is contiguous in memory.
Automatic differentiation leaves neither to choose, so the backward pass is written out here. The price is
forward mode: the products for training can be differentiated in reverse mode only.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, "inputs"]
Rows = Float[Array, "rows inputs"]
Results = Float[Array, "rows outputs"]
Kernel = Float[Array, "inputs outputs"]
Weight = Float[Array, "outputs inputs"]
Product = Callable[..., Float[Array, "outputs"]]
THIN = 8
"""Largest number of rows for which a GPU computes the sum of rows faster than the matrix product."""


def affine(
    weight: Weight, bias: Float[Array, "outputs"], x: Vector, *, in_training: bool = False
) -> Float[Array, "outputs"]:
    """W x + b."""
    widen, narrow = products(in_training)
    if weight.shape[0] <= weight.shape[1]:
        return narrow(x, weight) + bias
    if not in_training:
        return widen(x, long_axis_last(weight)) + bias
    # With the bias as a row of the kernel, its derivative is computed together with that of the weights.
    kernel = long_axis_last(jnp.column_stack([weight, bias]))
    return widen(jnp.concatenate([x, jnp.ones((1,), x.dtype)]), kernel)


def products(in_training: bool) -> tuple[Product, Product]:
    """The products x K, with more outputs than inputs, and W x, with fewer, for the current device."""
    if jax.default_backend() != "cpu":
        return widening_sum, narrowing_sum
    if in_training:
        return widening_product, narrowing_product
    return jnp.matmul, lambda x, weight: x @ weight.T


def long_axis_last(weight: Weight) -> Kernel:
    """Wᵀ of a weight with many outputs and few inputs, kept separate from the products that it enters.

    XLA would merge the transpose into them. On the CPU their derivative with respect to the weights is ten
    times faster with the long axis last.
    """
    return jax.lax.optimization_barrier(weight.T) if jax.default_backend() == "cpu" else weight.T


def widening_sum(x: Vector, kernel: Kernel) -> Float[Array, "outputs"]:
    """x K, for more outputs than inputs."""
    if len(x) > THIN:
        return x @ kernel
    return sum((x[i] * kernel[i] for i in range(1, len(x))), x[0] * kernel[0])


def narrowing_sum(x: Vector, weight: Weight) -> Float[Array, "outputs"]:
    """W x, for no more outputs than inputs."""
    if len(weight) > THIN:
        return weight @ x
    return jnp.stack([jnp.sum(row * x) for row in weight])


def _for_training(product: Product, backward: Callable) -> Product:
    """A product of a vector, whose batches over fixed weights are differentiated by `backward`."""
    of_rows = jax.custom_vjp(product)
    of_rows.defvjp(lambda x, weight: (product(x, weight), (x, weight)), backward)

    @jax.custom_batching.custom_vmap
    def trained(x: Vector, weight: Array) -> Float[Array, "outputs"]:
        return product(x, weight)

    @trained.def_vmap
    def _(_size, batched, x, weight):
        if batched[1]:
            return jax.vmap(product, in_axes=(0 if batched[0] else None, 0))(x, weight), True
        return of_rows(x, weight), True

    return trained


def _widening_backward(residuals: tuple[Rows, Kernel], cotangent: Results) -> tuple[Rows, Kernel]:
    x, kernel = residuals
    return cotangent @ kernel.T, _contiguous(x.T) @ cotangent


def _narrowing_backward(residuals: tuple[Rows, Weight], cotangent: Results) -> tuple[Rows, Weight]:
    x, weight = residuals
    if len(weight) == 1:  # XLA computes a product with a single row as a slow sum of rows
        return cotangent * weight, jnp.sum(cotangent * x, axis=0, keepdims=True)
    return cotangent @ weight, _contiguous(cotangent.T) @ x


def _contiguous(transposed: Array) -> Array:
    """A transposed matrix as an array of its own, which XLA would otherwise merge into the product."""
    return jax.lax.optimization_barrier(transposed)


widening_product = _for_training(jnp.matmul, _widening_backward)
"""x K, for more outputs than inputs."""
narrowing_product = _for_training(lambda x, weight: x @ weight.T, _narrowing_backward)
"""W x, for no more outputs than inputs."""
