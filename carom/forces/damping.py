"""Linear damping."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.forces.base import AbstractDissipation
from carom.mechanics import Scene, parameter
from carom.types import Coordinates, PerBody, Scalar, Values


class LinearDamping(AbstractDissipation):
    """dv/dt = −γ v, so that v(t) = v exp(−γ t); γ is a rate of each body.

    Example:
        >>> slowed = LinearDamping(jnp.array([0.5])).flow(jnp.ones((1, 1)), jnp.ones(1), 2.0)
        >>> round(float(slowed[0, 0]), 4)
        0.3679
    """

    name: ClassVar[str] = "damping"
    rate: Float[Values, "bodies"] = parameter(
        "damping", "damping rate", unit="1/time", lower=0.0, deviation=10.0, axis="body"
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "LinearDamping":
        return cls(np.zeros(scene.bodies))

    def flow(self, velocity: Coordinates, masses: PerBody, duration: Scalar) -> Coordinates:
        return jnp.exp(-duration * self.rate)[:, None] * velocity
