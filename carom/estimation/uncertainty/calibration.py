"""Bands of forecasts that hold: widened until they contain what was measured.

The posterior knows the noise and the scatter of impacts, but not how wrong the model is: a lens bends
lengths, a table is warped, contacts last. How far that leads forecasts astray is seen in forecasts of the
recording itself, from the samples before the first impact of each of its motions, and before a later one.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from carom.data import Recording, Run
from carom.estimation.forecast import COVERAGE, NORMAL_BOUND, forecast_runs

if TYPE_CHECKING:
    from carom.estimation.result import Fit

FEWEST = 6
"""Least number of samples before an impact, and of those after it, for a forecast to be judged."""
FORECASTS, SAMPLES = 24, 200
"""Forecasts that are judged at most, and samples of each."""
WIDEST = 30.0
"""Greatest factor."""


def calibrated(fit: "Fit", recording: Recording) -> "Fit":
    """The fit with the factor by which bands of its forecasts are widened."""
    if fit.failed or not recording.scene or not recording.scene.contacts:
        return fit
    histories, futures = _parts(fit, recording)
    if not histories:
        return fit
    times = [future.time for future in futures]
    ahead = forecast_runs(fit.model, histories, times, samples=fit.samples, noise=fit.noise)
    factors, weights = [], []
    for future, one in zip(futures, ahead, strict=True):
        if one.low is None or one.high is None:
            continue
        error = future.position - one.position
        edge = np.where(error < 0, one.low[0], one.high[0])
        beyond = np.sqrt(np.maximum(error**2 - (NORMAL_BOUND * fit.noise[0]) ** 2, 0.0))
        needed = beyond / np.maximum(np.abs(edge - one.position), 1e-300)
        needed = needed[np.isfinite(error)]
        factors.append(needed)
        weights.append(np.full(len(needed), 1 / max(len(needed), 1)))
    if not factors:
        return fit
    factor = _quantile(np.concatenate(factors), np.concatenate(weights))
    return replace(fit, model=replace(fit.model, widening=np.array(np.clip(factor, 1.0, WIDEST), np.float32)))


def _parts(fit: "Fit", recording: Recording) -> tuple[list[Run], list[Run]]:
    """Samples of runs before an impact, and those from there on to the end of the motion."""
    histories, futures = [], []
    for run, found in zip(recording.runs, fit.impacts, strict=True):
        for low, high in found.pieces:
            steps = np.flatnonzero(found.chosen[low : high - 1].any(axis=1)) + low
            if len(steps):
                for step in {int(steps[0]), int(steps[len(steps) // 2])}:
                    # The impact may be a step earlier than it was found.
                    begin = step - 1
                    if begin - low + 1 >= FEWEST and high - begin - 1 >= FEWEST:
                        histories.append(run.part(slice(low, begin + 1)))
                        futures.append(run.part(slice(begin + 1, high)))
    chosen = np.unique(np.linspace(0, len(histories) - 1, min(FORECASTS, len(histories))).astype(int))
    thinned = [futures[i].part(slice(None, None, -(-len(futures[i]) // SAMPLES))) for i in chosen]
    return [histories[i] for i in chosen], thinned


def _quantile(values: Float[np.ndarray, "values"], weights: Float[np.ndarray, "values"]) -> float:
    """The value that a share `COVERAGE` of the weight does not exceed."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, COVERAGE)])
