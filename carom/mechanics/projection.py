"""Projections that remove overlap at body–body contacts after a step."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool

from carom.mechanics.geometry import ContactGeometry, generalised_impulse
from carom.mechanics.inertia import AbstractInertia, contact_compliance
from carom.types import Coordinates

Projection = Literal["none", "inverse_mass", "reference_point"]


def inverse_mass_projection(
    geometry: ContactGeometry,
    inertia: AbstractInertia,
    position: Coordinates,
    touching: Bool[Array, "contacts"],
) -> Coordinates:
    """Move overlapping pairs along their normal to gap 0, the lighter body farther: ΔQ = −M⁻¹ Gᵀ S⁻¹ g.

    S is the compliance of each contact by itself, so several overlaps of one body are reduced, not removed.
    """
    gap, jacobian = geometry.gap(position), geometry.jacobian(position)
    overlap = jnp.where(touching & jnp.asarray(geometry.body_pairs), jnp.minimum(gap, 0), 0)
    stiffness = 1 / jnp.diagonal(contact_compliance(inertia, jacobian))
    return position - inertia.solve(generalised_impulse(jacobian, stiffness * overlap))


def reference_point_projection(
    geometry: ContactGeometry,
    reference: Coordinates,
    position: Coordinates,
    touching: Bool[Array, "contacts"],
) -> Coordinates:
    """Move the bodies of a touching pair to their known meeting point (angle 0 in the cradle)."""
    pair_touching = touching & jnp.asarray(geometry.body_pairs)
    moved = jnp.any(pair_touching[:, None] & jnp.asarray(geometry.incidence), axis=0)
    return jnp.where(moved[:, None], reference, position)


def project_overlap(
    mode: Projection,
    geometry: ContactGeometry,
    inertia: AbstractInertia,
    position: Coordinates,
    touching: Bool[Array, "contacts"],
    *,
    reference: Coordinates | tuple[tuple[float, ...], ...] = (),
) -> Coordinates:
    """Apply the projection named `mode`; only "reference_point" uses `reference`."""
    if mode == "none" or not geometry.body_pairs.any():
        return position
    if mode == "inverse_mass":
        return inverse_mass_projection(geometry, inertia, position, touching)
    return reference_point_projection(geometry, jnp.asarray(reference, position.dtype), position, touching)
