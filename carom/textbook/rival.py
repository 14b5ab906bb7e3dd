"""The textbook's model beside a fit: trained on the same runs, and scored on the same held-out data."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from carom.data import HeldOut, Recording, Run
from carom.errors import InputError
from carom.textbook.fit import fit_textbook
from carom.textbook.model import TextbookModel
from carom.textbook.velocity_jumps import find_jumps, without_outliers

LEAST = 5
"""Samples after the last impact of a history from which a forecast starts; with fewer, earlier ones too."""
WORSE = 1.05
"""Ratio of errors from which on a model is said to predict worse."""


class Rival(NamedTuple):
    """The textbook's model of a recording and the errors of its forecasts, one per held-out part."""

    model: TextbookModel
    errors: tuple[float, ...]
    error: float
    """Root mean squared error of a coordinate over all held-out samples."""

    def verdict(self, error: float) -> str | None:
        """A sentence if the textbook predicts better than a model with this error."""
        if not error > WORSE * self.error:
            return None
        return (
            f"The textbook's model predicts the held-out data better than this fit (error {self.error:.3g} "
            f"against {error:.3g}): prefer it, or learn other parameters. {self.model.describe()}."
        )


def fit_rival(training: Recording, held_out: Sequence[HeldOut]) -> Rival | None:
    """Fit and score the textbook's model; None where it does not apply."""
    try:
        model = fit_textbook(training)
        squares = [(_forecast(model, part) - part.future.position) ** 2 for part in held_out]
    # Where regression has too little to go on there is no rival.
    except (InputError, np.linalg.LinAlgError):
        return None
    errors = tuple(float(np.sqrt(np.nanmean(part))) for part in squares)
    return Rival(
        model, errors, float(np.sqrt(np.nanmean(np.concatenate([part.ravel() for part in squares]))))
    )


def _forecast(model: TextbookModel, part: HeldOut) -> np.ndarray:
    return model.forecast(_last_arc(part.history), part.future.time)


def _last_arc(history: Run) -> Run:
    """The samples after the last impact that leaves enough of them."""
    clean = without_outliers(history)
    for time in sorted((jump.time for jump in find_jumps(clean)), reverse=True):
        later = history.time > time
        if later.sum() >= LEAST:
            return clean.part(later)
    return clean
