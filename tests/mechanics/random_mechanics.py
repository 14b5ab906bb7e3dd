"""Random bodies, normals and inertias in plain NumPy, and the library's impulses compiled once per shape."""

import jax
import numpy as np
from hypothesis import strategies as st

from carom.mechanics import InertiaMatrix, Masses, restitution_impulse, unilateral_impulse

seeds = st.integers(0, 2**32 - 1)
dimensions = st.sampled_from([1, 2, 3])


def unit_vector(random: np.random.Generator, dimension: int) -> np.ndarray:
    direction = random.normal(size=dimension)
    return direction / np.linalg.norm(direction)


def cholesky_factor(random: np.random.Generator, size: int) -> np.ndarray:
    """L of a random well-conditioned M = L Lᵀ."""
    return np.tril(random.uniform(-0.5, 0.5, (size, size)), -1) + np.diag(random.uniform(0.7, 2.0, size))


def restitution_of(random: np.random.Generator) -> float:
    """In [0, 1], the ends included often."""
    return float(random.choice([0.0, 1.0, random.uniform()], p=[0.2, 0.2, 0.6]))


def add_momentum(mass_matrix: np.ndarray, velocity: np.ndarray, momentum: np.ndarray) -> np.ndarray:
    """V + M⁻¹ p with M over the flattened coordinates."""
    return velocity + np.linalg.solve(mass_matrix, momentum.ravel()).reshape(velocity.shape)


@jax.jit
def unilateral_with_masses(jacobian, masses, before, smooth, restitution, touching):
    return unilateral_impulse(
        jacobian, Masses(masses), before, smooth, restitution=restitution, touching=touching
    )


@jax.jit
def unilateral_with_matrix(jacobian, factor, before, smooth, restitution, touching):
    return unilateral_impulse(
        jacobian, InertiaMatrix(factor), before, smooth, restitution=restitution, touching=touching
    )


@jax.jit
def restitution_with_matrix(jacobian, factor, before, smooth, restitution, active):
    return restitution_impulse(
        jacobian, InertiaMatrix(factor), before, smooth, restitution=restitution, active=active
    )
