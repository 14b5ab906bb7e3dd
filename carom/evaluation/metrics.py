"""Errors of forecasts, in positions and velocities, and impacts; all on the sample grid."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from carom.data import Run
from carom.models import Forecast
from carom.types import State, Trajectory

Motion = Trajectory | Run | Forecast | State
"""What has positions and velocities of shape (samples, bodies, dimension)."""


def paper_rmse(forecast: Motion, truth: Motion, *, velocities: bool = True) -> float:
    """The score of the paper's tables: sqrt( (1/N) Σ_n Σ_d (x̂ − x)² ).

    Summed over the dimensions of the state, averaged over time, contact signals left out. `velocities=False`
    is for models of positions alone.
    """
    squares = _errors(forecast, truth)[0] ** 2
    if velocities:
        squares = squares + _errors(forecast, truth)[1] ** 2
    return float(np.sqrt(np.mean(np.sum(squares, axis=(1, 2)))))


def position_rmse(forecast: Motion, truth: Motion) -> float:
    """Root mean squared error of one coordinate of a position."""
    return float(np.sqrt(np.mean(_errors(forecast, truth)[0] ** 2)))


class ContactScore(NamedTuple):
    """How well the contacts of a forecast match the true ones. Consecutive touching samples are one event."""

    true_events: int
    missed: int
    """True events without a predicted one within the tolerance."""
    spurious: int
    """Predicted events without a true one."""
    mistimed: int
    """Matched events that are off by at least one sample."""

    @property
    def faults(self) -> int:
        """Events that are mistimed, missed or spurious."""
        return self.mistimed + self.missed + self.spurious

    @property
    def counts(self) -> dict[str, int]:
        """Events by the names that files of results have for them."""
        names = {"impacts": self.true_events, "mistimed": self.mistimed}
        return names | {"missed": self.missed, "spurious": self.spurious}


def contact_score(
    predicted: Bool[np.ndarray, "samples"], true: Bool[np.ndarray, "samples"], *, tolerance: int = 10
) -> ContactScore:
    """Match the events of one contact in time order, each to the nearest within `tolerance` samples."""
    true_starts, predicted_starts = _event_starts(true), _event_starts(predicted)
    free = list(predicted_starts)
    shifts = []
    for start in true_starts:
        # Each predicted event serves one true event, or a burst of them would match many.
        nearest = min(free, key=lambda other: abs(other - start), default=None)
        if nearest is not None and abs(nearest - start) <= tolerance:
            free.remove(nearest)
            shifts.append(nearest - start)
    return ContactScore(
        true_events=len(true_starts),
        missed=len(true_starts) - len(shifts),
        spurious=len(free),
        mistimed=int(np.count_nonzero(shifts)),
    )


def _errors(forecast: Motion, truth: Motion) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.asarray(forecast.position, float) - np.asarray(truth.position, float),
        np.asarray(forecast.velocity, float) - np.asarray(truth.velocity, float),
    )


def _event_starts(touching: Bool[np.ndarray, "samples"]) -> np.ndarray:
    before = np.concatenate([[False], touching[:-1]])
    return np.flatnonzero(touching & ~before)
