"""Contact impulses with Newton's restitution law.

All functions take the contact Jacobian G at Q_{n+1}, the velocity `before` the step V_{n+1/2} and its
`smooth` continuation V^S, and return impulses λ; the step then adds M⁻¹ Gᵀ λ.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.mechanics.contact import contact_rate
from carom.mechanics.inertia import AbstractInertia, contact_compliance
from carom.types import Coordinates, Jacobian, PerContact


def restitution_impulse(
    jacobian: Jacobian,
    inertia: AbstractInertia,
    before: Coordinates,
    smooth: Coordinates,
    *,
    restitution: PerContact,
    active: PerContact,
) -> PerContact:
    """Impulse that makes every active contact obey u⁺ = −e u⁻, all at once.

        λ = −(G M⁻¹ Gᵀ)⁻¹ G (e V + V^S)          over the active contacts, 0 elsewhere

    `active` gates each contact: 1 and 0 decide, values between scale the impulse (a soft contact signal).
    The sign of λ is not restricted; whoever sets `active` vouches for the contact.
    """
    compliance = contact_compliance(inertia, jacobian)
    wanted = -(restitution * contact_rate(jacobian, before) + contact_rate(jacobian, smooth))
    if len(wanted) <= 1:
        return active * wanted / jnp.diagonal(compliance)
    # Inactive contacts are decoupled from the system rather than removed: shapes stay static.
    coupling = compliance * jnp.outer(active, active) * (1 - jnp.eye(len(wanted), dtype=compliance.dtype))
    return active * jnp.linalg.solve(coupling + jnp.diag(jnp.diagonal(compliance)), active * wanted)


def unilateral_impulse(
    jacobian: Jacobian,
    inertia: AbstractInertia,
    before: Coordinates,
    smooth: Coordinates,
    *,
    restitution: PerContact,
    touching: Bool[Array, "contacts"],
    sweeps: int = 32,
) -> tuple[PerContact, Bool[Array, ""]]:
    """Impulses λ ≥ 0 that push apart what touches, and whether `sweeps` sufficed to find them.

    1. Closing contacts of V hit one after another, each seeing the current velocities, until none closes.
       This carries momentum through a row of balls: (1, 0, 0) becomes (0, 0, 1), not (0, ½, ½).
    2. The rates after these impacts, or −e u where a contact was not closing, are what the step must not
       fall below once the smooth forces act:   0 ≤ λ ⟂ G V⁺ − u* ≥ 0.

    For a single contact this is the formula of `restitution_impulse` with λ ≥ 0. It never adds kinetic energy
    to V when V^S = V. When `sweeps` runs out, what still closes is stopped without rebound.
    """
    compliance = contact_compliance(inertia, jacobian)
    rate = contact_rate(jacobian, before)
    rate_after, impacts = _impact_sequence(compliance, rate, restitution, touching, sweeps)
    resolved = jnp.all(~touching | (rate_after >= -1e-6 * jnp.max(jnp.abs(rate), initial=0.0)))
    target = jnp.where(impacts > 0, jnp.maximum(rate_after, 0), -restitution * rate_after)
    impulse = _complementary_impulse(
        compliance, contact_rate(jacobian, smooth), impacts, target=target, touching=touching, sweeps=sweeps
    )
    return impulse, resolved


def _impact_sequence(
    compliance: Float[Array, "contacts contacts"],
    rate: PerContact,
    restitution: PerContact,
    touching: Bool[Array, "contacts"],
    sweeps: int,
) -> tuple[PerContact, PerContact]:
    """Newton's law at one closing contact after another; the rates and the summed impulses."""
    contacts = len(rate)

    def visit(index, carry):
        rate, impulse = carry
        j = index % contacts
        closing = touching[j] & (rate[j] < 0)
        push = jnp.where(closing, -(1 + restitution[j]) * rate[j] / compliance[j, j], 0.0)
        return rate + compliance[:, j] * push, impulse.at[j].add(push)

    return lax.fori_loop(0, sweeps * contacts, visit, (rate, jnp.zeros_like(rate)))


def _complementary_impulse(
    compliance: Float[Array, "contacts contacts"],
    smooth_rate: PerContact,
    start: PerContact,
    *,
    target: PerContact,
    touching: Bool[Array, "contacts"],
    sweeps: int,
) -> PerContact:
    """0 ≤ λ ⟂ smooth_rate + S λ − target ≥ 0 by projected Gauss–Seidel from `start`."""
    contacts = len(target)

    def visit(index, impulse):
        j = index % contacts
        missing = target[j] - smooth_rate[j] - compliance[j] @ impulse
        pushed = jnp.maximum(impulse[j] + missing / compliance[j, j], 0)
        return impulse.at[j].set(jnp.where(touching[j], pushed, 0))

    return lax.fori_loop(0, sweeps * contacts, visit, start)
