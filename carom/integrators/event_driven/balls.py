"""Balls among planes in a uniform field: a scene as arrays, for motions that are known event by event."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.types import PerBody


class Balls(eqx.Module):
    """K balls and what they may hit: each other, and solids bounded by planes.

    Every field but `solids` may carry derivatives. In one dimension the balls are listed from the greatest
    coordinate to the least, as they cannot pass each other.

    Arguments:
        masses: one per ball.
        radii: one per ball.
        normals: of all planes, each of length 1 and pointing to where balls may be.
        offsets: a ball of radius r touches a plane where n·q = offset + r.
        solids: the planes of every solid, by number. A ball is inside a solid where it is behind all of its
            planes: a wall is a solid of one plane, a step of stairs one of two.
        restitution: e of all impacts.
        friction: μ of all contacts.
        gravity: the acceleration of the field; None on a free table.
    """

    masses: PerBody
    radii: PerBody
    normals: Float[Array, "planes dimension"]
    offsets: Float[Array, "planes"]
    restitution: Float[Array, ""]
    friction: Float[Array, ""]
    gravity: Float[Array, "dimension"] | None
    solids: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def bodies(self) -> int:
        """K."""
        return len(self.masses)

    @property
    def planes(self) -> int:
        """Number of planes, those of all solids together."""
        return len(self.offsets)

    @property
    def companions(self) -> tuple[tuple[int, ...], ...]:
        """For every plane, the other planes of its solid: it can be touched only behind all of them."""
        solid = {plane: planes for planes in self.solids for plane in planes}
        return tuple(tuple(p for p in solid[plane] if p != plane) for plane in range(self.planes))

    @property
    def field(self) -> Float[Array, "dimension"]:
        """The acceleration of a ball in flight."""
        return (
            jnp.zeros_like(self.normals, shape=self.normals.shape[1:])
            if self.gravity is None
            else self.gravity
        )
