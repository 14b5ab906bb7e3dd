"""Laplace's approximation: models drawn from the normal distribution around a fit."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from carom.estimation.parameters.unknowns import Shared, Units, shared_bounds, with_unknowns, with_weights
from carom.estimation.solver.iteration import SharedShape
from carom.models import ImpactNetwork, LinearisedPotential

DRAWS = 64
"""Models that stand for what the data leave open."""


def draw_models(
    template: ImpactNetwork,
    fitted: Shared,
    covariance: Float[np.ndarray, "shared shared"],
    pull: Float[np.ndarray, "shared"],
    units: Units,
    unravel: SharedShape,
    *,
    half_widths: Float[np.ndarray, "contacts"] | None = None,
    seed: int = 0,
) -> ImpactNetwork:
    """Models whose arrays have an axis over `DRAWS` draws before their own.

    Weights change the potential to first order (`LinearisedPotential`); physical parameters are drawn as they
    are and kept within their bounds.

    Arguments:
        template: the model before its unknowns were put in.
        fitted: the estimates.
        covariance: of all of them as one vector.
        pull: the gradient of the cost; where an estimate leans on a bound it tells how far beyond the
            distribution has its centre.
        units: those of the weights.
        half_widths: instead of the covariance, how far either way surfaces may lie, all places being alike.
        seed: of the draws.
    """
    generator = np.random.default_rng(seed)
    centre = np.concatenate([np.ravel(part) for part in fitted])
    low, high = (np.concatenate([np.ravel(part) for part in bound]) for bound in shared_bounds(fitted))
    leaning = ((centre <= low) & (pull > 0)) | ((centre >= high) & (pull < 0))
    shifted = centre - np.where(leaning, pull * np.diagonal(covariance), 0.0)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    scale = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn = shifted + generator.standard_normal((DRAWS, len(centre))) @ scale.T
    drawn = np.clip(drawn, low, high)
    best = with_unknowns(template, fitted, units)
    return _stack(
        [_model(best, template, fitted, unravel(row), units, half_widths, generator) for row in drawn]
    )


def _model(
    best: ImpactNetwork,
    template: ImpactNetwork,
    fitted: Shared,
    drawn: Shared,
    units: Units,
    half_widths: np.ndarray | None,
    generator: np.random.Generator,
) -> ImpactNetwork:
    change = Shared(*(np.asarray(a) - np.asarray(b) for a, b in zip(drawn, fitted, strict=True)))
    if half_widths is not None and drawn.shift.size:
        width = np.where(np.isfinite(half_widths), half_widths, 0.0)
        drawn = drawn._replace(shift=fitted.shift + width * generator.uniform(-1, 1, width.shape))
    potential = LinearisedPotential(best.potential, with_weights(template, change, units))  # pyright: ignore
    return eqx.tree_at(lambda m: m.potential, with_unknowns(template, drawn, units), potential)


def _stack(models: list[ImpactNetwork]) -> ImpactNetwork:
    # What nothing determines may be drawn from beyond what single precision holds.
    largest = np.finfo(np.float32).max

    def stacked(*leaves) -> np.ndarray:
        return np.clip(np.stack([np.asarray(leaf) for leaf in leaves]), -largest, largest).astype(np.float32)

    return jax.tree.map(stacked, *models)
