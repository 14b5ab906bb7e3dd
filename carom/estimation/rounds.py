"""Rounds of a stage: a batch of estimates improved until their likelihoods converge.

A batch holds every start of every recording, or one estimate of each, along the first axis of its arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from carom.estimation.problem import Problem
from carom.estimation.settings import Settings
from carom.estimation.solver.iteration import Estimate, Outcome, improver
from carom.estimation.solver.segments import Partition, Segments, impacts_of, pad_rows
from carom.storage.checkpoints import Progress

INITIAL_HINGE, FINAL_HINGE = 0.3, 3e-3
"""Standard deviation of prescribed impacts beyond their time interval, as a fraction of a step."""
LONG = 10_000
"""Samples above which the convergence tolerance of the log-likelihood grows with their number."""


@dataclass(frozen=True)
class Rounds:
    """Runs the rounds of one fit, with checkpoints, and records their log-likelihoods."""

    settings: Settings
    progress: Progress
    history: list[np.ndarray]

    def prepare(
        self, estimate: Estimate, problems: Sequence[Problem], partition: Partition, *, by_gap: bool = False
    ) -> None:
        """Start compiling the program of a stage in the background."""
        most = most_prescribed(problems)
        program = improver(problems[0].free.layout, most, by_gap and most is not None)
        program.prepare(INITIAL_HINGE, *round_inputs(estimate, problems, partition))

    def run(
        self,
        estimate: Estimate,
        problems: Sequence[Problem],
        partition: Partition,
        *,
        by_gap: bool = False,
        tighten: bool = False,
        starts: int = 1,
    ) -> Outcome:
        """Repeat rounds until the likelihood of the best start of every problem converges.

        Arguments:
            by_gap: whether contacts follow from the gap instead of being prescribed.
            tighten: whether to shrink the hinge of prescribed impacts from round to round.
            starts: number of starts per problem, adjacent in the batch.
        """
        layout, most = problems[0].free.layout, most_prescribed(problems)
        program = improver(layout, most, by_gap and most is not None)
        inputs: list[Any] = list(round_inputs(estimate, problems, partition, by_gap=by_gap))
        # Every one of many short runs, or every part of a long recording, may contribute a small change.
        samples = problems[0].recording.samples
        tolerance = self.settings.converged * max(
            1.0, len(partition.run) / 20 if problems[0].short else samples / LONG
        )
        hinge, previous, number = INITIAL_HINGE, -np.inf, 0
        stage = self.progress.stage(Outcome.like(inputs[3]), 0.0)

        def improved(hinge: float, inputs: Sequence[Any]) -> tuple[Outcome, np.ndarray]:
            outcome = program(hinge, *inputs)
            if by_gap and most is not None and not np.isfinite(outcome.log_likelihood).all():
                # Some body comes to rest, or slides: every step is to be computed in full.
                outcome = improver(layout, None)(hinge, *inputs)
            return outcome, np.asarray(outcome.log_likelihood)

        while True:
            outcome, likelihood = stage.round(partial(improved, hinge, tuple(inputs)))
            inputs[3] = outcome.estimate
            self.history.append(likelihood)
            best = np.max(by_start(likelihood, starts), axis=1)
            # A likelihood that is not finite never recovers, and the others should not wait for it.
            changing = np.isfinite(best) & ((best > previous + tolerance) | (best < previous - tolerance))
            number += 1
            tight = hinge <= FINAL_HINGE or not tighten
            if number == self.settings.rounds or (not changing.any() and tight):
                return _without_padding(outcome, len(partition.run))
            previous = best
            hinge = max(FINAL_HINGE, 0.3 * hinge) if tighten else hinge


def _without_padding(outcome: Outcome, segments: int) -> Outcome:
    local, weight, errors = (
        np.asarray(part)[:, :segments]
        for part in (outcome.estimate.parameters.local, outcome.estimate.weight, outcome.local_error)
    )
    estimate = with_local(outcome.estimate, local)._replace(weight=weight)
    return outcome._replace(estimate=estimate, local_error=errors)


def most_prescribed(problems: Sequence[Problem]) -> int | None:
    """Greatest number of prescribed contacts in a step of any problem; None if all contacts are tested."""
    found = [problem.most for problem in problems]
    return None if None in found else max(number for number in found if number is not None)


def round_inputs(
    estimate: Estimate, problems: Sequence[Problem], partition: Partition, *, by_gap: bool = False
):
    """Arguments of `improve` after the hinge, stacked over the problems; known starts replace estimates."""
    template = stack([problem.free.template for problem in problems])
    maps = stack([problem.free.maps for problem in problems])
    priors = stack([problem.priors for problem in problems])
    data = stack([problem.segments(partition, by_gap=by_gap) for problem in problems])
    known = [
        problem.with_known_starts(local, partition)
        for problem, local in zip(problems, estimate.parameters.local, strict=True)
    ]
    local, mean, precision = (pad_rows(np.stack(part), axis=1) for part in zip(*known, strict=True))
    data = Segments(*(pad_rows(part, axis=1) for part in data))
    data.known[:, len(partition.run) :] = False
    padded = with_local(estimate, local)._replace(weight=pad_rows(np.asarray(estimate.weight), axis=1))
    return template, maps, priors, padded, data, (mean, precision)


def by_start(likelihoods, starts: int) -> np.ndarray:
    """Likelihoods with one row per problem and one column per start; −∞ if they are not finite."""
    values = np.asarray(likelihoods).reshape(-1, starts)
    return np.where(np.isfinite(values), values, -np.inf)


def pick(batch, index: int | np.ndarray):
    """One element of a batch, or several."""
    return jax.tree.map(lambda x: np.asarray(x)[index], batch)


def with_local(estimate: Estimate, local: np.ndarray) -> Estimate:
    """The estimate with other local parameters, possibly of another partition."""
    weight = np.ones((*local.shape[:-1], 2))
    return estimate._replace(parameters=estimate.parameters._replace(local=local), weight=weight)


def coarsened(
    estimate: Estimate, problems: Sequence[Problem], fine: Partition, coarse: Partition
) -> Estimate:
    """The estimate on a coarser partition: each long segment inherits the start of a short one."""
    row_of = {
        start: row for row, start in enumerate(zip(fine.run.tolist(), fine.sample.tolist(), strict=True))
    }
    rows = [row_of[start] for start in zip(coarse.run.tolist(), coarse.sample.tolist(), strict=True)]
    fitted = estimate.parameters.local
    local, layout = np.array(fitted)[:, np.array(rows)], problems[0].free.layout
    for problem, old, new in zip(problems, np.asarray(fitted), local, strict=True):
        if not layout.impacts:
            break
        of_fine, of_coarse = (impacts_of(problem.prescriptions, one) for one in (fine, coarse))
        place = {
            impact: (row, number) for row, found in enumerate(of_fine) for number, impact in enumerate(found)
        }
        new[:, layout.state : layout.own] = 0.0
        for block, columns in list(layout.local_slices())[: len(layout.impacts)]:
            before, after = (part[:, columns].reshape(len(part), *block.shape) for part in (old, new))
            for row, found in enumerate(of_coarse):
                for number, impact in enumerate(found):
                    # An impact between two short segments has no deviation yet.
                    if impact in place:
                        after[row, number] = before[place[impact]]
            new[:, columns] = after.reshape(len(new), -1)
    return with_local(estimate, local)


def stack(trees):
    """Stack trees of the same structure along a new first axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
