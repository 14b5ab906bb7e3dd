"""What is said about many seeds: the one place where the numbers of report and tables are computed.

A forecast that left the numbers (NaN or infinity) counts as an infinite error, never as a missing one: a mean
over the seeds that happened to survive would flatter the model.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from carom.reproduction.paper.experiments import PaperNumber

OURS = "CD-Lagrange"
ABLATION = "ablation-"
"""How the names of experiments begin that compare variants and are not in the paper."""


@dataclass(frozen=True)
class Spread:
    """Numbers of many seeds in short.

    Arguments:
        count: how many.
        mean: over all; infinite where one is.
        standard_error: s/√n with the n − 1 variance; None where it does not exist.
        median: the middle, or the mean of the two in the middle.
        diverged: how many are infinite.
    """

    count: int
    mean: float
    standard_error: float | None
    median: float
    diverged: int


def spread(values: Iterable[float]) -> Spread:
    """Summarise at least one number.

    Example:
        >>> spread([1.0, 2.0, 6.0])
        Spread(count=3, mean=3.0, standard_error=1.5275252316519468, median=2.0, diverged=0)
    """
    numbers = _finite_or_infinite(values)
    diverged = int(np.isinf(numbers).sum())
    error = None
    if len(numbers) > 1 and diverged == 0:
        error = float(np.std(numbers, ddof=1) / math.sqrt(len(numbers)))
    return Spread(len(numbers), float(np.mean(numbers)), error, float(np.median(numbers)), diverged)


def median_index(values: Iterable[float]) -> int:
    """The place of the median value; of an even number, of the lower one in the middle.

    Example:
        >>> median_index([5.0, 1.0, 3.0, 9.0])
        2
    """
    numbers = _finite_or_infinite(values)
    return int(np.argsort(numbers, kind="stable")[(len(numbers) - 1) // 2])


def _finite_or_infinite(values: Iterable[float]) -> np.ndarray:
    numbers = np.array(list(values), float)
    return np.where(np.isfinite(numbers), numbers, np.inf)


@dataclass(frozen=True)
class Share:
    """`count` of `total`."""

    count: int
    total: int


@dataclass(frozen=True)
class Impacts:
    """Impacts of all seeds together."""

    true: int
    mistimed: int
    missed: int
    spurious: int
    highest_probability: float


@dataclass(frozen=True)
class Score:
    """What one unit says, from its summary."""

    experiment: str
    title: str
    place: str
    model: str
    protocol: str
    paper: PaperNumber | None
    touch: bool
    """False where a model with contacts was trained without the touch signal."""
    seeds: tuple[int, ...]
    errors: tuple[float, ...]
    held_out: tuple[float, ...]
    """Of every seed, the median error over the start states that were held out."""
    impacts: Impacts | None
    damping: tuple[float, ...]
    slope_errors: tuple[float, ...]
    """Root mean squared error of the learned ∂U/∂q across the range of the motion."""

    @property
    def is_ablation(self) -> bool:
        return self.experiment.startswith(ABLATION)

    @property
    def spread(self) -> Spread:
        return spread(self.errors)

    @property
    def bound(self) -> float | None:
        """What an error is held against: a figure's number, a table's mean plus its standard error."""
        return None if self.paper is None else self.paper.value + (self.paper.standard_error or 0.0)

    @property
    def in_table(self) -> bool:
        return self.paper is not None and self.paper.standard_error is not None

    @property
    def at_or_below(self) -> Share | None:
        """Seeds at or below the printed number, where one is printed."""
        if self.paper is None:
            return None
        return Share(sum(error <= self.paper.value for error in self.errors), len(self.errors))

    @property
    def mean_within_bound(self) -> bool:
        """Whether the mean of all seeds is at or below the printed mean plus its standard error."""
        return self.bound is not None and self.spread.mean <= self.bound


def score(summary: Mapping[str, Any]) -> Score:
    """The score of a unit, from its own summary or from `results/paper.json`."""
    rows: Sequence[Mapping[str, Any]] = summary["rows"]
    paper = summary["paper"]
    return Score(
        experiment=summary["experiment"],
        title=summary["title"],
        place=summary["place"],
        model=summary["model"],
        protocol=summary["protocol"],
        paper=None if paper is None else PaperNumber(*paper),
        touch=summary["settings"].get("touch", "observed") != "none",
        seeds=tuple(row["seed"] for row in rows),
        errors=tuple(_finite_or_infinite(row["paper_rmse"] for row in rows).tolist()),
        held_out=tuple(held_out_median(row) for row in rows),
        impacts=_impacts(rows),
        damping=tuple(row["damping"] for row in rows if "damping" in row),
        slope_errors=tuple(row["slope_rmse"] for row in rows if "slope_rmse" in row),
    )


def held_out_median(row: Mapping[str, Any]) -> float:
    """The median over held-out starts, stored or computed from the errors of all of them."""
    if "held_out_median" in row:
        return float(row["held_out_median"])
    return spread(row["held_out_paper_rmse"]).median


def _impacts(rows: Sequence[Mapping[str, Any]]) -> Impacts | None:
    if not all("true_impacts" in row for row in rows):
        return None
    names = ("true_impacts", "mistimed", "missed", "spurious")
    counts = [sum(row[name] for row in rows) for name in names]
    return Impacts(*counts, highest_probability=max(row["highest_contact_probability"] for row in rows))


@dataclass(frozen=True)
class Order:
    """CD-Lagrange against one baseline, seed by seed.

    Arguments:
        ours: CD-Lagrange.
        baseline: the other model of the same experiment and protocol.
        below: seeds in which CD-Lagrange has the smaller error.
        printed_below: whether the paper's numbers are in that order; None where one is missing.
    """

    ours: Score
    baseline: Score
    below: Share
    printed_below: bool | None

    @property
    def as_printed(self) -> bool:
        """Whether more than half of the seeds are in the paper's order."""
        like_paper = self.below.count if self.printed_below else self.below.total - self.below.count
        return self.printed_below is not None and 2 * like_paper > self.below.total


def orders(scores: Sequence[Score]) -> list[Order]:
    """CD-Lagrange against every baseline, over the seeds that both have."""
    found = []
    for ours, other in _pairs(scores):
        if other.touch:
            printed = None
            if ours.paper is not None and other.paper is not None:
                printed = ours.paper.value < other.paper.value
            found.append(Order(ours, other, share_below(ours, other), printed))
    return found


def without_touch(scores: Sequence[Score]) -> list[tuple[Score, Score, Share]]:
    """CD-Lagrange with touch, without it, and the seeds in which the error with touch is the smaller one."""
    return [(ours, other, share_below(ours, other)) for ours, other in _pairs(scores) if not other.touch]


def share_below(first: Score, second: Score) -> Share:
    """Seeds that both have and in which the error of `first` is below that of `second`."""
    errors = dict(zip(second.seeds, second.errors, strict=True))
    pairs = [(a, errors[seed]) for seed, a in zip(first.seeds, first.errors, strict=True) if seed in errors]
    return Share(sum(a < b for a, b in pairs), len(pairs))


def _pairs(scores: Sequence[Score]) -> list[tuple[Score, Score]]:
    return [
        (ours, other)
        for ours in scores
        if ours.model == OURS
        for other in scores
        if other.model != OURS and (other.experiment, other.protocol) == (ours.experiment, ours.protocol)
    ]
