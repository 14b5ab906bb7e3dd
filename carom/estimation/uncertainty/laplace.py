"""Laplace's approximation: mechanisms sampled from the normal distribution around a fit."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from carom.estimation.parameters.free import FreeParameters, Priors, with_values
from carom.forces import AbstractForce, AbstractLearnedPotential, LinearisedPotentialForce
from carom.models import Mechanism

SAMPLES = 64
"""Mechanisms that stand for what the data leave open."""
LARGEST = np.finfo(np.float32).max


def sample_mechanisms(
    free: FreeParameters,
    values: Float[np.ndarray, "shared"],
    covariance: Float[np.ndarray, "shared shared"],
    gradient: Float[np.ndarray, "shared"],
    priors: Priors,
    half_widths: Float[np.ndarray, "contacts"] | None = None,
    *,
    seed: int = 0,
) -> Mechanism:
    """Mechanisms whose arrays have an axis over `SAMPLES` samples before their own.

    Weights change a learned potential to first order; physical parameters are sampled as they are and kept
    within their bounds.

    Arguments:
        free: which parameters are free.
        values: the estimates.
        covariance: of all of them.
        gradient: of the cost; where an estimate lies on a bound it tells how far beyond the distribution has
            its centre.
        priors: with the bounds.
        half_widths: instead of the covariance, how far either way surfaces may lie, uniformly distributed.
        seed: of the samples.
    """
    generator = np.random.default_rng(seed)
    on_bound = ((values <= priors.lower) & (gradient > 0)) | ((values >= priors.upper) & (gradient < 0))
    centre = values - np.where(on_bound, gradient * np.diagonal(covariance), 0.0)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    scale = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    sampled = centre + generator.standard_normal((SAMPLES, len(values))) @ scale.T
    sampled = np.clip(sampled, priors.lower, priors.upper)
    first = 0
    for block in free.layout.shared:
        if (
            half_widths is not None
            and block.path == ("geometry", "offset")
            and block.count == len(half_widths)
        ):
            width = np.where(np.isfinite(half_widths), half_widths, 0.0)
            around = generator.uniform(-1, 1, (SAMPLES, block.count)) * width
            sampled[:, first : first + block.count] = values[first : first + block.count] + around
        first += block.count
    return _stacked([_linearised(free, values, row) for row in sampled])


def _linearised(free: FreeParameters, values: np.ndarray, sampled: np.ndarray) -> Mechanism:
    """The mechanism of sampled values, its learned potentials to first order in their weights."""
    layout, maps, template = free.layout, free.maps, free.template
    fitted = with_values(layout, maps, template, values)
    changed = with_values(layout, maps, template, sampled)
    difference = with_values(layout, maps, template, sampled - values)
    forces = tuple(
        LinearisedPotentialForce(of_fit, of_difference.network)
        if isinstance(of_fit, AbstractLearnedPotential)
        and isinstance(of_difference, AbstractLearnedPotential)
        else of_change
        for of_fit, of_change, of_difference in zip(
            fitted.forces, changed.forces, difference.forces, strict=True
        )
    )
    return eqx.tree_at(lambda m: m.forces, changed, forces, is_leaf=lambda x: isinstance(x, AbstractForce))


def _stacked(mechanisms: list[Mechanism]) -> Mechanism:
    # What nothing determines may be sampled from beyond what single precision holds.
    def stacked(*leaves):
        if not eqx.is_inexact_array(leaves[0]):
            return leaves[0]
        return np.clip(np.stack([np.asarray(leaf) for leaf in leaves]), -LARGEST, LARGEST).astype(np.float32)

    return jax.tree.map(stacked, *mechanisms)
