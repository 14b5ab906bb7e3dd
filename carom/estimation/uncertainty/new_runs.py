"""What to expect of a run that was not fitted, where runs differ: what was found in those that were."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from carom.estimation.parameters.per_run import RunUnknowns, with_run
from carom.models import ImpactNetwork


def put_in_the_middle(model: ImpactNetwork, runs: RunUnknowns) -> tuple[ImpactNetwork, RunUnknowns]:
    """The same fit with a model that is the median run's, and what each run adds to that.

    Where only single runs have a parameter, nothing else tells what all have: it stays where the search
    began, which need not be near any run.
    """
    middle = RunUnknowns(*(np.median(part, axis=0) if part.size else part[0] for part in runs))
    rest = RunUnknowns(*(part - center[None] for part, center in zip(runs, middle, strict=True)))
    return with_run(*jax.tree.map(jnp.asarray, (model, middle))), rest


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
