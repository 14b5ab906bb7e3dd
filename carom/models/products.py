"""Products of vectors with matrices, by what the device is fast at.

On a GPU thin ones are sums. On the CPU their derivatives are laid out for training: under `vmap` a product
with fixed weights is one of matrices, with a row for each member of the batch. Its derivative by the weights
is a product of transposed cotangents with inputs, which XLA makes slowly unless its long axis comes last and
its first factor lies in memory as it is multiplied. Automatic differentiation leaves neither to choose, so it
is written out here. That costs forward mode: those products are for gradients alone.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Vector = Float[Array, "inputs"]
Rows = Float[Array, "rows inputs"]
Results = Float[Array, "rows outputs"]
Kernel = Float[Array, "inputs outputs"]
Weight = Float[Array, "outputs inputs"]
THIN = 8
"""Rows up to which a GPU adds rows up faster, in one kernel with what comes before and after."""


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


@jax.custom_batching.custom_vmap
def widening_product(x: Vector, kernel: Kernel) -> Float[Array, "outputs"]:
    """x K, for more outputs than inputs."""
    return x @ kernel


@widening_product.def_vmap
def _widening_batch(_size, batched, x, kernel):
    if batched[1]:
        return jax.vmap(jnp.matmul, in_axes=(0 if batched[0] else None, 0))(x, kernel), True
    return _widening_rows(x, kernel), True


@jax.custom_batching.custom_vmap
def narrowing_product(x: Vector, weight: Weight) -> Float[Array, "outputs"]:
    """W x, for no more outputs than inputs."""
    return weight @ x


@narrowing_product.def_vmap
def _narrowing_batch(_size, batched, x, weight):
    if batched[1]:
        return jax.vmap(jnp.matmul, in_axes=(0, 0 if batched[0] else None))(weight, x), True
    return _narrowing_rows(x, weight), True


@jax.custom_vjp
def _widening_rows(x: Rows, kernel: Kernel) -> Results:
    return x @ kernel


def _widening_backward(kept: tuple[Rows, Kernel], cotangent: Results) -> tuple[Rows, Kernel]:
    x, kernel = kept
    return cotangent @ kernel.T, _in_memory(x.T) @ cotangent


@jax.custom_vjp
def _narrowing_rows(x: Rows, weight: Weight) -> Results:
    return x @ weight.T


def _narrowing_backward(kept: tuple[Rows, Weight], cotangent: Results) -> tuple[Rows, Weight]:
    x, weight = kept
    if len(weight) == 1:  # a product by a single row is a sum of rows, but a slow one
        return cotangent * weight, jnp.sum(cotangent * x, axis=0, keepdims=True)
    return cotangent @ weight, _in_memory(cotangent.T) @ x


_widening_rows.defvjp(lambda x, kernel: (x @ kernel, (x, kernel)), _widening_backward)
_narrowing_rows.defvjp(lambda x, weight: (x @ weight.T, (x, weight)), _narrowing_backward)


def _in_memory(transposed: Array) -> Array:
    """A transposed matrix as an array of its own, which XLA would otherwise merge into the product."""
    return jax.lax.optimization_barrier(transposed)
