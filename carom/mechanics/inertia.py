"""Inertia: one mass per body, or a full symmetric positive-definite matrix over all coordinates."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.types import Coordinates, Jacobian, PerBody


class AbstractInertia(eqx.Module):
    """The inertia M, by its products with vectors."""

    @abstractmethod
    def momentum(self, velocity: Coordinates) -> Coordinates:
        """M v."""

    @abstractmethod
    def solve(self, force: Coordinates) -> Coordinates:
        """M⁻¹ f."""


class Masses(AbstractInertia):
    """Diagonal inertia, M = diag(m_k)."""

    masses: PerBody

    def momentum(self, velocity: Coordinates) -> Coordinates:
        return self.masses[:, None] * velocity

    def solve(self, force: Coordinates) -> Coordinates:
        return force / self.masses[:, None]


class InertiaMatrix(AbstractInertia):
    """Full inertia M = L Lᵀ over the K·d coordinates, body by body, held by its lower Cholesky factor L."""

    factor: Float[Array, "coordinates coordinates"]

    def momentum(self, velocity: Coordinates) -> Coordinates:
        return (self.factor @ (self.factor.T @ velocity.ravel())).reshape(velocity.shape)

    def solve(self, force: Coordinates) -> Coordinates:
        # Two triangular solves: an inverse would lose accuracy where M is badly conditioned.
        return jax.scipy.linalg.cho_solve((self.factor, True), force.ravel()).reshape(force.shape)


def contact_compliance(inertia: AbstractInertia, jacobian: Jacobian) -> Float[Array, "contacts contacts"]:
    """G M⁻¹ Gᵀ: the change of the rate of every gap by a unit impulse at every contact."""
    return jnp.einsum("ckd,bkd->cb", jacobian, jax.vmap(inertia.solve)(jacobian))


def kinetic_energy(inertia: AbstractInertia, velocity: Coordinates) -> Float[Array, ""]:
    """½ Vᵀ M V."""
    return 0.5 * jnp.sum(velocity * inertia.momentum(velocity))
