"""What is held out is whole, unseen, and follows its history."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carom.data import Recording, Run, hold_out
from carom.errors import InputError


def recording(lengths):
    """Runs in which every position is a number of its own."""
    runs, begin = [], 0
    for length in lengths:
        values = np.arange(begin, begin + length, dtype=float)
        runs.append(Run(0.1 * np.arange(length), values[:, None, None]))
        begin += length
    return Recording(tuple(runs), 0.1)


def values(runs):
    return np.concatenate([run.position.ravel() for run in runs])


@given(st.lists(st.integers(40, 90), min_size=1, max_size=12), st.floats(0.05, 0.6))
def test_every_sample_is_seen_or_kept_and_none_is_both(lengths, share):
    whole = recording(lengths)
    training, kept = hold_out(whole, share)
    seen, unseen = set(values(training.runs)), set(values([part.future for part in kept]))
    assert kept
    assert not seen & unseen
    known = set(values([part.history for part in kept]))
    assert seen | unseen | known == set(values(whole.runs))
    for part in kept:
        run = whole.runs[part.number]
        joined = values([part.history, part.future])
        np.testing.assert_array_equal(joined, run.position.ravel())
    if len(lengths) >= 5:
        # Whole runs: not even their beginning was fitted.
        assert not seen & known
        assert len(kept) == min(max(1, round(share * len(lengths))), len(lengths) - 1)
    else:
        assert known <= seen
        fraction = len(unseen) / whole.samples
        assert abs(fraction - share) < 1 / 40 + 1e-9


def test_nothing_held_out_is_the_recording_itself():
    whole = recording([30])
    assert hold_out(whole, 0.0) == (whole, ())


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none(share):
    with pytest.raises(InputError, match="at least 0 and less than 1"):
        hold_out(recording([30]), share)


def test_runs_too_short_to_be_cut():
    with pytest.raises(InputError, match="too short to hold out"):
        hold_out(recording([9]), 0.5)
