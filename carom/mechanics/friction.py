"""Coulomb friction of bodies without rotation: the slip at a contact is the relative velocity of the centres.

The compliance S = 1/m_1 + 1/m_2 of such a contact is the same in normal and tangential directions, so that
friction does not change the rate of the gap and restitution does not change the slip. A tangential impulse
within μ λ then removes a fraction κ of the slip w_t:

    κ = min(1, μ λ S/|w_t|)        w_t⁺ = (1 − κ) w_t        impulse −κ w_t/S

κ = 1 is sticking, κ < 1 sliding. Slip is never reversed, so friction never adds energy.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.mechanics.geometry import length
from carom.mechanics.inertia import AbstractInertia
from carom.types import Coordinates, Jacobian, PerContact, Scalar

Vectors = Float[Array, "contacts dimension"]
Values = Float[Array, "contacts *dimension"]


def removed_slip(
    slip_speed: Float[Array, "*any"],
    normal_impulse: Float[Array, "*any"],
    *,
    friction: Float[Array, "..."],
    compliance: Float[Array, "*any"],
) -> Float[Array, "*any"]:
    """κ, the fraction of the slip that friction removes.

    Example:
        >>> one = jnp.ones(2)    # the first contact sticks, the second slides
        >>> removed_slip(jnp.array([0.1, 4.0]), one, friction=0.5 * one, compliance=2 * one)
        Array([1.  , 0.25], dtype=float32)
    """
    return share_within(friction * normal_impulse * compliance, slip_speed)


def share_within(limit: Float[Array, "*any"], size: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """min(1, limit/size), with 1 for size 0; the derivative is finite everywhere."""
    exceeds = size > limit
    return jnp.where(exceeds, limit / jnp.where(exceeds, size, 1), 1)


class Frictional(NamedTuple):
    """Candidate contacts in vector form, with normal and tangential components.

    Arguments:
        signs: of the bodies of a contact, +1 for the first and −1 for the second.
        mobility: change of every relative velocity by a unit impulse at every contact; isotropic for bodies
            with masses.
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
        """Total impulse on every body from impulses on the first bodies and opposite ones on the second."""
        return self.signs.T @ impulse

    def across(self, vectors: Vectors) -> Vectors:
        """The tangential part of a vector at every contact."""
        return vectors - self.normal * jnp.sum(self.normal * vectors, axis=1, keepdims=True)

    def along(self, vectors: Vectors) -> PerContact:
        """The normal component of a vector at every contact."""
        return jnp.sum(self.normal * vectors, axis=1)


def frictional(jacobian: Jacobian, inertia: AbstractInertia, signs, *, friction: PerContact) -> Frictional:
    """The contacts of a scene in vector form; `inertia` must be that of bodies with masses."""
    selection = jnp.asarray(signs, jacobian.dtype)
    # A row of the contact Jacobian holds the normal at the first body of its contact.
    normal = jnp.einsum("ckd,ck->cd", jacobian, jnp.maximum(selection, 0))
    response = jax.vmap(lambda row: inertia.solve(row[:, None])[:, 0])(selection)
    return Frictional(selection, selection @ response.T, normal, friction)


def friction_impulses(contacts: Frictional, velocity: Coordinates, normal_impulse: PerContact) -> Vectors:
    """Tangential impulses within μ λ, contact by contact with the current slip (one Gauss–Seidel sweep).

    Each contact reduces the slip that the previous ones left, so that the kinetic energy never increases,
    even if contacts share bodies.
    """
    compliance = jnp.diagonal(contacts.mobility)

    def visit(index, carry):
        relative, impulse = carry
        slip = contacts.across(relative)[index]
        mu, S = contacts.coefficient[index], compliance[index]
        share = removed_slip(length(slip), normal_impulse[index], friction=mu, compliance=S)
        push = -share * slip / S
        return relative + contacts.mobility[:, index][:, None] * push[None, :], impulse.at[index].set(push)

    relative = contacts.relative(velocity)
    return lax.fori_loop(0, len(normal_impulse), visit, (relative, jnp.zeros_like(relative)))[1]


def holding_forces(
    contacts: Frictional,
    free: Vectors,
    slip: Vectors,
    *,
    closed: Bool[Array, "contacts"],
    rest_speed: Scalar,
    sweeps: int = 1000,
    differentiable: bool = True,
) -> Vectors:
    """Contact forces ρ at closed contacts: repulsive normal forces, and friction within μ times them.

    The relative accelerations are a = a_free + W ρ with W the mobility. At every closed contact

        0 ≤ ρ_n ⟂ n·a ≥ 0        ρ_t = −μ ρ_n w_t/|w_t| where it slides,
                                 |ρ_t| ≤ μ ρ_n with a_t = 0, or |ρ_t| = μ ρ_n against a_t, where it does not.

    Gauss–Seidel sweeps determine which contacts push and which stick; the forces and their derivatives then
    follow from one linear solve, if that agrees with the sweeps.

    Arguments:
        free: relative accelerations a_free without contact forces.
        slip: tangential relative velocities.
        closed: which contacts are closed.
        rest_speed: slip below which a contact sticks, or starts to slide.
        sweeps: upper bound on their number.
        differentiable: whether to follow up with the linear solve.
    """
    count, dimension = slip.shape
    unit = jnp.eye(count * dimension, dtype=free.dtype)
    speed = length(slip)
    slides = closed & (speed > rest_speed)
    direction = slip / jnp.where(slides, speed, 1)[:, None]
    swept = _swept_forces(*lax.stop_gradient((contacts, free, direction)), closed, slides, sweeps)
    if not differentiable:
        return swept
    normal, across = contacts.normal, lax.stop_gradient(contacts.across(swept))
    pushing = contacts.along(swept) > 0
    limit = contacts.coefficient * contacts.along(swept)
    sticks = pushing & ~slides & (length(across) < lax.stop_gradient(limit) * (1 - 1e-9))
    # At the onset of sliding friction opposes the impending motion.
    starts = -across / jnp.where(length(across) > 0, length(across), 1)[:, None]
    direction = jnp.where(slides[:, None], direction, starts)
    # The sweeps converge slowly and are not differentiated; what they decide is enough for one linear system.
    identity = jnp.eye(dimension, dtype=free.dtype)
    outer = normal[:, :, None] * normal[:, None, :]
    # Rows of the system: a = 0 if sticking; n·a = 0 and ρ_t = −μ ρ_n × direction if sliding; else ρ = 0.
    acts = jnp.where(sticks[:, None, None], identity[None], outer)
    acts = jnp.where(pushing[:, None, None], acts, 0)
    drag = contacts.coefficient[:, None, None] * direction[:, :, None] * normal[:, None, :]
    own = identity[None] - outer + drag
    own = jnp.where(pushing[:, None, None], jnp.where(sticks[:, None, None], 0, own), identity[None])
    matrix = jnp.einsum("cab,ce->caeb", acts, contacts.mobility)
    matrix = matrix + jnp.einsum("cab,ce->caeb", own, jnp.eye(count, dtype=free.dtype))
    square = matrix.reshape(count * dimension, count * dimension)
    right = -jnp.einsum("cab,cb->ca", acts, free).ravel()
    solved = jnp.linalg.solve(lax.stop_gradient(square), lax.stop_gradient(right))
    scale = jnp.max(jnp.abs(swept), initial=0.0)
    # A contact at the verge of sticking may be decided wrongly: then the sweeps are the better answer.
    agrees = jnp.max(jnp.abs(solved - swept.ravel()), initial=0.0) <= 1e-4 * scale
    # Redundant contacts make the system singular: replacing it first keeps NaN out of the derivatives.
    exact = jnp.linalg.solve(jnp.where(agrees, square, unit), right).reshape(swept.shape)
    return jnp.where(agrees, exact, swept)


def _swept_forces(
    contacts: Frictional, free: Vectors, direction: Vectors, closed, slides, sweeps: int
) -> Vectors:
    """Gauss–Seidel over the closed contacts."""
    own = jnp.diagonal(contacts.mobility)

    def visit(index, force):
        normal, mu = contacts.normal[index], contacts.coefficient[index]
        stopping = force[index] - (free[index] + contacts.mobility[index] @ force) / own[index]
        push = jnp.maximum(jnp.sum(normal * stopping), 0)
        sticking = stopping - normal * jnp.sum(normal * stopping)
        fraction = share_within(mu * push, length(sticking))
        across = jnp.where(slides[index], -mu * push * direction[index], fraction * sticking)
        return force.at[index].set(jnp.where(closed[index], normal * push + across, 0))

    return gauss_seidel(visit, jnp.zeros_like(free), closed, sweeps=sweeps, tolerance=1e-14)


def gauss_seidel(
    visit: Callable[[int, Values], Values],
    start: Values,
    active: Bool[Array, "contacts"],
    *,
    sweeps: int,
    tolerance: float,
) -> Values:
    """Visit all contacts in turn until the largest change is within `tolerance` of the largest value.

    At most so many sweeps are made, and none without an active contact: most steps have none.
    """

    def sweep(carry):
        count, values, _ = carry
        after = lax.fori_loop(0, len(active), visit, values)
        change, size = (jnp.max(jnp.abs(x), initial=0.0) for x in (after - values, after))
        return count + 1, after, change > tolerance * size

    def unconverged(carry):
        return (carry[0] < sweeps) & carry[2]

    return lax.while_loop(unconverged, sweep, (0, start, jnp.any(active)))[1]
