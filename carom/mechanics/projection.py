"""Projections that remove overlap at body–body contacts after a step."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool

from carom.mechanics.geometry import ContactGeometry, generalised_impulse
from carom.mechanics.inertia import AbstractInertia, contact_compliance
from carom.types import Coordinates

Projection = Literal["none", "inverse_mass", "reference_point"]


def project_overlap(
    mode: Projection,
    geometry: ContactGeometry,
    inertia: AbstractInertia,
    position: Coordinates,
    touching: Bool[Array, "contacts"],
    *,
    reference: Coordinates | tuple[tuple[float, ...], ...] = (),
) -> Coordinates:
    """Positions without the overlap of touching pairs; walls are left as they are.

    Arguments:
        mode: "inverse_mass" moves pairs along their normal to gap 0, the lighter body farther:
            ΔQ = −M⁻¹ Gᵀ S⁻¹ g. "reference_point" moves both bodies to their known meeting point (angle 0 in
            the cradle). "none" moves nothing.
        reference: that meeting point, for every body.
    """
    pairs = geometry.body_pairs
    if mode == "none" or not pairs.any():
        return position
    touching = touching & jnp.asarray(pairs)
    if mode == "reference_point":
        moved = jnp.any(touching[:, None] & jnp.asarray(geometry.incidence), axis=0)
        return jnp.where(moved[:, None], jnp.asarray(reference, position.dtype), position)
    gap, jacobian = geometry.gap(position), geometry.jacobian(position)
    overlap = jnp.where(touching, jnp.minimum(gap, 0), 0)
    # The compliance of each contact by itself: several overlaps of one body are reduced, not removed.
    stiffness = 1 / jnp.diagonal(contact_compliance(inertia, jacobian))
    return position - inertia.solve(generalised_impulse(jacobian, stiffness * overlap))
