"""What an impact network has learned, in another scene."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from carom.errors import InputError
from carom.mechanics import Scene
from carom.models.impact_network import ImpactNetwork


def in_scene(model: ImpactNetwork, scene: Scene, *, step_size: float | None = None) -> ImpactNetwork:
    """The same field and laws of contact with other bodies, other walls or another step size.

    All walls of the model must obey one law, and all pairs one: there is no telling which of several holds
    elsewhere. Surfaces are where the new scene has them.

    Example:
        >>> import carom, jax
        >>> two, five = (carom.systems.Billiards(radii=(0.1,) * k, restitution=0.9) for k in (2, 5))
        >>> model = ImpactNetwork(two.scene(), 0.01, field="none", key=jax.random.key(0))
        >>> in_scene(model, five.scene(), step_size=0.04).restitution.shape
        (30, 1)
    """
    if model.field == "joint":
        raise InputError("A joint potential holds for the bodies that it was learned on, and no others.")
    if scene.dimension != model.scene.dimension:
        raise InputError(
            f"The model is for {model.scene.dimension} dimensions, the scene has {scene.dimension}."
        )
    new = ImpactNetwork(scene, model.step_size if step_size is None else step_size, **model.options)
    here, there = (s.geometry.body_pairs for s in (model.scene, scene))
    restitution, friction = np.array(new.restitution), np.array(new.friction)
    for pairs in (False, True):
        laws = [np.asarray(part)[here == pairs] for part in (model.restitution, model.friction)]
        if not (there == pairs).any():
            continue
        kind = "pairs" if pairs else "walls"
        if not len(laws[0]):
            raise InputError(f"The model has no {kind} to tell how those of the scene behave.")
        if any(np.ptp(part, axis=0).max() > 1e-6 for part in laws):
            raise InputError(f"The {kind} of the model obey several laws; learn one for all of them.")
        restitution[there == pairs], friction[there == pairs] = laws[0][0], laws[1][0]
    return eqx.tree_at(
        lambda m: (m.potential, m.pair_potential, m.restitution, m.friction),
        new,
        (model.potential, model.pair_potential, jnp.asarray(restitution), jnp.asarray(friction)),
    )
