"""Candidate contacts whose surfaces are learned: shifted, and walls tilted."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.mechanics import ContactGeometry
from carom.types import Coordinates, PerContact


class ShiftedGeometry(NamedTuple):
    """Candidate contacts whose surfaces lie elsewhere than the scene has them, and walls that are tilted."""

    geometry: ContactGeometry
    shift: PerContact
    turned: Float[Array, "walls dimension"] | None = None
    """What is added to the normals of walls; None where they are as stated."""

    @property
    def candidates(self):
        return self.geometry.candidates

    @property
    def coupled(self) -> bool:
        return self.geometry.coupled

    @property
    def affine(self) -> bool:
        return self.geometry.affine

    def gap(self, position: Coordinates) -> PerContact:
        """g(Q) − shift."""
        gap = self.geometry.gap(position) - self.shift
        if self.turned is None:
            return gap
        body = np.array([wall.body for wall in self.geometry.walls])
        return gap.at[: len(body)].add(jnp.sum(self.turned * position[body], axis=1))

    def jacobian(self, position: Coordinates):
        """∂g/∂Q, which no shift changes."""
        rows = self.geometry.jacobian(position)
        if self.turned is None:
            return rows
        body = np.array([wall.body for wall in self.geometry.walls])
        return rows.at[np.arange(len(body)), body].add(self.turned)
