"""Linear systems with positive definite matrices, for batched compiled programs.

JAX 0.10 runs batched LAPACK calls in its own thread pool and waits for that pool from within: on a machine
with two cores, two such calls at the same time deadlock. Nothing here makes such a call: small blocks are
inverted by elementwise arithmetic, larger matrices one after the other.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from carom.types import Values


def inverse_of_blocks(blocks: Float[Values, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Inverses of many small positive definite matrices, by the sweep operator (Gauss–Jordan elimination).

    Sweeping the k-th variable exchanges it with the k-th right-hand side: A x = b becomes x = A⁻¹ b.
    No pivoting is needed, since the matrices are positive definite.

    Example:
        >>> import numpy as np
        >>> print(np.round(inverse_of_blocks(jnp.array([[2.0, 1.0], [1.0, 1.0]])), 6))
        [[ 1. -1.]
         [-1.  2.]]
    """

    def sweep(k, matrix):
        row, column = matrix[..., k, :], matrix[..., :, k]
        pivot = row[..., k][..., None]
        rest = matrix - column[..., :, None] * (row / pivot)[..., None, :]
        rest = rest.at[..., k, :].set(row / pivot).at[..., :, k].set(-column / pivot)
        return rest.at[..., k, k].set(1 / pivot[..., 0])

    return lax.fori_loop(0, blocks.shape[-1], sweep, jnp.asarray(blocks))


def inverse(matrix: Float[Values, "n n"]) -> Float[Array, "n n"]:
    """The inverse of one matrix; under `vmap` on a CPU, the matrices are inverted one after the other.

    Example:
        >>> float(inverse(jnp.array([[4.0]]))[0, 0])
        0.25
    """
    return _one_by_one(jnp.linalg.inv)(matrix)


def solve(matrix: Float[Values, "n n"], vector: Float[Values, "n"]) -> Float[Array, "n"]:
    """The solution of A x = b for a positive definite A; batches as in `inverse`.

    Example:
        >>> float(solve(jnp.array([[4.0]]), jnp.array([2.0]))[0])
        0.5
    """
    return _one_by_one(_solve)(matrix, vector)


def _solve(matrix, vector):
    return jax.scipy.linalg.solve(matrix, vector, assume_a="pos")


def _one_by_one(function):
    # GPUs have batched solvers of their own, which do not deadlock.
    return jax.custom_batching.sequential_vmap(function) if jax.default_backend() == "cpu" else function
