"""Scores on motions small enough to score by hand."""

import numpy as np
import pytest

from carom.data import Run
from carom.evaluation import contact_score, paper_rmse, position_rmse


def test_paper_rmse_sums_over_dimensions_and_averages_over_time():
    """Two bodies, two samples: squared errors 1 + 4 and 9 + 16 of positions, 0 and 6 of velocities."""
    truth = Run(np.arange(2.0), np.zeros((2, 2, 1)), np.zeros((2, 2, 1)))
    found = Run(
        np.arange(2.0),
        np.array([[1.0, 2.0], [3.0, 4.0]])[..., None],
        np.array([[0.0, 0.0], [1.0, np.sqrt(5)]])[..., None],
    )
    assert paper_rmse(found, truth) == pytest.approx(np.sqrt((5 + 31) / 2))
    assert paper_rmse(found, truth, velocities=False) == pytest.approx(np.sqrt((5 + 25) / 2))
    assert position_rmse(found, truth) == pytest.approx(np.sqrt(30 / 4))


def _signal(*samples, length=30):
    touching = np.zeros(length, bool)
    touching[list(samples)] = True
    return touching


def test_contact_events_are_matched_in_time():
    """One on time, one late by 2, one missed, one spurious; a touching stretch is one event."""
    true = _signal(3, 10, 11, 12, 25)
    predicted = _signal(3, 12, 13, 18)
    score = contact_score(predicted, true, tolerance=4)
    assert (score.true_events, score.missed, score.spurious, score.mistimed) == (3, 1, 1, 1)


def test_nothing_to_match():
    score = contact_score(_signal(), _signal())
    assert score.true_events == score.missed == score.spurious == 0
