"""JAX 0.10.2 silently returned wrong numbers here; whatever version is installed must not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize("batch", [16_384, 16_385, 40_000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batched_matrix_vector_product_then_reduction(batch, dtype):
    with jax.enable_x64(True):
        generator = np.random.default_rng(0)
        matrix = generator.standard_normal((7, 5)).astype(dtype)
        vectors = generator.standard_normal((batch, 5)).astype(dtype)
        program = jax.jit(jax.vmap(lambda vector: jnp.sum(jnp.tanh(jnp.asarray(matrix) @ vector))))
        expected = np.tanh(vectors.astype(float) @ matrix.T.astype(float)).sum(axis=1)
        np.testing.assert_allclose(program(vectors), expected, atol=1e-4 if dtype == "float32" else 1e-12)
