"""Restitution that depends on the closing speed."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.contact_laws.newton import AbstractRestitution
from carom.mechanics import Scene, parameter
from carom.types import PerContact, Values


class SpeedDependentRestitution(AbstractRestitution):
    """e = c₀ + c₁ ln s + c₂ (ln s)² in the closing speed s, clipped to [0, 1].

    Example:
        >>> law = SpeedDependentRestitution(jnp.array([[0.7, -0.1, 0.0]]))
        >>> law.coefficient(jnp.array([-1.0]))
        Array([0.7], dtype=float32)
    """

    name: ClassVar[str] = "restitution-speed"
    terms: Float[Values, "contacts terms"] = parameter(
        "restitution-speed",
        "restitution",
        pooled=True,
        terms=("at 1 unit of speed", "per e-fold of speed", "curvature in log speed"),
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "SpeedDependentRestitution":
        return cls(np.outer(np.full(scene.contacts, float(scene.restitution)), [1.0, 0.0, 0.0]))

    def coefficient(self, rate: PerContact) -> PerContact:
        # Speeds are kept away from 0, where the logarithm has no value; a polynomial fitted to the speeds
        # that were seen means nothing far from them, so it is clipped.
        logarithm = jnp.log(jnp.maximum(-rate, 1e-6))
        powers = jnp.stack([logarithm**power for power in range(self.terms.shape[-1])], axis=1)
        return jnp.clip(jnp.sum(self.terms * powers, axis=1), 0, 1)

    def starting_from(self, guess: Float[np.ndarray, "contacts"]) -> "SpeedDependentRestitution":
        return SpeedDependentRestitution(np.outer(np.asarray(guess, float), [1.0, 0.0, 0.0]))
