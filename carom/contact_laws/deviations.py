"""Deviations of single impacts from their laws: real surfaces are rough, and bodies not perfectly round."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from carom.mechanics import parameter
from carom.types import PerContact, Values

KEY = "scatter"


class ImpactDeviations(eqx.Module):
    """What single impacts add to restitution, to the place of the surface and to the slip after it.

    Each kind is normally distributed around 0; its standard deviation is estimated. Steps refer to impacts by
    their numbers.

    Arguments:
        restitution: added to e.
        surface: added to the offset of the surface. None where every run has surfaces of its own.
        slip: added to the relative velocity after the impact, over the closing speed; the part across the
            normal counts. None in one dimension, and for schemes without it.
    """

    restitution: Float[Values, "impacts"] = parameter(KEY, "restitution", axis="impact", pooled=True)
    surface: Float[Values, "impacts"] | None = parameter(
        KEY, "surface", unit="length", axis="impact", pooled=True
    )
    slip: Float[Values, "impacts dimension"] | None = parameter(
        KEY, "slip over closing speed", axis="impact", pooled=True
    )

    @classmethod
    def zeros(cls, impacts: int, dimension: int | None, *, surface: bool = True) -> "ImpactDeviations":
        """None of so many impacts deviates."""
        slip = None if dimension is None else np.zeros((impacts, dimension))
        return cls(np.zeros(impacts), np.zeros(impacts) if surface else None, slip)

    def __len__(self) -> int:
        return len(self.restitution)

    def resized(self, impacts: int) -> "ImpactDeviations":
        """The same kinds of so many impacts, none of which deviates."""
        dimension = None if self.slip is None else self.slip.shape[1]
        return ImpactDeviations.zeros(impacts, dimension, surface=self.surface is not None)

    def of(self, impact: Int[Array, "contacts"]) -> "ImpactDeviations":
        """Those of the impacts with these numbers, one per contact; 0 for numbers that no impact has."""

        def chosen(values: Float[Values, "impacts *dimension"]) -> Float[Array, "contacts *dimension"]:
            return jnp.asarray(values).at[impact].get(mode="fill", fill_value=0)

        surface, slip = (None if kind is None else chosen(kind) for kind in (self.surface, self.slip))
        return ImpactDeviations(chosen(self.restitution), surface, slip)

    def slip_change(self, rate: PerContact) -> Float[Array, "contacts dimension"] | None:
        """The changes of the relative velocities at impacts with these rates."""
        return None if self.slip is None else jnp.asarray(self.slip, rate.dtype) * jnp.abs(rate)[:, None]
