"""A force of one's own, as a user of the package would write it: quadratic drag, dv/dt = −k |v| v."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.forces import AbstractDissipation
from carom.mechanics import Scene, parameter
from carom.types import Coordinates, PerBody, Scalar, Values


class AirDrag(AbstractDissipation):
    """v(t) = v/(1 + k |v| t), with one k for all bodies."""

    name: ClassVar[str] = "air-drag"
    thickness: Float[Values, "1"] = parameter(
        "air-drag", "drag of the air", unit="1/length", lower=0.0, deviation=10.0, axis="coordinate"
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "AirDrag":
        return cls(np.zeros(1))

    def flow(self, velocity: Coordinates, masses: PerBody, duration: Scalar) -> Coordinates:
        speed = jnp.sqrt(jnp.sum(velocity**2, axis=1, keepdims=True) + 1e-24)
        return velocity / (1 + duration * self.thickness[None] * speed)
