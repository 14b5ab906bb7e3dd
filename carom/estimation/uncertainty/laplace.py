"""Laplace's approximation: mechanisms sampled from the normal distribution around a fit."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from carom.estimation.parameters.free import FreeParameters, Priors, with_values
from carom.forces import AbstractLearnedPotential, LinearisedPotentialForce
from carom.models import Mechanism
from carom.types import Values

SAMPLES = 64
"""Number of posterior samples."""
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
    """Posterior samples, stacked along the first axis of all arrays.

    Learned potentials are linearised in their weights, as Laplace's approximation assumes; physical
    parameters are sampled directly and clipped to their bounds.

    Arguments:
        free: the free parameters.
        values: the estimates.
        covariance: of the estimates.
        gradient: of the cost; for an estimate at a bound it determines the centre of the truncated normal
            distribution, which lies beyond the bound.
        priors: with the bounds.
        half_widths: of the uniform distributions of surfaces, which then replace the covariance.
        seed: of the random numbers.
    """
    generator = np.random.default_rng(seed)
    on_bound = ((values <= priors.lower) & (gradient > 0)) | ((values >= priors.upper) & (gradient < 0))
    centre = values - np.where(on_bound, gradient * np.diagonal(covariance), 0.0)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    scale = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    sampled = centre + generator.standard_normal((SAMPLES, len(values))) @ scale.T
    sampled = np.clip(sampled, priors.lower, priors.upper)
    for block, rows in free.layout.shared_slices():
        if half_widths is None or block.path != ("geometry", "offset") or block.count != len(half_widths):
            continue
        width = np.where(np.isfinite(half_widths), half_widths, 0.0)
        sampled[:, rows] = values[rows] + generator.uniform(-1, 1, (SAMPLES, block.count)) * width
    # All at once: JAX takes about as long for one sample as for all of them.
    arrays = jax.vmap(lambda row: eqx.filter(_linearised(free, values, row), eqx.is_inexact_array))(sampled)
    rest = eqx.filter(_linearised(free, values, values), eqx.is_inexact_array, inverse=True)
    return eqx.combine(jax.tree.map(_single, arrays), rest)


def _linearised(
    free: FreeParameters, values: Float[Values, "shared"], sampled: Float[Values, "shared"]
) -> Mechanism:
    """The mechanism with sampled values, its learned potentials linearised in their weights."""
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
    return replace(changed, forces=forces)


def _single(samples: Float[Values, "samples *shape"]) -> Float[np.ndarray, "samples *shape"]:
    """In single precision, the range of which samples of undetermined parameters may exceed."""
    return np.clip(np.asarray(samples), -LARGEST, LARGEST).astype(np.float32)
