"""Restitution that depends on the closing speed."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from carom.contact_laws.newton import AbstractRestitution
from carom.mechanics import Scene, parameter
from carom.types import PerContact, Values

UNLIMITED = 0.0, 1e30
"""A range of all speeds; finite, as every number of a model file is."""
Law = TypeVar("Law", bound="AbstractRestitutionBySpeed")


class AbstractRestitutionBySpeed(AbstractRestitution):
    """A linear combination of functions of the closing speed, clipped to [0, 1].

    Below and above the range of speeds that it was learned from, e keeps the value of the end of that range:
    a regression means nothing beyond its data. A law that was not learned holds at all speeds.
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

    @abstractmethod
    def basis(self, speed: PerContact) -> Float[Array, "contacts terms"]:
        """The functions of which e is a linear combination."""

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
        speed = jnp.clip(-rate, jnp.maximum(lowest, jnp.finfo(rate.dtype).tiny), highest)
        value = jnp.sum(self.terms * self.basis(speed), axis=1)
        # With the derivative of the combination beyond the bounds, or an estimate that strays there stays.
        return value + lax.stop_gradient(jnp.clip(value, 0, 1) - value)

    def starting_from(
        self: Law,
        guess: Float[np.ndarray, "contacts"],
        closing: Sequence[Float[np.ndarray, "_"]],
    ) -> Law:
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

    def basis(self, speed: PerContact) -> Float[Array, "contacts terms"]:
        return jnp.stack([jnp.ones_like(speed), jnp.log(speed)], axis=1)

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

    def basis(self, speed: PerContact) -> Float[Array, "contacts terms"]:
        return jnp.stack([jnp.ones_like(speed), speed], axis=1)

    @classmethod
    def constant(cls, value: Float[np.ndarray, "contacts"]) -> "LinearRestitution":
        return cls(np.outer(value, [1.0, 0.0]))


class SplineRestitution(AbstractRestitutionBySpeed):
    """A natural cubic spline in the logarithm of the closing speed, with three knots.

    Measured restitution often is constant at some speeds and falls at others, which no straight line in the
    speed or in its logarithm follows. With x = ln s − ln s₁, the logarithm of the speed over that of the
    middle knot, e = c₀ + c₁ x + c₂ w(x): w″ is 1 at the middle knot and falls to 0 at the outer ones, beyond
    which w is straight. The knots lie at the 10th, 50th and 90th percentile of the closing speeds, as is
    common for restricted cubic splines (Harrell, Regression Modeling Strategies, 2015, section 2.4.6).

    Example:
        >>> knots = jnp.log(jnp.array([[0.5, 1.0, 2.0]]))
        >>> law = SplineRestitution(jnp.array([[0.7, -0.2, -0.1]]), knots=knots)
        >>> law.coefficient(jnp.array([-1.0]))
        Array([0.7], dtype=float32)
    """

    name: ClassVar[str] = "restitution-spline"
    knots: Float[Values, "contacts 3"]
    """Logarithms of the three speeds; no parameter."""
    terms: Float[Values, "contacts 3"] = parameter(
        "restitution-spline",
        "restitution",
        pooled=True,
        terms=("at the median speed", "slope per e-fold of speed", "change of the slope per e-fold"),
    )

    def __init__(
        self,
        terms: Float[Values, "contacts 3"],
        speeds: Float[Values, "contacts 2"] | None = None,
        knots: Float[Values, "contacts 3"] | None = None,
    ):
        super().__init__(terms, speeds)
        self.knots = np.tile([-1.0, 0.0, 1.0], (len(terms), 1)) if knots is None else knots

    def basis(self, speed: PerContact) -> Float[Array, "contacts terms"]:
        low, middle, high = jnp.asarray(self.knots, speed.dtype).T
        x = jnp.log(speed) - middle
        side = jnp.where(x < 0, middle - low, high - middle)
        within = jnp.minimum(jnp.abs(x), side)
        bend = within**2 / 2 - within**3 / (6 * side) + side / 2 * (jnp.abs(x) - within)
        return jnp.stack([jnp.ones_like(x), x, bend], axis=1)

    @classmethod
    def constant(cls, value: Float[np.ndarray, "contacts"]) -> "SplineRestitution":
        return cls(np.outer(value, [1.0, 0.0, 0.0]))

    def starting_from(
        self, guess: Float[np.ndarray, "contacts"], closing: Sequence[Float[np.ndarray, "_"]]
    ) -> "SplineRestitution":
        return replace(self.constant(guess), knots=np.array([knots_of(speeds) for speeds in closing]))


def knots_of(speeds: Float[np.ndarray, "impacts"]) -> Float[np.ndarray, "3"]:
    """The knots for these closing speeds, at least a tenth of an e-fold apart."""
    if not len(speeds):
        return np.array([-1.0, 0.0, 1.0])
    low, middle, high = np.percentile(np.log(speeds), [10, 50, 90])
    return np.array([min(low, middle - 0.1), middle, max(high, middle + 0.1)])
