"""Impacts of short runs anew, where the fitted model does not explain them.

The first look takes a run for parabolas with jumps. With a model at hand, runs in doubt are compared under
other impacts: one of theirs a step earlier or later or not at all, or one more where bodies would otherwise
overlap. What still explains a run no better than chance would is set aside: the sum of squares of a run tells
nothing of the parameters, so to choose by it does not bias them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.estimation.detection.impacts import Impacts
from carom.estimation.detection.short_runs import AT_ONCE, BEYOND, PRIOR_LOG_ODDS, allow_neighbours
from carom.estimation.parameters.per_run import RunShape
from carom.estimation.parameters.unknowns import with_unknowns
from carom.estimation.problem import Problem
from carom.estimation.solver.iteration import Estimate, SharedShape, unexplained
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import Segments, cut, first_states, layout, plans
from carom.models import ImpactNetwork

DOUBT = 3.0
"""Standard deviations of its sum of squares beyond which a run is in doubt."""
FALL = 0.3
"""How much the variance of the noise may fall at once."""
BATCH = 256
"""Cases compared at once: a number of its own for every recording would mean a program of its own."""


def reconsider(
    problem: Problem, estimate: Estimate, *, template: ImpactNetwork, unravel: SharedShape, hinge: float
) -> tuple[Problem, Estimate]:
    """The problem with the impacts that the fitted model finds likeliest, and what is set aside.

    Also the estimate with the start states that go with them.
    """
    recording = problem.recording
    whole = [replace(found, explained=True) for found in problem.impacts]
    local = np.array(estimate.unknowns.local)
    costs = partial(_costs, problem, template, unravel, estimate, hinge)
    cost, _ = costs(list(range(len(whole))), whole, settled=True)
    count = np.array([np.isfinite(run.position).sum() for run in recording.runs], float)
    if recording.has_velocity:
        count += [np.isfinite(run.velocity).sum() for run in recording.runs if run.velocity is not None]
    freedom = np.maximum(count - local.shape[1], 1)
    deviation = np.sqrt(2 * freedom)
    # The noise was estimated with the runs in doubt among the others, so the median is nearer to it. But if
    # it is small, runs that do not depend on a parameter know nothing of what its error leaves of others.
    lowest_scale = max(FALL, float(np.max(problem.units.resolution / np.asarray(estimate.noise)) ** 2))
    scale = max(float(np.median(2 * cost / freedom)), lowest_scale)

    def beyond(cost: np.ndarray) -> np.ndarray:
        return (2 * cost / scale - freedom) / deviation

    # Where a run was set aside its start state was not fitted.
    aside = np.array([not found.explained for found in problem.impacts])
    doubtful = np.flatnonzero(~(beyond(cost) < DOUBT) | aside)
    model = with_unknowns(template, unravel(np.asarray(estimate.unknowns.shared)), problem.units)
    which: list[int] = []
    cases: list[Impacts] = []
    for run in doubtful:
        for case in (
            whole[run],
            *_alternatives(whole[run], model, problem.own, local[run], recording.runs[run].time),
        ):
            which.append(int(run))
            cases.append(case)
    best = list(whole)
    if cases:
        price = -PRIOR_LOG_ODDS * scale
        found, states = costs(which, cases)
        found = found + price * np.array([case.chosen.sum() for case in cases])
        lowest = np.where(np.isfinite(cost), cost, np.inf) + price * np.array(
            [case.chosen.sum() for case in whole]
        )
        for run, case, value, state in zip(which, cases, found, states, strict=True):
            if value < lowest[run]:
                lowest[run], best[run], local[run] = value, case, state
        cost = lowest - price * np.array([case.chosen.sum() for case in best])
    explained = beyond(cost) < BEYOND
    better = problem.with_impacts(
        [replace(case, explained=bool(fine)) for case, fine in zip(best, explained, strict=True)]
    )
    return better, estimate._replace(unknowns=estimate.unknowns._replace(local=local))


def changes(before: Problem, after: Problem) -> int:
    """How many runs that count have other impacts, or count in only one of two problems."""
    return sum(
        a.explained != b.explained or (a.explained and not np.array_equal(a.chosen, b.chosen))
        for a, b in zip(before.impacts, after.impacts, strict=True)
    )


def _alternatives(
    found: Impacts, model: ImpactNetwork, own: RunShape, local: Float[np.ndarray, "local"], time: np.ndarray
) -> Iterator[Impacts]:
    """Other impacts that a run may have had."""
    chosen = found.chosen
    crowded = np.sum(chosen, axis=1) >= AT_ONCE
    for step, contact in np.argwhere(chosen):
        without = chosen.copy()
        without[step, contact] = False
        yield allow_neighbours(replace(found, chosen=without))
        for other in (step - 1, step + 1):
            if 0 <= other < len(chosen) and not crowded[other]:
                moved = without.copy()
                moved[other, contact] = True
                yield allow_neighbours(replace(found, chosen=moved))
    for step, contact in _overlaps(found, model, own, local, time):
        if crowded[step]:
            continue
        more = chosen.copy()
        more[step, contact] = True
        yield allow_neighbours(replace(found, chosen=more))


def _overlaps(
    found: Impacts, model: ImpactNetwork, own: RunShape, local: np.ndarray, time: np.ndarray
) -> list[tuple[int, int]]:
    """Steps in which contacts that do not happen by schedule would close, were all to go straight on."""
    state = own.start(jnp.asarray(local))
    since = (time - time[0])[:, None, None]
    straight = np.asarray(state.position)[None] + since * np.asarray(state.velocity)[None]
    rows = model.contact_rows
    relative = np.asarray(rows.signs) @ straight
    along = np.sum(np.asarray(rows.normal) * relative, axis=-1)
    distance = np.where(np.asarray(rows.flat), along, np.linalg.norm(relative, axis=-1))
    closed = distance - np.asarray(rows.offset) < 0
    closing = closed[1:] & ~closed[:-1] & ~found.chosen.any(axis=0)
    return [(int(step), int(contact)) for step, contact in np.argwhere(closing)]


def _costs(
    problem: Problem,
    template: ImpactNetwork,
    unravel: SharedShape,
    estimate: Estimate,
    hinge: float,
    which: list[int],
    cases: list[Impacts],
    *,
    settled: bool = False,
) -> tuple[Float[np.ndarray, "cases"], Float[np.ndarray, "cases local"]]:
    """Half the sum of squares of runs under some impacts, and their start states.

    The start states are those of the estimate where they are `settled`; else they are fitted, from these and
    from what the data say by themselves.
    """
    recording = replace(problem.recording, runs=tuple(problem.recording.runs[run] for run in which))
    places = layout(recording, None)
    segments = cut(recording, plans(recording, cases, [problem.surfaces[run] for run in which]), places)
    local = np.asarray(estimate.unknowns.local)[which]
    fresh = local.copy()
    fresh[:, : problem.own.state] = first_states(recording, cases, places)
    result = []
    for first in range(0, len(which), BATCH):
        rows = np.arange(first, first + BATCH) % len(which)
        there = estimate._replace(unknowns=Unknowns(np.asarray(estimate.unknowns.shared), local[rows]))
        result.append(
            unexplained(
                template,
                hinge,
                problem.units,
                there,
                Segments(*(part[rows] for part in segments)),
                fresh[rows],
                unravel=unravel,
                own=problem.own,
                most=problem.most(template),
                iterations=0 if settled else 8,
            )
        )
    costs, states = (
        np.concatenate([np.asarray(part) for part in parts])[: len(which)]
        for parts in zip(*result, strict=True)
    )
    return np.where(np.isfinite(costs), costs, np.inf), states
