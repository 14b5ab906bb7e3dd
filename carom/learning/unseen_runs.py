"""What to expect of a run that was not fitted, where runs differ: what was found in those that were."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from carom.learning.run_unknowns import RunUnknowns, with_run
from carom.models import ImpactNetwork


def put_in_the_middle(model: ImpactNetwork, runs: RunUnknowns) -> tuple[ImpactNetwork, RunUnknowns]:
    """The same fit with surfaces where they are in the median run, and what each run adds to that.

    Where a run has gaps of its own, nothing else tells where the surfaces of all runs are: they stay where
    the search began, which need not be near any run.
    """
    if not runs.gap.size:
        return model, runs
    middle = np.median(runs.gap, axis=0)
    shift = model.contact.shift + jnp.asarray(middle, model.contact.shift.dtype)
    return eqx.tree_at(lambda m: m.contact.shift, model, shift), runs._replace(gap=runs.gap - middle)


def as_in_some_run(draws: ImpactNetwork, runs: RunUnknowns, *, seed: int = 0) -> ImpactNetwork:
    """Each of several models as it is in one of the runs, taken at random, to span what a new run may be.

    Arguments:
        draws: models whose arrays have an axis over them before their own.
        runs: what each run adds to the parameters of all, a row per run.
        seed: of the choice.
    """
    if not any(part.size for part in runs):
        return draws
    arrays = jax.tree.map(jnp.asarray, draws)
    chosen = np.random.default_rng(seed).integers(len(runs.gap), size=len(arrays.contact.shift))
    additions = jax.tree.map(lambda part: jnp.asarray(part[chosen], jnp.float32), runs)
    return jax.tree.map(np.asarray, eqx.filter_vmap(with_run)(arrays, additions))
