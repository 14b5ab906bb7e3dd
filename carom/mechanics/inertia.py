"""Inertia: one mass per body, or a full symmetric positive-definite matrix; and bodies that have it."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.mechanics.parameter import parameter
from carom.types import Coordinates, Jacobian, PerBody, Values


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


class Points(eqx.Module):
    """K point masses in d dimensions; their motion determines only mass ratios.

    Example:
        >>> pair = Points.of((1.0, 2.0), dimension=3)
        >>> pair.inertia().momentum(jnp.ones((2, 3)))[:, 0]
        Array([1., 2.], dtype=float32)
    """

    dimension: int = eqx.field(static=True)
    # Logarithms keep masses positive under any update of an estimate.
    log_mass: Float[Values, "bodies"] = parameter(
        "masses", "mass", deviation=2.0, axis="body", logarithm=True
    )

    @classmethod
    def of(cls, masses: tuple[float, ...], *, dimension: int) -> "Points":
        return cls(dimension, np.log(np.asarray(masses, float)))

    @property
    def count(self) -> int:
        """K."""
        return self.log_mass.shape[-1]

    @property
    def masses(self) -> Float[Array, "bodies"]:
        return jnp.exp(jnp.asarray(self.log_mass))

    def inertia(self) -> Masses:
        """M."""
        return Masses(self.masses)
