"""Coulomb friction of bodies that cannot spin: the slip at a contact is that of their centres.

At one contact of such bodies the compliance S = 1/m_1 + 1/m_2 is the same along the normal and across it, so
that friction leaves the rate of the gap alone and the law of restitution leaves the slip alone. A tangential
impulse within μ λ then removes a share κ of the slip w_t:

    κ = min(1, μ λ S/|w_t|)        w_t⁺ = (1 − κ) w_t        impulse −κ w_t/S

κ = 1 is sticking, κ < 1 sliding. Slip never turns around, so friction never adds energy.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.mechanics.inertia import AbstractInertia
from carom.types import Coordinates, Jacobian, PerContact

Vectors = Float[Array, "contacts dimension"]


def removed_slip(
    slip_speed: Float[Array, "*any"],
    normal_impulse: Float[Array, "*any"],
    *,
    friction: Float[Array, "..."],
    compliance: Float[Array, "*any"],
) -> Float[Array, "*any"]:
    """κ, the share of the slip that friction removes.

    Example:
        >>> one = jnp.ones(2)    # the first contact sticks, the second slides
        >>> removed_slip(jnp.array([0.1, 4.0]), one, friction=0.5 * one, compliance=2 * one)
        Array([1.  , 0.25], dtype=float32)
    """
    return share_within(friction * normal_impulse * compliance, slip_speed)


def share_within(limit: Float[Array, "*any"], size: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """min(1, limit/size): what is left of something of that size, 1 where it is 0."""
    exceeds = size > limit
    return jnp.where(exceeds, limit / jnp.where(exceeds, size, 1), 1)


def length(vectors: Float[Array, "... dimension"], *, axis: int = -1) -> Float[Array, "..."]:
    """|x| along an axis, with derivative 0 where x = 0."""
    square = jnp.sum(vectors**2, axis=axis)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


class Frictional(NamedTuple):
    """Candidate contacts as vectors: how bodies move relative to each other, not only along the normal.

    Arguments:
        signs: which bodies a contact joins, +1 for the first and −1 for the second.
        mobility: the change of every relative velocity by a unit impulse at every contact, the same in all
            directions for bodies with masses.
        normal: n of every contact.
        coefficient: μ of every contact.
    """

    signs: Float[Array, "contacts bodies"]
    mobility: Float[Array, "contacts contacts"]
    normal: Vectors
    coefficient: PerContact

    def relative(self, velocity: Coordinates) -> Vectors:
        """w = v_first − v_second, or the velocity of a body at a wall."""
        return self.signs @ velocity

    def momentum(self, impulse: Vectors) -> Coordinates:
        """What impulses on the first bodies, and their opposites on the second ones, give to every body."""
        return self.signs.T @ impulse

    def across(self, vectors: Vectors) -> Vectors:
        """The part of a vector per contact that lies across the normal."""
        return vectors - self.normal * jnp.sum(self.normal * vectors, axis=1, keepdims=True)

    def along(self, vectors: Vectors) -> PerContact:
        """The component of a vector per contact along the normal."""
        return jnp.sum(self.normal * vectors, axis=1)


def frictional(jacobian: Jacobian, inertia: AbstractInertia, signs, *, friction: PerContact) -> Frictional:
    """The contacts of a scene as vectors; `inertia` must be that of bodies with masses."""
    selection = jnp.asarray(signs, jacobian.dtype)
    # What a row of G holds at the first body of its contact.
    normal = jnp.einsum("ckd,ck->cd", jacobian, jnp.maximum(selection, 0))
    response = jax.vmap(lambda row: inertia.solve(row[:, None])[:, 0])(selection)
    return Frictional(selection, selection @ response.T, normal, friction)


def friction_brake(
    jacobian: Jacobian,
    inertia: AbstractInertia,
    signs,
    velocity: Coordinates,
    normal_impulse: PerContact,
    *,
    friction: PerContact,
) -> Coordinates:
    """The velocity after friction has acted beside these normal impulses."""
    contacts = frictional(jacobian, inertia, signs, friction=friction)
    braking = friction_impulses(contacts, velocity, normal_impulse)
    return velocity + inertia.solve(contacts.momentum(braking))


def friction_impulses(contacts: Frictional, velocity: Coordinates, normal_impulse: PerContact) -> Vectors:
    """Tangential impulses within μ λ, found contact by contact with the current slip.

    Each visit removes slip from the velocities that the visits before have left, so that the kinetic energy
    falls from visit to visit also where contacts share bodies.
    """
    compliance = jnp.diagonal(contacts.mobility)

    def visit(index, carry):
        relative, impulse = carry
        slip = contacts.across(relative)[index]
        share = removed_slip(
            length(slip),
            normal_impulse[index],
            friction=contacts.coefficient[index],
            compliance=compliance[index],
        )
        push = -share * slip / compliance[index]
        return relative + contacts.mobility[:, index][:, None] * push[None, :], impulse.at[index].set(push)

    relative = contacts.relative(velocity)
    return lax.fori_loop(0, len(normal_impulse), visit, (relative, jnp.zeros_like(relative)))[1]


def holding_forces(
    contacts: Frictional,
    pull: Vectors,
    slip: Vectors,
    *,
    closed: Bool[Array, "contacts"],
    rest_speed: float,
    sweeps: int = 1000,
) -> Vectors:
    """Forces ρ that hold closed contacts: normal parts that push, friction within μ times them.

    The relative accelerations are a = pull + W ρ with W the mobility. At every closed contact

        0 ≤ ρ_n ⟂ n·a ≥ 0        ρ_t = −μ ρ_n w_t/|w_t| where it slides,
                                 |ρ_t| ≤ μ ρ_n with a_t = 0, or |ρ_t| = μ ρ_n against a_t, where it does not.

    Sweeps over the contacts find out which push and which stick; the forces and their derivatives then follow
    from one linear solve, where that confirms what the sweeps found.
    """
    count, dimension = slip.shape
    speed = length(slip)
    slides = closed & (speed > rest_speed)
    direction = slip / jnp.where(slides, speed, 1)[:, None]
    found = _swept_forces(*lax.stop_gradient((contacts, pull, direction)), closed, slides, sweeps)

    normal, across = contacts.normal, lax.stop_gradient(contacts.across(found))
    pushing = contacts.along(found) > 0
    limit = contacts.coefficient * contacts.along(found)
    sticks = pushing & ~slides & (length(across) < lax.stop_gradient(limit) * (1 - 1e-9))
    # A contact that starts to slide is held back against where it would go.
    starts = -across / jnp.where(length(across) > 0, length(across), 1)[:, None]
    direction = jnp.where(slides[:, None], direction, starts)
    identity = jnp.eye(dimension, dtype=pull.dtype)
    outer = normal[:, :, None] * normal[:, None, :]
    # Rows of the system: a = 0 where it sticks; n·a = 0 and ρ_t = −μ ρ_n × direction where it slides.
    acts = jnp.where(sticks[:, None, None], identity[None], outer)
    acts = jnp.where(pushing[:, None, None], acts, 0)
    own = (
        identity[None]
        - outer
        + contacts.coefficient[:, None, None] * direction[:, :, None] * normal[:, None, :]
    )
    own = jnp.where(pushing[:, None, None], jnp.where(sticks[:, None, None], 0, own), identity[None])
    matrix = jnp.einsum("cab,ce->caeb", acts, contacts.mobility)
    matrix = matrix + jnp.einsum("cab,ce->caeb", own, jnp.eye(count, dtype=pull.dtype))
    square = matrix.reshape(count * dimension, count * dimension)
    wanted = -jnp.einsum("cab,cb->ca", acts, pull).ravel()
    solved = jnp.linalg.solve(lax.stop_gradient(square), lax.stop_gradient(wanted))
    scale = jnp.max(jnp.abs(found), initial=0.0)
    close = jnp.max(jnp.abs(solved - found.ravel()), initial=0.0) <= 1e-4 * scale
    # Redundant contacts make the system singular: it is replaced before the solve that derivatives see.
    unit = jnp.eye(count * dimension, dtype=pull.dtype)
    exact = jnp.linalg.solve(jnp.where(close, square, unit), wanted).reshape(found.shape)
    return jnp.where(close, exact, found)


def _swept_forces(
    contacts: Frictional, pull: Vectors, direction: Vectors, closed, slides, sweeps: int
) -> Vectors:
    """Gauss–Seidel over the closed contacts, until nothing changes or `sweeps` are done."""
    own = jnp.diagonal(contacts.mobility)

    def visit(index, force):
        normal, mu = contacts.normal[index], contacts.coefficient[index]
        wanted = force[index] - (pull[index] + contacts.mobility[index] @ force) / own[index]
        push = jnp.maximum(jnp.sum(normal * wanted), 0)
        held = wanted - normal * jnp.sum(normal * wanted)
        grip = share_within(mu * push, length(held))
        across = jnp.where(slides[index], -mu * push * direction[index], grip * held)
        return force.at[index].set(jnp.where(closed[index], normal * push + across, 0))

    def sweep(carry):
        count, force, _ = carry
        after = lax.fori_loop(0, len(own), visit, force)
        change = jnp.max(jnp.abs(after - force), initial=0.0)
        return count + 1, after, change > 1e-14 * jnp.max(jnp.abs(after), initial=0.0)

    def unsettled(carry):
        return (carry[0] < sweeps) & carry[2]

    start = 0, jnp.zeros_like(pull), jnp.any(closed)
    return lax.while_loop(unsettled, sweep, start)[1]
