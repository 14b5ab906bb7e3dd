"""Coulomb friction of bodies that do not spin.

The impulse of one impact with friction is `carom.mechanics.impact.impact_impulse`; what friction removes of
the slip is in `carom.mechanics.friction`.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.mechanics import AbstractPart, Scene, parameter
from carom.types import Values

START = 0.1
"""Where an estimate of μ begins: at 0 a contact that slides has no derivative to either side."""


class CoulombFriction(AbstractPart):
    """A tangential impulse of at most μ times the normal one, against the slip."""

    name: ClassVar[str] = "friction"
    value: Float[Values, "contacts"] = parameter("friction", "friction", lower=0.0)

    @classmethod
    def for_scene(cls, scene: Scene) -> "CoulombFriction":
        return cls(np.full(scene.contacts, float(scene.friction)))

    def starting(self) -> "CoulombFriction":
        """The law where an estimate may begin."""
        return CoulombFriction(np.maximum(np.asarray(self.value), START))

    @property
    def coefficient(self) -> Float[Array, "contacts"]:
        """μ of every contact."""
        return jnp.asarray(self.value)
