"""Bodies and their inertia."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.mechanics.inertia import Masses
from carom.mechanics.parameter import parameter
from carom.types import Values


class Points(eqx.Module):
    """K point masses in d dimensions; their motion determines only mass ratios.

    Example:
        >>> pair = Points.of((1.0, 2.0), dimension=3)
        >>> pair.inertia().momentum(jnp.ones((2, 3)))[:, 0]
        Array([1., 2.], dtype=float32)
    """

    dimension: int = eqx.field(static=True)
    # Logarithms keep masses positive under any update of an estimate.
    log_mass: Float[Values, "bodies"] = parameter(
        "masses", "mass", deviation=2.0, axis="body", logarithm=True
    )

    @classmethod
    def of(cls, masses: tuple[float, ...], *, dimension: int) -> "Points":
        return cls(dimension, np.log(np.asarray(masses, float)))

    @property
    def count(self) -> int:
        """K."""
        return self.log_mass.shape[-1]

    @property
    def masses(self) -> Float[Array, "bodies"]:
        return jnp.exp(jnp.asarray(self.log_mass))

    def inertia(self) -> Masses:
        """M."""
        return Masses(self.masses)
