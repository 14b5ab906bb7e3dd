"""Comparisons against closed forms, and by simulation: one in twenty of equal things must differ."""

import math

import numpy as np
import pytest
from scipy import stats

from carom.evaluation.tables import Summary, paired, rank_probability, share_with_interval, summarize, welch


def test_welch_is_the_test_on_the_samples():
    generator = np.random.default_rng(0)
    ours, theirs = generator.normal(1.0, 2.0, 20), generator.normal(0.5, 1.0, 5)
    printed = summarize(theirs)
    assert printed.standard_error is not None
    found = welch(summarize(ours), printed.mean, printed.standard_error, 5)
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = expected.confidence_interval()
    assert found is not None
    np.testing.assert_allclose(found, (ours.mean() - theirs.mean(), *interval, expected.pvalue))


def test_equal_standard_errors_give_student():
    """With equal errors and counts Welch's degrees of freedom are 2 (n − 1)."""
    found = welch(Summary(5, 1.0, 0.5, 1.0, 0), 0.0, 0.5, 5)
    assert found is not None
    assert found.p == pytest.approx(2 * stats.t.sf(1 / math.hypot(0.5, 0.5), 8))


def test_false_alarms_are_one_in_twenty():
    generator = np.random.default_rng(1)
    alarms = {"welch": 0, "paired": 0, "rank": 0}
    trials = 2000
    for _ in range(trials):
        ours, theirs = generator.normal(size=20), generator.normal(size=5)
        printed = summarize(theirs)
        assert printed.standard_error is not None
        found, pairs = (
            welch(summarize(ours), printed.mean, printed.standard_error, 5),
            paired(ours[:10], ours[10:]),
        )
        assert found is not None
        assert pairs is not None
        alarms["welch"] += found.p < 0.05
        alarms["paired"] += pairs.p < 0.05
        alarms["rank"] += rank_probability(ours, theirs[0]) < 0.1
    # The standard deviation of these shares is half a per cent.
    assert alarms["welch"] / trials == pytest.approx(0.05, abs=0.015)
    assert alarms["paired"] / trials == pytest.approx(0.05, abs=0.015)
    assert alarms["rank"] / trials == pytest.approx(2 / 21, abs=0.02)


def test_the_rank_does_not_depend_on_the_shape_of_the_distribution():
    generator = np.random.default_rng(2)
    bimodal = np.where(generator.random((1000, 21)) < 0.4, 3.8, 0.1) + 0.01 * generator.random((1000, 21))
    outside = [rank_probability(row[1:], row[0]) < 0.1 for row in bimodal]
    assert np.mean(outside) == pytest.approx(2 / 21, abs=0.03)
    assert rank_probability(np.array([1.0, 2.0, 2.0, 3.0]), 2.0) == 1.0


def test_paired_is_the_test_on_the_differences():
    first, second = np.random.default_rng(3).normal(size=(2, 12))
    found, expected = paired(first, second), stats.ttest_rel(first, second)
    assert found is not None
    np.testing.assert_allclose(
        found, ((first - second).mean(), *expected.confidence_interval(), expected.pvalue)
    )


def test_what_diverged_has_no_mean():
    assert welch(summarize([1.0, math.inf]), 1.0, 0.5, 5) is None
    assert paired(np.array([1.0, 2.0]), np.array([1.0, math.inf])) is None


def test_shares_have_exact_intervals():
    # Clopper and Pearson at 0 of n: the upper end is 1 − (α/2)^(1/n).
    assert share_with_interval([False] * 20) == f"0 of 20 [0, {100 * (1 - 0.025 ** (1 / 20)):.0f} %]"
