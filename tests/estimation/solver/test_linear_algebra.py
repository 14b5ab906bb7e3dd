"""Inverses and solutions against NumPy's, in batches and alone, and many at a time that come to an end."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.estimation.solver.linear_algebra import inverse, inverse_of_blocks, solve

BUSY = """
import jax, jax.numpy as jnp, numpy as np
from carom.estimation.solver.linear_algebra import inverse

@jax.jit
def busy(matrices):
    def turn(_, matrices):
        shifted = [matrices + k * jnp.eye(matrices.shape[-1])[None] for k in range(3, 11)]
        return sum(jax.vmap(inverse)(matrix) for matrix in shifted)

    return jax.lax.fori_loop(0, 10, turn, matrices)

matrices = jnp.asarray(0.1 * np.random.default_rng(0).standard_normal((5, 100, 100)))
print(bool(np.isfinite(busy(matrices)).all()))
"""


def positive_definite(generator: np.random.Generator, *shape: int, spread: float = 1.0) -> np.ndarray:
    """Random positive definite matrices whose unknowns have scales `spread` decades apart at most."""
    factor = generator.standard_normal((*shape, shape[-1]))
    scale = 10 ** generator.uniform(-spread / 2, spread / 2, shape)
    matrix = factor @ np.swapaxes(factor, -1, -2) + 0.1 * np.eye(shape[-1])
    return matrix * scale[..., :, None] * scale[..., None, :]


@pytest.mark.parametrize("size", [1, 2, 5, 17])
def test_blocks_times_their_inverses_are_identities(size):
    with jax.enable_x64(True):
        blocks = positive_definite(np.random.default_rng(size), 4, 7, size, spread=6.0)
        found = np.asarray(inverse_of_blocks(jnp.asarray(blocks)))
    scale = np.sqrt(np.diagonal(blocks, axis1=-2, axis2=-1))
    product = (blocks / scale[..., None, :]) @ (found * scale[..., :, None])
    back = product / scale[..., :, None] * scale[..., None, :]
    np.testing.assert_allclose(back, np.broadcast_to(np.eye(size), back.shape), atol=1e-9)
    np.testing.assert_allclose(found, np.swapaxes(found, -1, -2), rtol=1e-9, atol=1e-9 / scale.min() ** 2)


def test_larger_matrices_as_numpy_has_them():
    generator = np.random.default_rng(3)
    matrices, vectors = positive_definite(generator, 3, 60), generator.standard_normal((3, 60))
    with jax.enable_x64(True):
        inverses, solutions = jax.vmap(inverse)(matrices), jax.vmap(solve)(matrices, vectors)
        alone = solve(jnp.asarray(matrices[1]), jnp.asarray(vectors[1]))
    np.testing.assert_allclose(inverses, np.linalg.inv(matrices), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(solutions, np.linalg.solve(matrices, vectors[..., None])[..., 0], rtol=1e-8)
    np.testing.assert_allclose(alone, solutions[1], rtol=1e-12)


def test_many_at_a_time_come_to_an_end():
    """Batched calls of LAPACK by JAX 0.10 in their place hang on two threads, in the first few turns."""
    # In a process of its own, as tests have one thread.
    threads = os.environ | {"NPROC": "2", "JAX_ENABLE_X64": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BUSY], env=threads, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"]
