"""Kinetic energy and momentum."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.mechanics.inertia import AbstractInertia
from carom.types import Coordinates


def kinetic_energy(inertia: AbstractInertia, velocity: Coordinates) -> Float[Array, ""]:
    """½ Vᵀ M V."""
    return 0.5 * jnp.sum(velocity * inertia.momentum(velocity))


def total_momentum(inertia: AbstractInertia, velocity: Coordinates) -> Float[Array, "dimension"]:
    """1ᵀ M V, per spatial direction."""
    return jnp.sum(inertia.momentum(velocity), axis=0)
