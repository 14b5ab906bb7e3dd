"""The CD-Lagrange step: an explicit, symplectic scheme with contact impulses.

    Q_{n+1}   = Q_n ⊞ h V_{n+1/2}
    V^S       = M⁻¹ (Ad* M V_{n+1/2} + h F(Q_{n+1}, V_{n+1/2}))      smooth part
    V_{n+3/2} = V^S + M⁻¹ Gᵀ λ                                       contact part

For points ⊞ is + and Ad* the identity, which is the scheme of the paper.

Reference: Fekak, Brun, Gravouil and Depale (2017), A new heterogeneous asynchronous explicit–implicit time
integrator for nonsmooth dynamics; with the restitution law as in docs/theory.md.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool

from carom.integrators.base import Detect, Force, Friction, Impulse, Project
from carom.mechanics import (
    AbstractConfiguration,
    AbstractInertia,
    ContactGeometry,
    Euclidean,
    generalised_impulse,
    restitution_impulse,
)
from carom.types import PerContact, Scalar, State


class ContactReport(NamedTuple):
    """Contact impulses of one step."""

    impulse: PerContact
    resolved: Bool[Array, ""]
    """Whether the impulses solve the contact problem; if not, remaining closing contacts were stopped."""


def cd_lagrange_step(
    state: State,
    step_size: Scalar,
    *,
    inertia: AbstractInertia,
    force: Force,
    geometry: ContactGeometry,
    detect: Detect,
    impulse: Impulse,
    project: Project,
    friction: Friction | None = None,
    configuration: AbstractConfiguration = Euclidean(),  # noqa: B008 (immutable)
) -> tuple[State, ContactReport]:
    """Advance (Q_n, V_{n+1/2}) to (Q_{n+1}, V_{n+3/2}); also reports the impulses λ.

    A system passes its true force, gap test and unilateral impulse; a model passes learned ones.
    Overlap is removed before the force is evaluated, so that force and position are consistent.
    """
    h, V = step_size, state.velocity
    Q = configuration.retract(state.position, h * V)
    touching = detect(Q, V)
    Q = project(Q, touching)
    G = geometry.jacobian(Q)
    V_smooth = configuration.transport(inertia, V, h * V) + h * inertia.solve(force(Q, V))
    λ, resolved = impulse(G, inertia, V, V_smooth, touching)
    V = V_smooth + inertia.solve(generalised_impulse(G, λ))
    if friction is not None:
        V = friction(G, V, λ)
    return State(Q, V), ContactReport(λ, resolved)


def to_half_grid(state: State, step_size: Scalar, *, inertia: AbstractInertia, force: Force) -> State:
    """Half kick forward: V_{n+1/2} = v_n + (h/2) M⁻¹ F(q_n, v_n).

    Without contacts and damping, steps between these two half kicks are velocity Verlet.
    """
    kick = 0.5 * step_size * inertia.solve(force(state.position, state.velocity))
    return State(state.position, state.velocity + kick)


def to_sample_grid(
    before: State,
    after: State,
    *,
    inertia: AbstractInertia,
    geometry: ContactGeometry,
    touching: PerContact,
    rough: bool = False,
) -> State:
    """Half kick back at the end of a step: v_n = V_{n+1/2} − ½ (V_{n+1/2} − V_{n−1/2}).

    Without contact that is V_{n+1/2} − (h/2) M⁻¹ F(q_n), without another evaluation of the force. Along the
    normal of an active contact there is no kick to subtract, since the impulse determines the velocity there:
    a ball at rest on the floor has v = 0, and one that bounced −e V_{n−1/2}. On `rough` surfaces friction
    determines the tangential velocity too, so bodies in contact have no kick at all.
    """
    kick = 0.5 * (after.velocity - before.velocity)
    if len(geometry) and rough:
        joins = jnp.asarray(geometry.incidence)
        kick = jnp.where(jnp.any(joins & (touching > 0)[:, None], axis=0)[:, None], 0, kick)
    elif len(geometry):
        G = geometry.jacobian(after.position)
        # The plastic impulse on the kick removes its components along the active normals.
        zero, plastic = jnp.zeros_like(kick), jnp.zeros_like(touching)
        λ = restitution_impulse(G, inertia, zero, kick, restitution=plastic, active=touching)
        kick = kick + inertia.solve(generalised_impulse(G, λ))
    return State(after.position, after.velocity - kick)
