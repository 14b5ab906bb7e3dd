"""Quadratic drag."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from carom.forces.base import AbstractDissipation
from carom.mechanics import Scene, length, parameter
from carom.types import Coordinates, PerBody, Scalar, Values


class QuadraticDrag(AbstractDissipation):
    """dv/dt = −k |v| v, so that v(t) = v/(1 + k |v| t); k = ½ ρ c_d A/m of each body, an inverse length.

    Example:
        >>> import jax.numpy as jnp
        >>> QuadraticDrag(jnp.array([0.5])).flow(jnp.full((1, 1), 4.0), jnp.ones(1), 0.5)
        Array([[2.]], dtype=float32)
    """

    name: ClassVar[str] = "drag"
    coefficient: Float[Values, "bodies"] = parameter(
        "drag", "quadratic drag", unit="1/length", lower=0.0, deviation=10.0, axis="body"
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "QuadraticDrag":
        return cls(np.zeros(scene.bodies))

    def flow(self, velocity: Coordinates, masses: PerBody, duration: Scalar) -> Coordinates:
        # The exact solution, stable for any step; an explicit step would reverse fast bodies.
        return velocity / (1 + duration * self.coefficient * length(velocity))[:, None]
