"""Learned physical parameters, in coordinates that keep them valid."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.mechanics import InertiaMatrix


class LearnedInertia(eqx.Module):
    """M = L Lᵀ with L lower triangular and a positive diagonal, so that M is positive definite."""

    raw: Float[Array, "coordinates coordinates"]

    @classmethod
    def from_masses(cls, masses: tuple[float, ...], dimension: int) -> "LearnedInertia":
        """Start from diag(m_k)."""
        return cls(jnp.diag(0.5 * jnp.log(jnp.repeat(jnp.array(masses), dimension))))

    def __call__(self) -> InertiaMatrix:
        return InertiaMatrix(jnp.tril(self.raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(self.raw))))


class LearnedDamping(eqx.Module):
    """C = D Dᵀ with D lower triangular, so that damping never feeds energy in.

    Only M⁻¹C can be told from a recording; with fixed masses that is C in their unit.
    """

    factor: Float[Array, "coordinates coordinates"]

    @classmethod
    def small(cls, coordinates: int) -> "LearnedDamping":
        """Start from C = 0.1·1: at C = 0 the gradient with respect to D vanishes."""
        return cls(jnp.sqrt(0.1) * jnp.eye(coordinates))

    def __call__(self) -> Float[Array, "coordinates coordinates"]:
        factor = jnp.tril(self.factor)
        return factor @ factor.T
