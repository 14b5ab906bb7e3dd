"""Residual diagnostics: residuals should be white and as large as the noise."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

WHITE = 5.0
"""Autocorrelation in standard errors above which residuals are not considered white."""


class Diagnostics(NamedTuple):
    """Warnings, each with a hint, and the statistics of the residuals behind them."""

    messages: tuple[str, ...]
    autocorrelation: float
    """Of neighbouring residuals, pooled over all channels, in standard errors."""
    near_impacts: float
    """Ratio of the mean squares of residuals close to impacts and of all others."""
    excess: float
    """Fitted noise over the noise estimated from the data alone."""
    unexplained: float
    """Fitted noise over half the range of the data, the largest over positions and velocities."""
    correlation_time: float = 1.0
    """Number of residuals that carry as much information as one of independent noise, at least 1."""


def diagnose(
    residuals: list[Float[np.ndarray, "_ channels"]],
    near: list[Bool[np.ndarray, "_"]],
    noise: Float[np.ndarray, "2"],
    roughness: Float[np.ndarray, "2"],
    known: Bool[np.ndarray, "2"],
    reach: Float[np.ndarray, "2"],
    *,
    by_gap: bool = True,
    lost: str | None = None,
) -> Diagnostics:
    """Test the residuals of all runs, in units of the fitted noise.

    Arguments:
        residuals: of every run; NaN where nothing was measured.
        near: samples close to an impact.
        noise: fitted standard deviations of positions and velocities.
        roughness: noise estimated from windows of a few samples, independently of the model.
        known: which of the two channels were measured.
        reach: half the range of positions and of velocities.
        by_gap: whether the model reproduces the impacts without their being prescribed.
        lost: a sentence about samples that were not used.
    """
    correlations = [_autocorrelation(r[:, c]) for r in residuals for c in range(r.shape[1])]
    sums = np.array([(s, n) for s, n in correlations if n > 3])
    z = float(sums[:, 0].sum() / np.sqrt(max(sums[:, 1].sum(), 1))) if len(sums) else 0.0
    close = np.concatenate([r[n].ravel() for r, n in zip(residuals, near, strict=True)])
    far = np.concatenate([r[~n].ravel() for r, n in zip(residuals, near, strict=True)])
    ratio = 1.0
    if np.isfinite(close).sum() > 5 and np.isfinite(far).sum() > 5:
        ratio = float(np.nanmean(close**2) / max(np.nanmean(far**2), 1e-12))
    excess = float(np.max((noise / roughness)[known])) if known.any() else 1.0
    unexplained = float(np.max((noise / reach)[known])) if known.any() else 0.0
    messages = [] if lost is None else [lost]
    if excess > 1.5:
        messages.append(
            f"The residuals are {excess:.1f} times as large as the noise of the data: the model does not "
            "explain all of the motion."
        )
    if ratio > 2.0:
        messages.append(
            "The residuals are larger around impacts: contacts may last for several samples, but are "
            "instantaneous in the model; set `mask`."
        )
    if z > WHITE:
        messages.append(
            "Neighbouring residuals are correlated: consider drag (learn damping or drag), spin, a wrong "
            "time step, or forces between the bodies (potential joint)."
        )
    if not by_gap:
        messages.append(
            "The model explains the recording only with its impacts prescribed: forecasts may miss one or "
            "add one; look at the contacts in the report."
        )
    return Diagnostics(tuple(messages), z, ratio, excess, unexplained, _correlation_time(residuals))


def _correlation_time(residuals: list[Float[np.ndarray, "_ channels"]]) -> float:
    """1 + 2 Σ ρ over the lags whose autocorrelation ρ, pooled over all channels, is significant."""
    longest = max((len(part) for part in residuals), default=0)
    time = 1.0
    for lag in range(1, longest // 4 + 1):
        total, count = 0.0, 0
        for part in residuals:
            products = part[lag:] * part[:-lag]
            total, count = total + float(np.nansum(products)), count + int(np.isfinite(products).sum())
        # Residuals are in units of the noise. In white noise 3 standard errors are rarely exceeded by chance.
        if count < 10 or total < 3 * np.sqrt(count):
            break
        time += 2 * total / count
    return time


def _autocorrelation(series: Float[np.ndarray, "samples"]) -> tuple[float, int]:
    """The sum of products of neighbours in units of the variance, and their number."""
    variance = np.nanmean(series**2) if np.isfinite(series).any() else 0.0
    if variance == 0:
        return 0.0, 0
    products = series[1:] * series[:-1] / variance
    valid = np.isfinite(products)
    return float(products[valid].sum()), int(valid.sum())
