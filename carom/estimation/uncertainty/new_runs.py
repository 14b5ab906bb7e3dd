"""Predictions for a new run where runs have parameters of their own: drawn from the fitted runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.estimation.parameters.free import FreeParameters, with_added
from carom.models import Mechanism


def centred_on_median(
    free: FreeParameters, model: Mechanism, added: Float[np.ndarray, "runs added"]
) -> tuple[Mechanism, Float[np.ndarray, "runs added"]]:
    """The model of the median run, and the deviations of all runs from it.

    A parameter estimated per run only has no shared estimate: the template keeps its initial value, which
    need not be close to any run.
    """
    if not added.shape[1]:
        return model, added
    median = np.median(added, axis=0)
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, model)
    return with_added(free.layout, free.maps, model, jnp.asarray(median)), added - median


def as_in_some_run(
    free: FreeParameters, samples: Mechanism, added: Float[np.ndarray, "runs added"], *, seed: int = 0
) -> Mechanism:
    """Posterior samples, each with the deviations of a random run, which represent a new run.

    Arguments:
        free: the free parameters.
        samples: mechanisms stacked along the first axis of their arrays.
        added: deviations of each run from the shared parameters.
        seed: of the random choice.
    """
    if not added.shape[1]:
        return samples
    count = len(samples.geometry.offset)
    chosen = np.random.default_rng(seed).integers(len(added), size=count)
    arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, samples)
    extra = jnp.asarray(added[chosen], jnp.float32)
    changed = eqx.filter_vmap(
        lambda one, row: with_added(free.layout, free.maps, one, row), in_axes=(eqx.if_array(0), 0)
    )(arrays, extra)
    return jax.tree.map(lambda leaf: np.asarray(leaf) if eqx.is_array(leaf) else leaf, changed)
