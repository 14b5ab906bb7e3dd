"""Restitution that depends on the closing speed."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.contact_laws.newton import AbstractRestitution
from carom.mechanics import Scene, parameter
from carom.types import PerContact, Values

UNLIMITED = 0.0, 1e30
"""A range of all speeds; finite, as every number of a model file is."""


class SpeedDependentRestitution(AbstractRestitution):
    """e = c₀ + c₁ ln s + c₂ (ln s)² in the closing speed s, clipped to [0, 1].

    Below and above the range of speeds that it was learned from, e keeps the value of the end of that range:
    a polynomial means nothing beyond its data. A law that was not learned holds at all speeds.

    Example:
        >>> law = SpeedDependentRestitution(jnp.array([[0.7, -0.1, 0.0]]))
        >>> law.coefficient(jnp.array([-1.0]))
        Array([0.7], dtype=float32)
        >>> learned = SpeedDependentRestitution(law.terms, jnp.array([[0.2, 1.0]]))
        >>> learned.coefficient(jnp.array([-3.0]))     # as at 1.0
        Array([0.7], dtype=float32)
    """

    name: ClassVar[str] = "restitution-speed"
    # No parameter, so that it is never learned; an array, so that laws of different ranges compile once.
    speeds: Float[Values, "contacts 2"]
    """The least and the greatest closing speed of every contact at which the law was learned."""
    terms: Float[Values, "contacts terms"] = parameter(
        "restitution-speed",
        "restitution",
        pooled=True,
        terms=("at 1 unit of speed", "per e-fold of speed", "curvature in log speed"),
    )

    def __init__(
        self, terms: Float[Values, "contacts terms"], speeds: Float[Values, "contacts 2"] | None = None
    ):
        self.terms = terms
        self.speeds = np.tile(UNLIMITED, (len(terms), 1)) if speeds is None else speeds

    @classmethod
    def for_scene(cls, scene: Scene) -> "SpeedDependentRestitution":
        return cls(np.outer(np.full(scene.contacts, float(scene.restitution)), [1.0, 0.0, 0.0]))

    def coefficient(self, rate: PerContact) -> PerContact:
        lowest, highest = jnp.asarray(self.speeds, rate.dtype).T
        # Speeds are kept away from 0, where the logarithm has no value.
        logarithm = jnp.log(jnp.clip(-rate, jnp.maximum(lowest, jnp.finfo(rate.dtype).tiny), highest))
        powers = jnp.stack([logarithm**power for power in range(self.terms.shape[-1])], axis=1)
        return jnp.clip(jnp.sum(self.terms * powers, axis=1), 0, 1)

    def starting_from(self, guess: Float[np.ndarray, "contacts"]) -> "SpeedDependentRestitution":
        return SpeedDependentRestitution(np.outer(np.asarray(guess, float), [1.0, 0.0, 0.0]))
