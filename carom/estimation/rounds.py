"""Rounds of the recipe `carom`: a batch of estimations improved until their likelihood settles.

A batch has every start of every recording, or one estimate of each; its arrays have an axis over them first.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np

from carom.estimation.problem import Problem
from carom.estimation.solver.iteration import Estimate, Outcome
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import Layout
from carom.models import ImpactNetwork
from carom.storage.checkpoints import Progress
from carom.storage.program_cache import CachedFunction

LOOSE, HINGE = 0.3, 3e-3
"""How softly scheduled impacts are kept within their time, at first and in the end, as a share of a step."""
ROUNDS, SETTLED, LONG = 16, 0.2, 10_000
"""Rounds of a stage at most, and the change of the log-likelihood that ends it, of up to so many samples."""


def run_rounds(
    template: ImpactNetwork,
    improver: Callable[[int | None], CachedFunction],
    done: Progress,
    history: list[np.ndarray],
    estimate: Estimate,
    problems: Sequence[Problem],
    places: Layout,
    *,
    free: bool = False,
    tighten: bool = False,
    starts: int = 1,
) -> Outcome:
    """Round after round until the likelihood settles, of several starts that of the best."""
    improve = improver(most_decided(problems, template, free=free))
    units, estimate, data, priors = round_inputs(estimate, problems, places, free=free)
    # Each of many short runs may still move a little, and so may each part of a long recording.
    samples = problems[0].recording.samples
    enough = SETTLED * max(1.0, len(places.run) / 20 if problems[0].short else samples / LONG)
    hinge, before = LOOSE, -np.inf
    number = 0
    stage = done.stage(Outcome.like(estimate), 0.0)

    def improved(hinge: float, estimate: Estimate) -> tuple[Outcome, np.ndarray]:
        outcome = improve(template, hinge, units, estimate, data, priors)
        return outcome, np.asarray(outcome.log_likelihood)

    while True:
        outcome, likelihood = stage.round(partial(improved, hinge, estimate))
        estimate = outcome.estimate
        history.append(likelihood)
        best = np.max(by_start(likelihood, starts), axis=1)
        # What is not finite will not settle by itself, nor should the others wait for it.
        moving = np.isfinite(best) & ((best > before + enough) | (best < before - enough))
        number += 1
        if number == ROUNDS or (not moving.any() and (hinge <= HINGE or not tighten)):
            return outcome
        before = best
        hinge = max(HINGE, 0.3 * hinge) if tighten else hinge


def most_decided(problems: Sequence[Problem], template: ImpactNetwork, *, free: bool = False) -> int | None:
    """How many contacts a step has at most by schedule; None where all are to be looked at."""
    found = [None if free else problem.most(template) for problem in problems]
    return None if None in found else max(number for number in found if number is not None)


def round_inputs(estimate: Estimate, problems: Sequence[Problem], places: Layout, *, free: bool = False):
    """What a round is given: units, the estimate with known starts in it, data, priors of the segments."""
    units = stack([problem.units for problem in problems])
    data = stack([problem.segments(places, free=free) for problem in problems])
    known = [
        problem.with_known_starts(local, places)
        for problem, local in zip(problems, estimate.unknowns.local, strict=True)
    ]
    local, mean, precision = (np.stack(part) for part in zip(*known, strict=True))
    return units, with_local(estimate, local), data, (mean, precision)


def by_start(likelihoods, starts: int) -> np.ndarray:
    """Likelihoods problem by problem, the starts of one side by side, the worst for what is not finite."""
    values = np.asarray(likelihoods).reshape(-1, starts)
    return np.where(np.isfinite(values), values, -np.inf)


def pick(batch, index: int | np.ndarray):
    """One estimation of a batch, or some."""
    return jax.tree.map(lambda x: np.asarray(x)[index], batch)


def with_local(estimate: Estimate, local: np.ndarray) -> Estimate:
    """The same with other unknowns of the segments, or with those of other segments."""
    return estimate._replace(unknowns=estimate.unknowns._replace(local=local))


def joined(estimate: Estimate, fine: Layout, coarse: Layout) -> Estimate:
    """The same estimate with fewer, longer segments: each starts where a short one did."""
    rows_of = {
        place: row for row, place in enumerate(zip(fine.run.tolist(), fine.sample.tolist(), strict=True))
    }
    rows = [rows_of[place] for place in zip(coarse.run.tolist(), coarse.sample.tolist(), strict=True)]
    shared, local = estimate.unknowns
    return estimate._replace(unknowns=Unknowns(shared, np.asarray(local)[:, np.array(rows)]))


def stack(trees):
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
