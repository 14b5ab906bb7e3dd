"""The paper's operators: A, normals and effective masses, for at most one contact per body and masses m_k.

They state the impulse per body instead of per contact; `carom.mechanics.impact` is the general form, and the
tests show that both agree where both apply. Signs as corrected in docs/theory.md.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from carom.types import Coordinates, PerBody, Scalar

WALL = -1
"""Partner index of a body that touches a wall."""


def selection_matrix(
    partner: Int[Array, "bodies"], touching: Bool[Array, "bodies"]
) -> Float[Array, "bodies bodies"]:
    """A with A_kk = −1 and A_{k,p(k)} = 1 where body k touches: (A V)_k = v_p − v_k, or −v_k at a wall."""
    bodies = jnp.arange(len(partner))[None, :]
    selects_partner = (partner[:, None] == bodies) & touching[:, None]
    selects_itself = (bodies == bodies.T) & touching[:, None]
    return selects_partner.astype(float) - selects_itself.astype(float)


def effective_masses(selection: Float[Array, "bodies bodies"], masses: PerBody) -> PerBody:
    """μ_k = 1/[A M⁻¹ Aᵀ]_kk: m_k at a wall, m_i m_j/(m_i + m_j) for a pair, 0 without contact."""
    compliance = selection**2 @ (1 / masses)
    return jnp.where(compliance > 0, 1 / jnp.where(compliance > 0, compliance, 1), 0)


def body_impulses(
    selection: Float[Array, "bodies bodies"],
    masses: PerBody,
    normals: Coordinates,
    before: Coordinates,
    smooth: Coordinates,
    *,
    restitution: Scalar,
) -> Coordinates:
    """I_k = n_k λ_k with λ_k = μ_k [A (e V + V^S)]_k · n_k, where n_k points from the partner to body k."""
    relative = selection @ (restitution * before + smooth)
    impulse = effective_masses(selection, masses) * jnp.sum(relative * normals, axis=1)
    return normals * impulse[:, None]
