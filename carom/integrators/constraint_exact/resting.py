"""Resting contacts of the constraint-exact step: reaction forces, and the end of sliding."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from carom.integrators.base import ConservativeForce
from carom.mechanics import (
    AbstractInertia,
    ContactGeometry,
    contact_compliance,
    contact_rate,
    generalised_impulse,
    length,
)
from carom.mechanics.friction import Frictional, frictional, holding_forces
from carom.mechanics.impact import complementary_impulse
from carom.types import Coordinates, Jacobian, PerContact, Scalar, State

RestitutionLaw = Callable[[PerContact], PerContact]


class Mechanics(NamedTuple):
    """Quantities that are constant within a constraint-exact step."""

    inertia: AbstractInertia
    force: ConservativeForce
    geometry: ContactGeometry
    restitution: RestitutionLaw
    friction: PerContact | None
    grazing_speed: Scalar
    rest_speed: Scalar

    def acceleration(self, position: Coordinates) -> Coordinates:
        """M⁻¹F, the acceleration without contact forces."""
        return self.inertia.solve(self.force(position))

    def rough(self, jacobian: Jacobian) -> Frictional:
        """The contacts in vector form; only valid with friction."""
        assert self.friction is not None
        return frictional(jacobian, self.inertia, self.geometry.signs, friction=self.friction)


def held_acceleration(
    mechanics: Mechanics,
    position: Coordinates,
    acceleration: Coordinates,
    resting: Bool[Array, "contacts"],
    velocity: Coordinates | None = None,
) -> tuple[Coordinates, PerContact]:
    """The acceleration with reactions at resting contacts, and the free acceleration of every gap.

    The free acceleration of a gap is the one without the reaction of that contact itself, but with the
    reactions of all others (a ball on top of a ball on the floor): a contact opens if it is positive.
    Friction acts if a velocity is given.
    """
    jacobian = mechanics.geometry.jacobian(position)
    if velocity is not None and mechanics.friction is not None and len(resting):
        contacts = mechanics.rough(jacobian)
        relative = contacts.relative(acceleration)
        slip = contacts.across(contacts.relative(velocity))
        force = holding_forces(contacts, relative, slip, closed=resting, rest_speed=mechanics.rest_speed)
        held = contacts.along(relative + contacts.mobility @ force)
        gap_acceleration = held - jnp.diagonal(contacts.mobility) * contacts.along(force)
        return acceleration + mechanics.inertia.solve(contacts.momentum(force)), gap_acceleration
    # Without friction the scalar form is enough, and much smaller.
    compliance = contact_compliance(mechanics.inertia, jacobian)
    gap_acceleration = contact_rate(jacobian, acceleration)
    reaction = stopping_impulses(mechanics, compliance, gap_acceleration, resting)
    gap_acceleration = gap_acceleration + compliance @ reaction - jnp.diagonal(compliance) * reaction
    return acceleration + mechanics.inertia.solve(generalised_impulse(jacobian, reaction)), gap_acceleration


def stopping_impulses(
    mechanics: Mechanics, compliance, rate: PerContact, touching: Bool[Array, "contacts"]
) -> PerContact:
    """Complementary impulses that keep the touching contacts from closing."""
    zero = jnp.zeros_like(rate)
    geometry = mechanics.geometry
    return complementary_impulse(
        compliance,
        rate,
        zero,
        target=zero,
        touching=touching,
        sweeps=2 * len(geometry) if geometry.coupled else 1,
        # Geometry limits the number of simultaneous contacts: few neighbours fit around each body.
        capacity=(2 * geometry.dimension - 1) * geometry.bodies + 1,
    )[0]


def slip_end(
    mechanics: Mechanics, state: State, acceleration: Coordinates, resting: Bool[Array, "contacts"]
) -> Float[Array, ""]:
    """The time at which the first sliding contact starts to stick, ∞ without friction; forces change then."""
    if mechanics.friction is None or not len(resting):
        return jnp.asarray(jnp.inf, state.position.dtype)
    contacts = mechanics.rough(mechanics.geometry.jacobian(state.position))
    slip = contacts.across(contacts.relative(state.velocity))
    speed = length(slip)
    slides = resting & (speed > mechanics.rest_speed) & (mechanics.friction > 0)
    slowing = -jnp.sum(slip * contacts.relative(acceleration), axis=1) / jnp.where(slides, speed, 1)
    slows = slides & (slowing > 0)
    return jnp.min(jnp.where(slows, speed / jnp.where(slows, slowing, 1), jnp.inf))
