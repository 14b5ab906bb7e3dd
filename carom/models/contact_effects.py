"""What a contact does in a CD-Lagrange step where its surface is flat: linear maps, as plain numbers."""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.mechanics import Masses, Scene, generalised_impulse, project_overlap, restitution_impulse


class ContactEffect(NamedTuple):
    """ΔQ = place + move Q and ΔV = by_before V + by_smooth V^S, when one contact touches."""

    place: Float[np.ndarray, "coordinates"]
    move: Float[np.ndarray, "coordinates coordinates"]
    by_before: Float[np.ndarray, "coordinates coordinates"]
    by_smooth: Float[np.ndarray, "coordinates coordinates"]


@lru_cache
def contact_effects(scene: Scene) -> tuple[ContactEffect, ...]:
    """The effect of every contact, by trying the formulae of `carom.mechanics` on one after another.

    That adds up over contacts which share no body, on flat surfaces, with a projection that does not ask how
    far bodies overlap.

    Example:
        >>> import carom
        >>> (floor,) = contact_effects(carom.systems.BouncingBall(restitution=0.5).scene())
        >>> floor.by_before.item(), floor.by_smooth.item()  # v⁺ = −e v⁻ instead of v^S
        (-0.5, -1.0)
    """
    geometry, shape = scene.geometry, (scene.bodies, scene.dimension)

    def moved(Q, contact):
        position = project_overlap(
            scene.projection, geometry, inertia, Q.reshape(shape), contact > 0, reference=scene.reference
        )
        return position.ravel() - Q

    def kicked(V, smooth, contact):
        jacobian = geometry.jacobian(zero.reshape(shape))
        impulse = restitution_impulse(
            jacobian,
            inertia,
            V.reshape(shape),
            smooth.reshape(shape),
            restitution=jnp.full(contact.shape, scene.restitution, contact.dtype),
            active=contact,
        )
        return inertia.solve(generalised_impulse(jacobian, impulse)).ravel()

    # Now, even where the caller is being traced.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        inertia = Masses(jnp.asarray(scene.masses, jnp.float64))
        zero = jnp.zeros(scene.coordinates, jnp.float64)
        return tuple(
            ContactEffect(
                np.asarray(moved(zero, contact)),
                np.asarray(jax.jacfwd(moved)(zero, contact)),
                np.asarray(jax.jacfwd(kicked)(zero, zero, contact)),
                np.asarray(jax.jacfwd(kicked, argnums=1)(zero, zero, contact)),
            )
            for contact in jnp.eye(scene.contacts, dtype=jnp.float64)
        )
