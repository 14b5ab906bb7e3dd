"""Least squares that is robust to outliers, over as many of the last samples as one motion explains.

A sample is no measurement of the motion with probability `OUTLIERS`, and may then be anywhere. Samples before
a change, such as an impact or a release, belong to another motion: the window of samples that belong to the
last one minimises

    cost = Σ ρ(r²) over the window + COST · values before it + CHANGE if there are any,

with residuals r over the noise and ρ(r²) = −2 ln p, which is r² for small ones and has an upper bound.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

OUTLIERS, OUTLIER_WIDTH = 0.01, 10.0
"""Prior probability of an outlier, and the range where it may be, in standard deviations of the noise."""
COST, CHANGE = 2.0, 20.0
"""What it costs that a value belongs to another motion, of which nothing is known, and that there is one.
A value of this motion costs 1 on average."""
LATEST = 6
"""Samples at the end of which at least half belong to the motion: outliers come one by one."""
MEDIAN_OF_CHI_SQUARE = 0.455
"""Of one value."""
CANDIDATES, ITERATIONS = 24, 6
"""Beginnings of a window that are tried at once, and iterations of reweighted least squares."""

Values = Float[np.ndarray, "problems samples channels coordinates"]


class Fitted(NamedTuple):
    """Of every problem: the first sample of its window, the correction of its state, and what it costs."""

    first: Int[np.ndarray, "problems"]
    correction: Float[np.ndarray, "problems parameters"]
    cost: Float[np.ndarray, "problems"]
    weight: Float[np.ndarray, "problems samples channels"]


def fit_last_motion(
    residual: Values,
    design: Float[np.ndarray, "problems samples channels coordinates parameters"],
    known: Bool[np.ndarray, "problems samples channels coordinates"],
    *,
    least: int,
) -> Fitted:
    """The window of the last motion of every problem, and its state.

    Arguments:
        residual: over the noise, for the current states.
        design: derivatives of the predictions with respect to the states, over the noise.
        known: which values were measured.
        least: samples of a window, as many as determine a state.
    """
    samples = np.asarray(known.any(axis=(2, 3)))
    # The last sample at which a window may begin.
    counted = np.cumsum(samples[:, ::-1], axis=1)[:, ::-1]
    latest = np.maximum(np.sum(counted >= least, axis=1) - 1, 0)
    low, high = np.zeros_like(latest), latest
    while True:
        share = np.linspace(0, 1, CANDIDATES)
        first = np.rint(low[:, None] + share * (high - low)[:, None]).astype(int)
        correction, cost, weight = fit_windows(residual, design, known, first)
        each, best = np.arange(len(first)), np.argmin(cost, axis=1)
        if np.all(high - low < CANDIDATES):
            return Fitted(first[each, best], correction[each, best], cost[each, best], weight[each, best])
        low, high = first[each, np.maximum(best - 1, 0)], first[each, np.minimum(best + 1, CANDIDATES - 1)]


def fit_windows(
    residual: Values, design: np.ndarray, known: np.ndarray, first: Int[np.ndarray, "problems windows"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corrections, costs and weights for windows from these samples to the end, by reweighting."""
    problems, samples, channels, coordinates, parameters = design.shape
    measured = known.sum(axis=3)
    residual, design = np.where(known, residual, 0.0), np.where(known[..., None], design, 0.0)
    flat = design.reshape(problems, samples * channels, coordinates, parameters)
    square = np.einsum("pnca,pncb->pnab", flat, flat).reshape(problems, samples * channels, -1)
    along = np.einsum("pnca,pnc->pna", flat, residual.reshape(problems, samples * channels, coordinates))
    inside = (np.arange(samples) >= first[:, :, None])[..., None] & (measured > 0)[:, None]
    weight = inside.astype(float)
    # A weak prior for what no sample determines, relative to what all samples do.
    ridge = 1e-12 * np.einsum("pnaa->pa", square.reshape(problems, -1, parameters, parameters)) + 1e-300
    spread = design.reshape(problems, -1, parameters).swapaxes(1, 2)

    correction, squares = np.zeros((*first.shape, parameters)), np.zeros(inside.shape)
    for iteration in range(ITERATIONS):
        by_row = weight.reshape(problems, -1, samples * channels)
        hessian = (by_row @ square).reshape(problems, -1, parameters, parameters)
        hessian = hessian + ridge[:, None, :, None] * np.eye(parameters)
        correction = np.linalg.solve(hessian, (by_row @ along)[..., None])[..., 0]
        left = residual.reshape(problems, 1, -1) - correction @ spread
        squares = np.sum(left.reshape(*inside.shape, coordinates) ** 2, axis=-1)
        # From a contaminated start the scale falls to that of the noise, as outliers lose their weights.
        scale = np.ones(first.shape)
        if iteration < ITERATIONS - 2:
            each = squares / np.maximum(measured, 1)[:, None]
            scale = median_scale(each.reshape(*first.shape, -1), inside.reshape(*first.shape, -1))
            scale = np.maximum(scale, 1.0)
        inlier = inlier_probability(squares / scale[..., None, None], measured[:, None])
        weight = np.where(inside, inlier, 0.0)
    loss = np.where(inside, robust_loss(squares, measured[:, None]), COST * measured[:, None])
    outside = (~inside & (measured > 0)[:, None]).any(axis=(2, 3))
    cost = loss.sum(axis=(2, 3)) + CHANGE * outside
    return correction, np.where(_explains_end(weight, inside), cost, np.inf), weight


def inlier_probability(squares: np.ndarray, count: np.ndarray) -> np.ndarray:
    """That a residual, of so many coordinates, is a measurement of the motion."""
    return 1 / (1 + np.exp(np.minimum(_log_odds(squares, count), 700.0)))


def robust_loss(squares: np.ndarray, count: np.ndarray) -> np.ndarray:
    """ρ, less its value for a residual of 0."""
    return (
        squares - 2 * np.logaddexp(0, _log_odds(squares, count)) + 2 * np.logaddexp(0, _log_odds(0.0, count))
    )


def _log_odds(squares, count):
    """Of an outlier."""
    return np.log(OUTLIERS / (1 - OUTLIERS)) - count * np.log(OUTLIER_WIDTH) + 0.5 * squares


def median_scale(
    squares: Float[np.ndarray, "*windows values"], inside: Bool[np.ndarray, "*windows values"]
) -> Float[np.ndarray, "*windows"]:
    """The median of the squares in a window over that of χ²; 0 without any."""
    ordered = np.sort(np.where(inside, squares, np.inf), axis=-1)
    middle = np.maximum(inside.sum(axis=-1) - 1, 0) // 2
    median = np.take_along_axis(ordered, middle[..., None], axis=-1)[..., 0]
    return np.asarray(np.where(np.isfinite(median), median, 0.0) / MEDIAN_OF_CHI_SQUARE)


def _explains_end(weight: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Whether at least half of the last samples belong to the motion."""
    kept, there = (np.asarray(part.any(axis=3))[..., ::-1] for part in (weight > 0.5, inside))
    latest = np.cumsum(there, axis=2) <= LATEST
    return 2 * np.sum(kept & there & latest, axis=2) >= np.sum(there & latest, axis=2)
