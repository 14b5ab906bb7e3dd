"""Two-sided comparisons of seeds with published numbers, and of models on the same seeds."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from carom.digits import signed
from carom.evaluation.tables import Summary, share_text

LEVEL = 0.05
"""Of all tests: one in twenty comparisons of equal things is called a difference."""

Values = Float[np.ndarray, "seeds"]


class Difference(NamedTuple):
    """An estimated difference, its 95 % interval, and the probability of a larger one by chance."""

    value: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        return f"{signed(self.value)} [{signed(self.low)}, {signed(self.high)}]"


def welch(ours: Summary, mean: float, standard_error: float, count: int) -> Difference | None:
    """Our mean less a published one, by Welch's t from means, standard errors and numbers of runs.

    The degrees of freedom are Satterthwaite's: (a + b)²/(a²/(m − 1) + b²/(n − 1)) with the squared standard
    errors a and b. A mean over seeds of which one diverged does not exist: then the result is None.

    Example:
        >>> ours = Summary(count=20, mean=1.5, standard_error=0.45, median=0.1, diverged=0)
        >>> print(welch(ours, 1.9, 1.0, 5))
        −0.400 [−3.11, +2.31]
    """
    if ours.standard_error is None:
        return None
    test = stats.ttest_ind_from_stats(
        ours.mean,
        ours.standard_error * math.sqrt(ours.count),
        ours.count,
        mean,
        standard_error * math.sqrt(count),
        count,
        equal_var=False,
    )
    a, b = ours.standard_error**2, standard_error**2
    freedom = (a + b) ** 2 / (a**2 / (ours.count - 1) + b**2 / (count - 1))
    reach = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * math.sqrt(a + b)
    difference = ours.mean - mean
    return Difference(difference, difference - reach, difference + reach, float(test.pvalue))


def rank_probability(values: Values, published: float) -> float:
    """Two-sided probability of a single published run that is as far out among our seeds, or farther.

    If the published run came from the distribution of ours, every rank among all n + 1 would be equally
    likely, whatever that distribution is. The least possible value is 2/(n + 1): 0.095 for 20 seeds.

    Example:
        >>> rank_probability(np.arange(20.0), 100.0)
        0.09523809523809523
    """
    below, ties = np.sum(values < published), np.sum(values == published)
    # Half of the ties on either side.
    rank = below + ties / 2 + 1
    return float(min(1.0, 2 * min(rank, len(values) + 2 - rank) / (len(values) + 1)))


def paired(first: Values, second: Values) -> Difference | None:
    """The mean of first less second on the same seeds, by Student's t; None where one of them diverged."""
    differences = first - second
    if len(differences) < 2 or not np.isfinite(differences).all():
        return None
    mean, error, freedom = float(differences.mean()), float(stats.sem(differences)), len(differences) - 1
    reach = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error
    # Equal differences have no error; they differ from 0 with certainty or not at all.
    p = float(2 * stats.t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return Difference(mean, mean - reach, mean + reach, p)


def share_with_interval(holds: Iterable[bool]) -> str:
    """A share of the seeds and its exact 95 % interval (Clopper and Pearson).

    Example:
        >>> share_with_interval([True] * 19 + [False])
        '19 of 20 [75, 100 %]'
    """
    answers = [bool(answer) for answer in holds]
    interval = stats.binomtest(sum(answers), len(answers)).proportion_ci(1 - LEVEL)
    return f"{share_text(answers)} [{100 * interval.low:.0f}, {100 * interval.high:.0f} %]"
