"""Contact impulses with Newton's restitution law, and with Coulomb friction for single impacts.

`restitution_impulse` and `unilateral_impulse` take the contact Jacobian G at Q_{n+1}, the velocity `before`
the step V_{n+1/2} and its `smooth` continuation V^S, and return impulses λ; the step then adds M⁻¹ Gᵀ λ.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.mechanics.friction import gauss_seidel, removed_slip
from carom.mechanics.geometry import contact_rate, length
from carom.mechanics.inertia import AbstractInertia, contact_compliance
from carom.types import Coordinates, Jacobian, PerContact

Compliance = Float[Array, "contacts contacts"]
Touching = Bool[Array, "contacts"]
MANY_SWEEPS = 1000
"""As many as the slowest piles of bodies need, in place of a linear solve."""


def impact_impulse(
    normal: Float[Array, "..."],
    relative_velocity: Float[Array, "..."],
    compliance: Float[Array, "*contacts"],
    *,
    restitution: Float[Array, "..."],
    friction: Float[Array, "..."] | None = None,
    kick: Float[Array, "..."] | None = None,
    carried: Float[Array, "..."] | None = None,
    axis: int = -1,
) -> Float[Array, "..."]:
    """The impulse on the first body of an impact: Newton's law normally, Coulomb's law tangentially.

        u = n·w        λ = (max(−e u, 0) − u)/S        impulse = λ n − κ w_t/S,   κ = min(1, μ λ S/|w_t|)

    Each impact is treated by itself. The second body receives the opposite impulse. A separating contact
    (u > 0) is stopped, without friction; callers mask it if that is not intended.

    Arguments:
        normal: unit vectors n from the second body to the first.
        relative_velocity: w, of the first body relative to the second.
        compliance: S = 1/m₁ + 1/m₂, the same in all directions; 1/m₁ at a wall.
        restitution: e, for all impacts or for each.
        friction: μ, for all impacts or for each; None for smooth surfaces.
        kick: a change of the relative velocity beyond these laws, of which the part across n counts.
        carried: what a contact that lasts adds to the rate after it (`lasting_contact`).
        axis: that of the vectors' components; the other axes are those of `compliance`.

    Example:
        >>> up, falling = jnp.array([[0.0, 1.0]]), jnp.array([[3.0, -2.0]])
        >>> impact_impulse(up, falling, jnp.ones(1), restitution=jnp.array(0.5), friction=jnp.array(0.1))
        Array([[-0.3,  3. ]], dtype=float32)
    """
    rate = jnp.sum(normal * relative_velocity, axis=axis)
    after = -restitution * rate if carried is None else carried - restitution * rate
    push = (jnp.maximum(after, 0) - rate) / compliance
    impulse = jnp.expand_dims(push, axis) * normal
    if kick is not None:
        along = jnp.sum(normal * kick, axis=axis, keepdims=True)
        impulse = impulse + (kick - along * normal) / jnp.expand_dims(compliance, axis)
    if friction is None:
        return impulse
    slip = relative_velocity - jnp.expand_dims(rate, axis) * normal
    # A negative λ would make κ negative, and friction would increase the slip.
    speed, repulsive = length(slip, axis=axis), jnp.maximum(push, 0)
    removed = removed_slip(speed, repulsive, friction=friction, compliance=compliance)
    return impulse - jnp.expand_dims(removed / compliance, axis) * slip


class Meeting(NamedTuple):
    """Where the paths before and after contacts that last meet, as if impacts were instantaneous there."""

    delay: Float[Array, "..."]
    """Time from when the bodies touch."""
    carried: Float[Array, "..."]
    """What is added to Newton's rate after the impact."""


def lasting_contact(
    restitution: Float[Array, "..."],
    duration: Float[Array, "..."],
    gap: Float[Array, "..."],
    rate: Float[Array, "..."],
    acceleration: Float[Array, "..."],
) -> Meeting:
    """A contact that lasts, and carries all other forces meanwhile, as an impact of two paths that meet.

    A gap that closes at −u opens at e u after τ, and is 0 both times. With its acceleration a by all other
    forces, the paths before and after meet c after the bodies touch, at the rates −u + a c and w:

        c = τ (e u − ½ a τ)/((1 + e) u − a τ)        w = e (u − a c) − a (τ − (1 + e) c)

    Arguments:
        restitution: e.
        duration: τ.
        gap, rate: anywhere on the path that closes it; u follows from the energy, u² = rate² − 2 a gap.
        acceleration: a.
    """
    square, pulled = rate**2 - 2 * acceleration * gap, -acceleration * duration
    # Where nothing closes there is no such contact, but a number is needed.
    u = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    whole = (1 + restitution) * u + pulled
    share = jnp.where(whole > 0, (restitution * u + 0.5 * pulled) / jnp.where(whole > 0, whole, 1), 0.5)
    delay = duration * jnp.clip(share, 0, 1)
    return Meeting(delay, -acceleration * (duration - (1 + restitution) * delay))


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

    `active` gates each contact: 1 is active, 0 inactive, and values between scale the impulse that the
    contact would need given the impulses of the others (a soft contact signal). The sign of λ is not
    restricted: an active contact may also attract.
    """
    compliance = contact_compliance(inertia, jacobian)
    change = -(restitution * contact_rate(jacobian, before) + contact_rate(jacobian, smooth))
    # The scalar formula of the paper; a linear solve of one equation would be much slower.
    if len(change) <= 1:
        return active * change / jnp.diagonal(compliance)
    # λ_j = c_j (change_j − Σ_{i≠j} S_ji λ_i) / S_jj. Inactive contacts stay in the system, with λ = 0, since
    # shapes are static. Redundant contacts make it singular, but the right-hand side lies in its range: a
    # ridge of the size of rounding errors then selects a solution.
    own = jnp.diag(jnp.diagonal(compliance))
    ridge = 4 * jnp.finfo(compliance.dtype).eps * own
    impulse = jnp.linalg.solve(own + ridge + active[:, None] * (compliance - own), active * change)
    return jnp.where(active > 0, impulse, 0)  # exact zeros, which pivoting does not guarantee


def unilateral_impulse(
    jacobian: Jacobian,
    inertia: AbstractInertia,
    before: Coordinates,
    smooth: Coordinates,
    *,
    restitution: PerContact,
    touching: Touching,
    sweeps: int = 32,
) -> tuple[PerContact, Bool[Array, ""]]:
    """Repulsive impulses λ ≥ 0 at touching contacts, and whether `sweeps` sufficed to find them.

    1. Closing contacts of V collide one after another, each with the current velocities, until none closes.
       This transmits momentum through a row of balls: (1, 0, 0) becomes (0, 0, 1), not (0, ½, ½).
    2. Contacts that still close after all `sweeps` are stopped without rebound, which never adds energy.
    3. The rates after these impacts, or −e u if a contact was not closing, are lower bounds u* for the step
       with smooth forces:   0 ≤ λ ⟂ G V⁺ − u* ≥ 0.

    For a single contact this is the formula of `restitution_impulse` with λ ≥ 0. It never adds kinetic energy
    to V when V^S = V, whether or not `sweeps` sufficed.
    """
    compliance = contact_compliance(inertia, jacobian)
    rate = contact_rate(jacobian, before)
    rate_after, impacts = _impact_sequence(compliance, rate, restitution, touching, sweeps)
    # Relative to the fastest contact: sweeps leave rounding, and speeds have any unit.
    converged = jnp.all(~touching | (rate_after >= -1e-6 * jnp.max(jnp.abs(rate), initial=0.0)))
    zero = jnp.zeros_like(rate)
    stop, stopped = complementary_impulse(
        compliance, rate_after, zero, target=zero, touching=touching, sweeps=sweeps
    )
    impacts, rate_after = impacts + stop, rate_after + compliance @ stop
    # Neither branch exceeds the rate after the impacts: without smooth forces no further impulse results.
    target = jnp.where(impacts > 0, rate_after, jnp.minimum(-restitution * rate_after, rate_after))
    impulse, solved = complementary_impulse(
        compliance, contact_rate(jacobian, smooth), impacts, target=target, touching=touching, sweeps=sweeps
    )
    return impulse, converged & stopped & solved


def _impact_sequence(
    compliance: Compliance, rate: PerContact, restitution: PerContact, touching: Touching, sweeps: int
) -> tuple[PerContact, PerContact]:
    """Newton's law at one closing contact after another; the final rates and the total impulses."""
    contacts = len(rate)
    if contacts == 0:
        return rate, rate

    def visit(index, carry):
        rate, impulse = carry
        j = index % contacts
        closing = touching[j] & (rate[j] < 0)
        push = jnp.where(closing, -(1 + restitution[j]) * rate[j] / compliance[j, j], 0.0)
        return rate + compliance[:, j] * push, impulse.at[j].add(push)

    return lax.fori_loop(0, sweeps * contacts, visit, (rate, jnp.zeros_like(rate)))


def complementary_impulse(
    compliance: Compliance,
    smooth_rate: PerContact,
    start: PerContact,
    *,
    target: PerContact,
    touching: Touching,
    sweeps: int,
    capacity: int | None = None,
    differentiable: bool = True,
) -> tuple[PerContact, Bool[Array, ""]]:
    """0 ≤ λ ⟂ smooth_rate + S λ − target ≥ 0 over the touching contacts, and whether it was solved.

    Projected Gauss–Seidel from `start` determines which contacts push. It converges slowly if contacts are
    strongly coupled, so their λ then follow from one linear solve, if that solves the problem. `capacity` is
    an upper bound on simultaneous contacts, which allows a smaller system. Without derivatives, many sweeps
    take the place of the solve.
    """
    contacts, missing = len(target), target - smooth_rate
    if contacts == 0:
        return start, jnp.ones((), bool)
    if sweeps == 1:
        # Uncoupled contacts are solved independently.
        return jnp.where(touching, jnp.maximum(missing / jnp.diagonal(compliance), 0), 0), jnp.ones((), bool)
    if capacity is None or capacity >= contacts:
        return _complementary(compliance, missing, start, touching, sweeps, differentiable)
    # Shapes are static, so touching contacts are gathered into a system of fixed size.
    rows = lax.top_k(touching.astype(int), capacity)[1]
    impulse, solved = _complementary(
        compliance[rows][:, rows], missing[rows], start[rows], touching[rows], sweeps, differentiable
    )
    return jnp.zeros_like(start).at[rows].set(impulse), solved & (jnp.sum(touching) <= capacity)


def _complementary(
    compliance: Compliance,
    missing: PerContact,
    start: PerContact,
    touching: Touching,
    sweeps: int,
    differentiable: bool,
) -> tuple[PerContact, Bool[Array, ""]]:
    """0 ≤ λ ⟂ S λ − missing ≥ 0 over the touching contacts."""
    S, lacking, begin = lax.stop_gradient((compliance, missing, jnp.where(touching, start, 0)))

    def visit(j, impulse):
        pushed = jnp.maximum(impulse[j] + (lacking[j] - S[j] @ impulse) / S[j, j], 0)
        return impulse.at[j].set(jnp.where(touching[j], pushed, 0))

    def solves(impulse):
        size = jnp.max(jnp.abs(compliance) @ jnp.abs(impulse) + jnp.abs(missing), initial=0.0)
        excess = compliance @ impulse - missing
        holds = (impulse >= 0) & (excess >= -1e-6 * size) & ((impulse == 0) | (excess <= 1e-6 * size))
        return jnp.all(~touching | holds)

    rounding = float(jnp.finfo(S.dtype).eps)
    most = sweeps if differentiable else MANY_SWEEPS
    swept = gauss_seidel(visit, begin, touching, sweeps=most, tolerance=rounding)
    if not differentiable:
        return swept, solves(swept)
    pushing = swept > 0
    identity = jnp.eye(len(missing), dtype=compliance.dtype)
    block = jnp.where(jnp.outer(pushing, pushing), compliance, identity)
    right = jnp.where(pushing, missing, 0)
    usable = solves(jnp.linalg.solve(block, right))
    # Redundant contacts make the block singular: replacing it first keeps NaN out of the derivatives.
    exact = jnp.linalg.solve(jnp.where(usable, block, identity), right)
    impulse = jnp.where(usable, exact, swept)
    return impulse, solves(impulse)
