"""Motion around a velocity jump: least squares of two parabolas that share the position at the jump.

For a jump at time t* the position is, with one acceleration on both sides,

    x(t) = x* + v∓ (t − t*) + ½ a (t − t*)²        v− before t*, v+ after it

The likelihood is profiled over t* on a grid of instants around the detected step.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from carom.data import Run
from carom.estimation.detection.switching_filter import Motion

REACH = 2
"""Greatest number of steps by which a detected jump may be moved."""
INSTANTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Instants within a step, as fractions of it."""
MIN_WIDTH, MAX_WIDTH = 12, 64
"""Samples either side of a jump, more where the noise is large."""
OUTLIER = 6.0
"""Residuals beyond this many standard deviations are left out."""


@dataclass(frozen=True, eq=False)
class LocalMotion:
    """Motion of one body around a jump, for every instant of the grid."""

    instants: Float[np.ndarray, "instants"]
    """In steps from the beginning of the run."""
    log_likelihood: Float[np.ndarray, "instants"]
    smooth: float
    """The log-likelihood without a jump."""
    released: float
    """That of a change of acceleration at the best instant, as where a hand lets go, with one velocity."""
    position: Float[np.ndarray, "instants dimension"]
    before: Float[np.ndarray, "instants dimension"]
    after: Float[np.ndarray, "instants dimension"]
    covariance: Float[np.ndarray, "instants 3 3"]
    """Of position, velocity before and velocity after, the same for every coordinate."""

    @property
    def change_variance(self) -> Float[np.ndarray, "instants"]:
        """Variance of a coordinate of the velocity change."""
        c = self.covariance
        return c[:, 1, 1] + c[:, 2, 2] - 2 * c[:, 1, 2]


def grid_around(step: int, steps: int, *, mask: int = 0) -> Float[np.ndarray, "instants"]:
    """Instants in the steps around a detected one."""
    reach = REACH + mask
    near = np.arange(max(step - reach, 0), min(step + reach, steps - 1) + 1)
    return (near[:, None] + np.array(INSTANTS)).ravel()


def fit_around(
    run: Run,
    body: int,
    instants: Float[np.ndarray, "instants"],
    low: int,
    high: int,
    motion: Motion,
    *,
    mask: int = 0,
) -> LocalMotion:
    """Fit the motion of a body around a jump at each of the instants.

    Arguments:
        low, high: the samples between the previous jump and the next one, `high` excluded.
        mask: samples either side of the jump to ignore, for contacts of finite duration.
    """
    step = float(np.median(np.diff(run.time)))
    # So many samples that the error of a velocity is a tenth of the speed.
    width = int(np.clip((10 * motion.noise[0] / (motion.speed * step)) ** (2 / 3), MIN_WIDTH, MAX_WIDTH))
    width += 3 * mask  # the motion is extrapolated into the contact
    middle = round(float(instants.mean()))
    low, high = max(low, middle - width), min(high, middle + width + 1)
    index = np.arange(low, high)
    x = run.position[low:high, body]
    star = np.interp(instants, np.arange(len(run)), run.time)
    t = run.time[low:high][None, :] - star[:, None]
    # The grid determines which samples lie before the jump. The mask hides those during the contact: the
    # same ones for all instants, whose likelihoods are compared.
    later = index[None, :] > instants[:, None]
    rows = np.stack([np.ones_like(t), np.where(later, 0, t), np.where(later, t, 0), 0.5 * t**2], axis=-1)
    values, deviations, hidden = x, np.full(len(index), motion.noise[0]), np.abs(index - middle) < mask
    if run.velocity is not None:
        rates = np.stack([np.zeros_like(t), np.where(later, 0, 1.0), np.where(later, 1.0, 0), t], axis=-1)
        rows, later = np.concatenate([rows, rates], axis=1), np.concatenate([later, later], axis=1)
        values = np.concatenate([x, run.velocity[low:high, body]])
        deviations, hidden = np.repeat(motion.noise, len(index)), np.concatenate([hidden, hidden])
    use = np.isfinite(values).all(axis=1) & ~hidden
    rows, later, values, deviations = rows[:, use], later[:, use], values[use], deviations[use]
    weight = 1 / deviations**2
    scale = 10 * motion.speed
    prior = np.array([0.0, scale**-2, scale**-2, float(np.mean(motion.deviation)) ** -2])
    prior[0] = (100 * motion.length) ** -2
    solution, inverse, cost = _solve(rows, values, weight, prior, motion)
    # Outliers of the best instant are left out for all of them.
    best = int(np.argmin(cost))
    residual = np.abs(rows[best] @ solution[best] - values).max(axis=1) / deviations
    outlier = residual > OUTLIER * max(1.0, 1.5 * float(np.median(residual)) if len(residual) else 1.0)
    if outlier.any() and (~outlier).sum() >= 4:
        weight = np.where(outlier, 0.0, weight)
        solution, inverse, cost = _solve(rows, values, weight, prior, motion)
        best = int(np.argmin(cost))
    smooth_rows = np.stack([rows[..., 0], rows[..., 1] + rows[..., 2], rows[..., 3]], axis=-1)
    _, _, smooth = _solve(smooth_rows, values, weight, prior[[0, 1, 3]], motion)
    early = np.where(later, 0.0, rows[..., 3])
    of_release = np.concatenate([smooth_rows[..., :2], early[..., None], rows[..., 3:]], axis=-1)
    change = (motion.speed**2 / motion.length) ** -2
    _, _, released = _solve(of_release, values, weight, np.append(prior[[0, 1]], [change, prior[3]]), motion)
    return LocalMotion(
        instants,
        -0.5 * cost,
        float(-0.5 * smooth[best]),
        float(-0.5 * released.min()),
        solution[:, 0],
        solution[:, 1],
        solution[:, 2],
        inverse[:, :3, :3],
    )


def _solve(rows, values, weight, prior, motion: Motion):
    """Weighted least squares with a prior of zero mean, except for the acceleration, for every instant."""
    expected = np.zeros((rows.shape[-1], values.shape[1]))
    expected[-1] = motion.acceleration
    weighted = rows * weight[:, None]
    matrix = weighted.swapaxes(1, 2) @ rows + np.diag(prior)
    # Units differ between position, velocity and acceleration: balance before inverting.
    balance = 1 / np.sqrt(np.einsum("gpp->gp", matrix))
    inverse = np.linalg.inv(matrix * balance[:, :, None] * balance[:, None, :])
    inverse = inverse * balance[:, :, None] * balance[:, None, :]
    solution = inverse @ (weighted.swapaxes(1, 2) @ values + prior[:, None] * expected)
    residual = rows @ solution - values
    cost = np.sum(weight[:, None] * residual**2, axis=(1, 2))
    cost = cost + np.sum(prior[:, None] * (solution - expected) ** 2, axis=(1, 2))
    return solution, inverse, cost
