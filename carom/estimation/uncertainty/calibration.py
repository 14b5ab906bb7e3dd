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
    """The fit with what bands of its forecasts are widened by.

    Half-widths h are multiplied by a factor, or a length b is added in squares, √(h² + b²): errors may grow
    with the band, or not, as at rest. Of the two that hold `COVERAGE` of what was measured the sharper is
    kept.
    """
    if fit.failed or not recording.scene or not recording.scene.contacts:
        return fit
    histories, futures = _parts(fit, recording)
    if not histories:
        return fit
    times = [future.time for future in futures]
    ahead = forecast_runs(fit.model, histories, times, samples=fit.samples, noise=fit.noise)
    halves, misses, weights = [], [], []
    for future, one in zip(futures, ahead, strict=True):
        if one.low is None or one.high is None:
            continue
        error = future.position - one.position
        known = np.isfinite(error)
        half = np.abs(np.where(error < 0, one.low[0], one.high[0]) - one.position)[known]
        halves.append(np.maximum(half, 1e-300))
        # Half-widths add in squares, as those of independent normal errors do.
        misses.append(np.sqrt(np.maximum(error[known] ** 2 - (NORMAL_BOUND * fit.noise[0]) ** 2, 0.0)))
        weights.append(np.full(len(half), 1 / max(len(half), 1)))
    if not halves:
        return fit
    half, miss, weight = (np.concatenate(part) for part in (halves, misses, weights))
    factor = float(np.clip(_quantile(miss / half, weight), 1.0, WIDEST))
    length = _quantile(np.sqrt(np.maximum(miss**2 - half**2, 0.0)), weight)
    wide, added = (float(weight @ widths) for widths in (factor * half, np.hypot(half, length)))
    chosen = (factor, 0.0) if wide <= added else (1.0, length)
    return replace(fit, model=replace(fit.model, widening=np.array(chosen, np.float32)))


def _parts(fit: "Fit", recording: Recording) -> tuple[list[Run], list[Run]]:
    """Samples of runs before an impact, and those from there on to the end of the motion."""
    histories, futures = [], []
    for run, found in zip(recording.runs, fit.impacts, strict=True):
        for number, (low, high) in enumerate(found.pieces, start=1):
            steps = np.flatnonzero(found.chosen[low : high - 1].any(axis=1)) + low
            if len(steps):
                for step in {int(steps[0]), int(steps[len(steps) // 2])}:
                    # The impact may be a step earlier than it was found.
                    begin = step - 1
                    # After the last piece bodies are at rest.
                    end = len(run) if number == len(found.pieces) else high
                    if begin - low + 1 >= FEWEST and end - begin - 1 >= FEWEST:
                        histories.append(run.part(slice(low, begin + 1)))
                        futures.append(run.part(slice(begin + 1, end)))
    chosen = np.unique(np.linspace(0, len(histories) - 1, min(FORECASTS, len(histories))).astype(int))
    thinned = [futures[i].part(slice(None, None, -(-len(futures[i]) // SAMPLES))) for i in chosen]
    return [histories[i] for i in chosen], thinned


def _quantile(values: Float[np.ndarray, "values"], weights: Float[np.ndarray, "values"]) -> float:
    """The value that a share `COVERAGE` of the weight does not exceed."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, COVERAGE)])
