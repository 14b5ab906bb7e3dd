"""A contact law of one's own: restitution that falls with the closing speed, e = 1/(1 + s/s₀)."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.contact_laws import AbstractRestitution
from carom.mechanics import Scene, parameter
from carom.types import PerContact, Values


class SoftRestitution(AbstractRestitution):
    """e = 1/(1 + s/s₀) with the speed s₀ at which half of it is lost."""

    name: ClassVar[str] = "soft-restitution"
    half_speed: Float[Values, "contacts"] = parameter(
        "soft-restitution", "half speed", unit="length/time", lower=0.0, mean=None, deviation=10.0
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "SoftRestitution":
        return cls(np.full(scene.contacts, 10.0))

    def coefficient(self, rate: PerContact) -> PerContact:
        return 1 / (1 + jnp.maximum(-rate, 0) / self.half_speed)

    def starting_from(self, guess: Float[np.ndarray, "contacts"], closing) -> "SoftRestitution":
        return SoftRestitution(10 * np.asarray(guess, float) / (1 - np.asarray(guess, float)))
