"""Newton's restitution law, u⁺ = −e u⁻."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.mechanics import AbstractPart, Scene, parameter
from carom.types import PerContact, Values


class AbstractRestitution(AbstractPart):
    """e of every contact, from the rate of its gap just before the impact (negative)."""

    @abstractmethod
    def coefficient(self, rate: PerContact) -> PerContact:
        """e for these rates."""

    @abstractmethod
    def starting_from(
        self, guess: Float[np.ndarray, "contacts"], closing: Sequence[Float[np.ndarray, "_"]]
    ) -> "AbstractRestitution":
        """The law where an estimate may begin, from a guess of e and the closing speeds of every contact."""


class ConstantRestitution(AbstractRestitution):
    """The same e at every speed.

    Example:
        >>> ConstantRestitution(jnp.array([0.9])).coefficient(jnp.array([-3.0]))
        Array([0.9], dtype=float32)
    """

    name: ClassVar[str] = "restitution"
    # Bounds instead of a transform: e = 0 and e = 1 are possible, and a sigmoid never reaches them.
    value: Float[Values, "contacts"] = parameter(
        "restitution", "restitution", lower=0.0, upper=1.0, mean=0.5, pooled=True
    )

    @classmethod
    def for_scene(cls, scene: Scene) -> "ConstantRestitution":
        return cls(np.full(scene.contacts, float(scene.restitution)))

    def coefficient(self, rate: PerContact) -> PerContact:
        return jnp.asarray(self.value, rate.dtype)

    def starting_from(
        self, guess: Float[np.ndarray, "contacts"], closing: Sequence[Float[np.ndarray, "_"]]
    ) -> "ConstantRestitution":
        return ConstantRestitution(np.asarray(guess, float))
