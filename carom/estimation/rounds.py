"""Rounds of a stage: a batch of estimations improved until their likelihood converges.

A batch has every start of every recording, or one estimate of each; its arrays have an axis over them first.
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
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import Partition
from carom.storage.checkpoints import Progress

LOOSE, HINGE = 0.3, 3e-3
"""How softly prescribed impacts are kept within their time, at first and in the end, as a share of a step."""
LONG = 10_000
"""Samples beyond which the change of the log-likelihood that ends a stage grows with their number."""


@dataclass(frozen=True)
class Rounds:
    """Runs rounds of one fit, keeping each on disk, and remembers the log-likelihoods."""

    settings: Settings
    progress: Progress
    history: list[np.ndarray]

    def prepare(self, estimate: Estimate, problems: Sequence[Problem], partition: Partition) -> None:
        """Compile a stage before its turn comes."""
        program = improver(problems[0].parameters.layout, most_prescribed(problems))
        program.prepare(LOOSE, *round_inputs(estimate, problems, partition))

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
        """Round after round until the likelihood converges, of several starts that of the best.

        Arguments:
            by_gap: whether the gap alone decides on contacts, rather than the impacts that were found.
            tighten: whether prescribed impacts are confined ever more closely to their time.
            starts: of each problem, side by side.
        """
        program = improver(problems[0].parameters.layout, most_prescribed(problems, by_gap=by_gap))
        inputs: list[Any] = list(round_inputs(estimate, problems, partition, by_gap=by_gap))
        # Each of many short runs may still move a little, and so may each part of a long recording.
        samples = problems[0].recording.samples
        enough = self.settings.converged * max(
            1.0, len(partition.run) / 20 if problems[0].short else samples / LONG
        )
        hinge, before, number = LOOSE, -np.inf, 0
        stage = self.progress.stage(Outcome.like(inputs[3]), 0.0)

        def improved(hinge: float, inputs: Sequence[Any]) -> tuple[Outcome, np.ndarray]:
            outcome = program(hinge, *inputs)
            return outcome, np.asarray(outcome.log_likelihood)

        while True:
            outcome, likelihood = stage.round(partial(improved, hinge, tuple(inputs)))
            inputs[3] = outcome.estimate
            self.history.append(likelihood)
            best = np.max(by_start(likelihood, starts), axis=1)
            # What is not finite will not converge by itself, nor should the others wait for it.
            moving = np.isfinite(best) & ((best > before + enough) | (best < before - enough))
            number += 1
            if number == self.settings.rounds or (not moving.any() and (hinge <= HINGE or not tighten)):
                return outcome
            before = best
            hinge = max(HINGE, 0.3 * hinge) if tighten else hinge


def most_prescribed(problems: Sequence[Problem], *, by_gap: bool = False) -> int | None:
    """How many contacts are prescribed in a step at most; None where all are to be tested."""
    found = [None if by_gap else problem.most for problem in problems]
    return None if None in found else max(number for number in found if number is not None)


def round_inputs(
    estimate: Estimate, problems: Sequence[Problem], partition: Partition, *, by_gap: bool = False
):
    """What a round takes: mechanism, maps, priors, the estimate with known starts in it, data, priors of
    segments."""
    parameters = [problem.parameters for problem in problems]
    template, maps = (stack([getattr(p, name) for p in parameters]) for name in ("template", "maps"))
    priors = stack([problem.priors for problem in problems])
    data = stack([problem.segments(partition, by_gap=by_gap) for problem in problems])
    known = [
        problem.with_known_starts(local, partition)
        for problem, local in zip(problems, estimate.unknowns.local, strict=True)
    ]
    local, mean, precision = (np.stack(part) for part in zip(*known, strict=True))
    return template, maps, priors, with_local(estimate, local), data, (mean, precision)


def by_start(likelihoods, starts: int) -> np.ndarray:
    """Likelihoods problem by problem, the starts of one side by side, −∞ for what is not finite."""
    values = np.asarray(likelihoods).reshape(-1, starts)
    return np.where(np.isfinite(values), values, -np.inf)


def pick(batch, index: int | np.ndarray):
    """One estimation of a batch, or some."""
    return jax.tree.map(lambda x: np.asarray(x)[index], batch)


def with_local(estimate: Estimate, local: np.ndarray) -> Estimate:
    """The same with other parameters of the segments, or with those of other segments."""
    return estimate._replace(unknowns=estimate.unknowns._replace(local=local))


def joined(estimate: Estimate, fine: Partition, coarse: Partition) -> Estimate:
    """The same estimate with fewer, longer segments: each starts where a short one did."""
    row_of = {
        start: row for row, start in enumerate(zip(fine.run.tolist(), fine.sample.tolist(), strict=True))
    }
    rows = [row_of[start] for start in zip(coarse.run.tolist(), coarse.sample.tolist(), strict=True)]
    shared, local = estimate.unknowns
    return estimate._replace(unknowns=Unknowns(shared, np.asarray(local)[:, np.array(rows)]))


def stack(trees):
    """Trees of one structure as one, with an axis over them first."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
