"""Screening of short segments: those that the model explains much worse than the others break their run.

An impact that was missed, or one that never happened, spoils a short segment alone, but everything after it
in a long one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from carom.estimation.detection.impacts import SHORTEST
from carom.estimation.problem import Problem
from carom.estimation.rounds import INITIAL_HINGE, with_local
from carom.estimation.solver.iteration import Estimate, Outcome, segment_costs
from carom.estimation.solver.segments import Partition, Segments, pad_rows

POOR = 9.0
"""Ratio of the mean square of a segment to that of most from which on it is left out."""
FEW = 0.1
"""Greatest fraction of poor segments; with more of them it is the model that does not fit."""


def poor_segments(problem: Problem, outcome: Outcome, partition: Partition) -> list[int]:
    """Numbers of the segments that the model explains much worse than most."""
    free, segments = problem.free, problem.segments(partition, by_gap=False)
    padded = with_local(outcome.estimate, pad_rows(np.asarray(outcome.estimate.parameters.local)))
    cost, _ = segment_costs(
        free.layout,
        free.maps,
        free.template,
        INITIAL_HINGE,
        padded,
        Segments(*map(pad_rows, segments)),
        most=problem.most,
        iterations=0,
    )
    count = segments.known.sum(axis=(1, 2, 3, 4))
    # Two more than the unknowns: the residuals of fewer samples say nothing.
    told = count > free.layout.state + 2
    if not told.any():
        return []
    square = 2 * np.asarray(cost)[: len(count)] / np.maximum(count - free.layout.state, 1)
    poor = told & ~(square <= POOR * np.median(square[told]))
    return np.flatnonzero(poor).tolist() if poor.sum() <= FEW * told.sum() else []


def without_segments(problem: Problem, partition: Partition, left_out: Sequence[int]) -> Problem:
    """The problem without these segments; what is left of their runs are pieces of their own."""
    impacts = list(problem.impacts)
    for row in left_out:
        run, start = int(partition.run[row]), int(partition.sample[row])
        end = start + int(partition.size[row])
        found, pieces = impacts[run], []
        for low, high in found.pieces:
            parts = [(low, min(high, start)), (max(low, end), high)]
            pieces += [(a, b) for a, b in parts if b - a >= SHORTEST]
        chosen = found.chosen.copy()
        chosen[max(start - 1, 0) : end] = False
        # A run of which nothing is left remains as it was: every run has a piece.
        impacts[run] = replace(found, pieces=tuple(pieces), chosen=chosen) if pieces else found
    return problem.with_impacts(impacts)


def retained(estimate: Estimate, problem: Problem, before: Partition, after: Partition) -> Estimate:
    """The estimate with the local parameters of the segments that are left; new ones start from the data."""
    row_of = {
        start: row for row, start in enumerate(zip(before.run.tolist(), before.sample.tolist(), strict=True))
    }
    local, old = problem.first_states(after), np.asarray(estimate.parameters.local)
    for row, start in enumerate(zip(after.run.tolist(), after.sample.tolist(), strict=True)):
        if start in row_of:
            local[row] = old[0, row_of[start]]
    return with_local(estimate, local[None])
