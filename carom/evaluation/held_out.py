"""Forecasts of what was held out of a fit, and their errors."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from carom.data import HeldOut
from carom.estimation import forecast_after
from carom.models import AbstractModel

NORMAL_BOUND = 1.645
"""The 95th percentile of the standard normal distribution: 90 % lie within this many standard deviations."""


class HeldOutForecast(NamedTuple):
    """A forecast at the instants of a held-out stretch.

    Arguments:
        part: the stretch.
        position: the model's forecast.
        low, high: the 90 % credible band; None without posterior samples.
        noise: standard deviation of the measured positions; NaN where it is not known.
        members: number of posterior samples.
    """

    part: HeldOut
    position: Float[np.ndarray, "samples bodies dimension"]
    low: Float[np.ndarray, "samples bodies dimension"] | None
    high: Float[np.ndarray, "samples bodies dimension"] | None
    noise: float
    members: int

    @property
    def squares(self) -> Float[np.ndarray, "samples bodies dimension"]:
        """Squared errors of the positions, NaN where none was measured."""
        return (self.position - self.part.future.position) ** 2

    @property
    def covered(self) -> float | None:
        """The share of the measured positions within the 90 % credible band, widened by their noise."""
        if self.low is None or self.high is None or np.isnan(self.noise):
            return None
        measured = self.part.future.position
        blur = NORMAL_BOUND * self.noise
        below, above = (np.hypot(np.abs(self.position - edge), blur) for edge in (self.low, self.high))
        known = np.isfinite(measured)
        inside = (measured >= self.position - below) & (measured <= self.position + above)
        return float(inside[known].mean()) if known.any() else None


def forecast_held_out(
    model: AbstractModel,
    part: HeldOut,
    *,
    samples: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
) -> HeldOutForecast:
    """Forecast a held-out stretch from the end of its history.

    Arguments:
        model: the fitted model.
        part: the stretch and its history.
        samples, noise, seed: as in `carom.estimation.forecast_after`.
    """
    begin, future = float(part.history.time[-1]), part.future
    steps = max(1, int(np.ceil((future.time[-1] - begin) / model.step_size - 1e-6)))
    ahead = forecast_after(model, part.history, steps, samples=samples, noise=noise, seed=seed)
    grid = begin + np.arange(steps + 1) * model.step_size
    sigma = float("nan") if noise is None else noise[0]

    def at_samples(values: np.ndarray) -> np.ndarray:
        flat = values.reshape(len(values), -1)
        columns = [np.interp(future.time, grid, column) for column in flat.T]
        return np.stack(columns, axis=1).reshape(future.position.shape)

    low, high = (None if edge is None else at_samples(edge[0]) for edge in (ahead.low, ahead.high))
    return HeldOutForecast(part, at_samples(ahead.position), low, high, sigma, ahead.members)


def score_held_out(
    model: AbstractModel,
    parts: Sequence[HeldOut],
    *,
    noise: tuple[float, float] | None = None,
) -> float:
    """The error of the forecasts of all held-out stretches."""
    return held_out_error(tuple(forecast_held_out(model, part, noise=noise) for part in parts))


def held_out_error(forecasts: tuple[HeldOutForecast, ...]) -> float:
    """Root mean squared error of a coordinate over all held-out samples; infinite where one diverged."""
    squares = np.concatenate([one.squares.ravel() for one in forecasts])
    known = np.concatenate([np.isfinite(one.part.future.position).ravel() for one in forecasts])
    if not np.isfinite(squares[known]).all():
        return float("inf")
    return float(np.sqrt(squares[known].mean()))
