"""What to expect of a run that was not fitted, where runs differ: what was found in those that were."""

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
    """The same fit with a model that is the median run's, and what each run adds to that.

    Where only single runs have a parameter, nothing else tells what all have: it stays where the search
    began, which need not be near any run.
    """
    if not added.shape[1]:
        return model, added
    median = np.median(added, axis=0)
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, model)
    return with_added(free.layout, free.maps, model, jnp.asarray(median)), added - median


def as_in_some_run(
    free: FreeParameters, samples: Mechanism, added: Float[np.ndarray, "runs added"], *, seed: int = 0
) -> Mechanism:
    """Each of several mechanisms as it is in one of the runs, chosen at random, to span what a new run may
    be.

    Arguments:
        free: which parameters are free.
        samples: mechanisms whose arrays have an axis over them before their own.
        added: what each run adds to the parameters of all.
        seed: of the choice.
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
