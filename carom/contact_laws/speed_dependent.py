"""Restitution that depends on the closing speed."""

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float

from carom.contact_laws.newton import AbstractRestitution
from carom.mechanics import Scene, parameter
from carom.types import PerContact, Values

UNLIMITED = 0.0, 1e30
"""A range of all speeds; finite, as every number of a model file is."""
Law = TypeVar("Law", bound="AbstractRestitutionBySpeed")


class AbstractRestitutionBySpeed(AbstractRestitution):
    """A polynomial in a function of the closing speed, clipped to [0, 1].

    Below and above the range of speeds that it was learned from, e keeps the value of the end of that range:
    a polynomial means nothing beyond its data. A law that was not learned holds at all speeds.
    """

    # No parameter, so that it is never learned; an array, so that laws of different ranges compile once.
    speeds: Float[Values, "contacts 2"]
    """The least and the greatest closing speed of every contact at which the law was learned."""
    terms: Any

    def __init__(
        self, terms: Float[Values, "contacts terms"], speeds: Float[Values, "contacts 2"] | None = None
    ):
        self.terms = terms
        self.speeds = np.tile(UNLIMITED, (len(terms), 1)) if speeds is None else speeds

    @staticmethod
    @abstractmethod
    def variable(speed: PerContact) -> PerContact:
        """What e is a polynomial in."""

    @classmethod
    @abstractmethod
    def constant(cls: type[Law], value: Float[np.ndarray, "contacts"]) -> Law:
        """The law with the same e at all speeds."""

    @classmethod
    def for_scene(cls: type[Law], scene: Scene) -> Law:
        return cls.constant(np.full(scene.contacts, float(scene.restitution)))

    def coefficient(self, rate: PerContact) -> PerContact:
        lowest, highest = jnp.asarray(self.speeds, rate.dtype).T
        # Speeds are kept away from 0, where the logarithm has no value.
        variable = self.variable(jnp.clip(-rate, jnp.maximum(lowest, jnp.finfo(rate.dtype).tiny), highest))
        powers = jnp.stack([variable**power for power in range(self.terms.shape[-1])], axis=1)
        value = jnp.sum(self.terms * powers, axis=1)
        # With the derivative of the polynomial beyond the bounds, or an estimate that strays there stays.
        return value + lax.stop_gradient(jnp.clip(value, 0, 1) - value)

    def starting_from(self: Law, guess: Float[np.ndarray, "contacts"]) -> Law:
        return self.constant(np.asarray(guess, float))


class SpeedDependentRestitution(AbstractRestitutionBySpeed):
    """e = c₀ + c₁ ln s in the closing speed s: over several orders of magnitude.

    Example:
        >>> law = SpeedDependentRestitution(jnp.array([[0.7, -0.1]]))
        >>> law.coefficient(jnp.array([-1.0]))
        Array([0.7], dtype=float32)
        >>> learned = SpeedDependentRestitution(law.terms, jnp.array([[0.2, 1.0]]))
        >>> learned.coefficient(jnp.array([-3.0]))     # as at 1.0
        Array([0.7], dtype=float32)
    """

    name: ClassVar[str] = "restitution-speed"
    terms: Float[Values, "contacts terms"] = parameter(
        "restitution-speed",
        "restitution",
        pooled=True,
        terms=("at 1 unit of speed", "per e-fold of speed"),
    )

    @staticmethod
    def variable(speed: PerContact) -> PerContact:
        return jnp.log(speed)

    @classmethod
    def constant(cls, value: Float[np.ndarray, "contacts"]) -> "SpeedDependentRestitution":
        return cls(np.outer(value, [1.0, 0.0]))


class LinearRestitution(AbstractRestitutionBySpeed):
    """e = c₀ + c₁ s in the closing speed s: as most balls have it at a few metres per second.

    Example:
        >>> LinearRestitution(jnp.array([[0.8, -0.05]])).coefficient(jnp.array([-2.0]))
        Array([0.7], dtype=float32)
    """

    name: ClassVar[str] = "restitution-linear"
    terms: Float[Values, "contacts terms"] = parameter(
        "restitution-linear",
        "restitution",
        pooled=True,
        terms=("at speed 0", "per unit of speed"),
    )

    @staticmethod
    def variable(speed: PerContact) -> PerContact:
        return speed

    @classmethod
    def constant(cls, value: Float[np.ndarray, "contacts"]) -> "LinearRestitution":
        return cls(np.outer(value, [1.0, 0.0]))
