"""Candidate contacts as arrays, so that a few may be picked while a compiled program runs."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from carom.mechanics.contact import ContactGeometry, Wall, contact_signs
from carom.types import Coordinates, Values

Vectors = Float[Array, "contacts dimension"]


class ContactRows(NamedTuple):
    """Walls without edges and pairs, one per row.

    A gap is that of the relative position r = Σ_k signs_k q_k: n·r − offset at a wall or on a line, else
    |r| − offset.

    Example:
        >>> from carom.mechanics import Pair
        >>> geometry = ContactGeometry(2, 2, (Wall(0, (0.0, 1.0)), Pair(0, 1, offset=1.0)))
        >>> rows = ContactRows.of(geometry)
        >>> rows.take(jnp.array([1])).gap(jnp.array([[0.0, 2.0], [3.0, 6.0]]))
        Array([4.], dtype=float32)
    """

    signs: Float[Values, "contacts bodies"]
    flat: Bool[Values, "contacts"]
    """Whether the surface is a plane: the normal is always the same."""
    normal: Float[Values, "contacts dimension"]
    offset: Float[Values, "contacts"]

    @classmethod
    def of(cls, geometry: ContactGeometry) -> "ContactRows":
        """All candidates; those of walls with edges would need more than a row."""
        assert not any(wall.edges for wall in geometry.walls)
        candidates = geometry.candidates
        along = (1.0,) + (0.0,) * (geometry.dimension - 1)
        normals = [c.normal if isinstance(c, Wall) else along for c in candidates]
        return cls(
            contact_signs(candidates, geometry.bodies),
            np.array([isinstance(c, Wall) or geometry.dimension == 1 for c in candidates], bool),
            np.array(normals, float).reshape(len(candidates), geometry.dimension),
            np.array([c.offset for c in candidates], float),
        )

    def take(self, index: Int[Array, "some"]) -> "ContactRows":
        """Some of them."""
        return ContactRows(*(jnp.asarray(part)[index] for part in self))

    def relative(self, coordinates: Coordinates) -> Vectors:
        """Positions, velocities or accelerations of first bodies relative to second ones, or to walls."""
        return jnp.asarray(self.signs, coordinates.dtype) @ coordinates

    def gap(self, position: Coordinates) -> Float[Array, "contacts"]:
        """g(Q)."""
        return self.gap_of(self.relative(position))

    def gap_of(self, relative: Vectors) -> Float[Array, "contacts"]:
        """The gap from relative positions."""
        return jnp.sum(self.normal_of(relative) * relative, axis=1) - self.offset

    def normal_of(self, relative: Vectors) -> Vectors:
        """The direction in which every gap opens fastest."""
        flat = jnp.asarray(self.flat)[:, None]
        square = jnp.where(flat, 1.0, jnp.sum(relative**2, axis=1, keepdims=True))
        return jnp.where(flat, self.normal, relative / jnp.sqrt(square))
