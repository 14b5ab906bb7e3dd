"""Uniform gravity."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.forces.base import AbstractPotential
from carom.mechanics import Scene, parameter
from carom.types import Coordinates, PerBody, Values


class UniformGravity(AbstractPotential):
    """The same acceleration everywhere: U = −Σ m_k g·q_k.

    Example:
        >>> UniformGravity(jnp.array([-9.81])).gradient(jnp.zeros((1, 1)), jnp.array([2.0]))
        Array([[19.62]], dtype=float32)
    """

    name: ClassVar[str] = "gravity"
    acceleration: Float[Values, "dimension"] = parameter(
        "gravity", "gravity", unit="length/time²", deviation=100.0, axis="coordinate"
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "UniformGravity":
        return cls(np.zeros(scene.dimension))

    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        return -jnp.sum(masses * (position @ self.acceleration))

    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        # Written out: a step evaluates the force, and never the energy.
        return -masses[:, None] * jnp.asarray(self.acceleration, position.dtype)[None]
