"""Impact reassignment: with a fitted model at hand, impacts are assigned anew and the model is fitted again.

The first detection takes a run for parabolas with jumps of velocity. A fitted model tells more. In long runs
every impact may move to a neighbouring step, judged by the data around it: a scheme that resolves impacts on
the grid alone, such as CD-Lagrange's, needs the very step. In short runs that the model does not explain,
other sets of impacts are compared: one of theirs a step earlier or later or not at all, or one more where
bodies would otherwise overlap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.estimation.detection.impacts import REACH, Impacts
from carom.estimation.detection.short_runs import AT_ONCE, BEYOND, PRIOR_LOG_ODDS, allow_neighbours
from carom.estimation.parameters.free import with_values
from carom.estimation.problem import Problem
from carom.estimation.rounds import Rounds, pick, stack
from carom.estimation.solver.iteration import Estimate, Outcome, segment_costs
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import (
    Partition,
    Prescription,
    Segments,
    cut,
    first_states,
    partition,
    prescribe,
)
from carom.integrators import EXCLUDED, PRESCRIBED
from carom.models import Mechanism

WIDTH = 16
"""Samples either side of an impact that decide on its step."""
DOUBTFUL = 3.0
"""Standard deviations of its sum of squares beyond which the impacts of a run are compared with others."""
FALL = 0.3
"""How much the variance of the noise may fall at once."""
BATCH = 256
"""Cases compared at once: a number of its own for every recording would mean a program of its own."""

Reassign = Callable[[Problem, Estimate], tuple[Problem, Estimate]]
"""The problem with its impacts where the fitted model finds them, and an estimate to go on from."""


def reassign_until_converged(
    reassign: Reassign,
    rounds: Rounds,
    problems: list[Problem],
    outcome: Outcome,
    places: Partition,
    *,
    times: int,
) -> tuple[list[Problem], Outcome]:
    """Impacts and model in turn, until no impact of a run that counts changes, or `times` times."""
    for _ in range(times):
        found = [reassign(problem, pick(outcome, index).estimate) for index, problem in enumerate(problems)]
        before, problems = problems, [problem for problem, _ in found]
        if not any(changes(old, new) for old, new in zip(before, problems, strict=True)):
            break
        outcome = rounds.run(stack([estimate for _, estimate in found]), problems, places)
    return problems, outcome


def changes(before: Problem, after: Problem) -> int:
    """How many runs that count have other impacts, or count in only one of two problems."""
    return sum(
        a.explained != b.explained or (a.explained and not np.array_equal(a.chosen, b.chosen))
        for a, b in zip(before.impacts, after.impacts, strict=True)
    )


def reassign_steps(problem: Problem, estimate: Estimate, *, hinge: float) -> tuple[Problem, Estimate]:
    """The problem with every impact at the best of the steps within `REACH`, judged by the data around it.

    Also the estimate, as it is.
    """
    events = [
        (run, int(step), int(contact))
        for run, found in enumerate(problem.impacts)
        for step, contact in np.argwhere(found.chosen)
    ]
    if not events:
        return problem, estimate
    runs, steps, _ = np.array(events).T
    places = Partition(runs, np.maximum(steps + 1 - WIDTH, 0), 2 * WIDTH + 1)
    there = estimate._replace(
        unknowns=Unknowns(np.asarray(estimate.unknowns.shared), problem.first_states(places))
    )
    parameters = problem.parameters
    costs = []
    for shift in range(-REACH, REACH + 1):
        moved = [_moved(prescription, shift) for prescription in problem.prescriptions]
        windows = _alone(cut(problem.recording, moved, places), problem.impacts, events, places)
        layout, maps, template = parameters.layout, parameters.maps, parameters.template
        costs.append(segment_costs(layout, maps, template, hinge, there, windows)[0])
    impacts = [
        replace(
            found,
            chosen=np.zeros_like(found.chosen),
            **{name: getattr(found, name).copy() for name in ("log_odds", "gap", "before", "after")},
        )
        for found in problem.impacts
    ]
    for (run, step, contact), gain in zip(events, -np.asarray(costs).T, strict=True):
        found = impacts[run]
        near = step + np.arange(-REACH, REACH + 1)
        inside = (near >= 0) & (near < len(found.chosen)) & np.isfinite(gain)
        if not inside.any():
            found.chosen[step, contact] = True
            continue
        gain = np.where(inside, gain, -np.inf)
        best = int(np.argmax(gain))
        found.chosen[near[best], contact] = True
        peak = problem.impacts[run].log_odds[step, contact]
        found.log_odds[near[inside], contact] = peak + (gain - gain[best])[inside]
        for part in (found.gap, found.before, found.after):
            part[near[best], contact] = part[step, contact]
    return problem.with_impacts(impacts), estimate


def _moved(prescription: Prescription, shift: int) -> Prescription:
    """All impacts of a run some steps later; none may be early or late."""
    modes = np.where(prescription.modes == PRESCRIBED, EXCLUDED, prescription.modes)
    steps, contacts = np.nonzero(prescription.modes == PRESCRIBED)
    inside = (steps + shift >= 0) & (steps + shift < len(modes))
    modes[steps[inside] + shift, contacts[inside]] = PRESCRIBED
    nothing = np.zeros_like(prescription.earliest)
    return prescription._replace(modes=modes, earliest=nothing, latest=nothing + 1)


def _alone(windows: Segments, impacts: list[Impacts], events, places: Partition) -> Segments:
    """Windows that contain no other impact than the one they are about."""
    known = windows.known.copy()
    struck = [np.flatnonzero(found.chosen.any(axis=1)) for found in impacts]
    for row, (run, step, _) in enumerate(events):
        steps, start = struck[run], places.sample[row]
        before, until = (int(np.searchsorted(steps, step, side)) for side in ("left", "right"))
        if until < len(steps):
            known[row, max(steps[until] - REACH - start, 0) :] = False
        if before:
            known[row, : max(steps[before - 1] + 1 + REACH + 1 - start, 0)] = False
    return windows._replace(known=known)


def reassign_short_runs(problem: Problem, estimate: Estimate, *, hinge: float) -> tuple[Problem, Estimate]:
    """The problem with the impacts that the fitted model finds likeliest; runs that none explains are left
    out.

    Also the estimate with the start states that go with them. The sum of squares of a run tells nothing of
    the parameters, so to choose by it does not bias them.
    """
    whole = [replace(found, explained=True) for found in problem.impacts]
    local = np.array(estimate.unknowns.local)
    costs_of = partial(_costs, problem, estimate, hinge)
    cost, _ = costs_of(list(range(len(whole))), whole, fitted=True)
    freedom, scale = _scale(problem, estimate, cost)

    def beyond(cost: np.ndarray) -> np.ndarray:
        """Standard deviations by which a sum of squares exceeds what chance makes likely."""
        return (2 * cost / scale - freedom) / np.sqrt(2 * freedom)

    # Where a run was left out its start state was not fitted.
    left_out = np.array([not found.explained for found in problem.impacts])
    doubtful = np.flatnonzero(~(beyond(cost) < DOUBTFUL) | left_out)
    parameters = problem.parameters
    shared = np.asarray(estimate.unknowns.shared)
    model = with_values(parameters.layout, parameters.maps, parameters.template, shared)
    which: list[int] = []
    cases: list[Impacts] = []
    for run in doubtful:
        time = problem.recording.runs[run].time
        start = parameters.layout.start(jnp.asarray(local[run]))
        straight = _straight(np.asarray(start.position), np.asarray(start.velocity), time)
        for case in (whole[run], *_alternatives(whole[run], model, straight)):
            which.append(int(run))
            cases.append(case)
    best = list(whole)
    if cases:
        price = -PRIOR_LOG_ODDS * scale
        found, states = costs_of(which, cases)
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


def _scale(problem: Problem, estimate: Estimate, cost: np.ndarray) -> tuple[np.ndarray, float]:
    """Degrees of freedom of every run, and by how much the noise was overestimated, as a variance."""
    recording = problem.recording
    count = np.array([np.isfinite(run.position).sum() for run in recording.runs], float)
    if recording.has_velocity:
        count += [np.isfinite(run.velocity).sum() for run in recording.runs if run.velocity is not None]
    freedom = np.maximum(count - estimate.unknowns.local.shape[1], 1)
    # The noise was estimated with the doubtful runs among the others, so the median is nearer to it. But if
    # it is
    # small, runs that do not depend on a parameter know nothing of what its error leaves of others.
    lowest = max(FALL, float(np.max(problem.priors.resolution / np.asarray(estimate.noise)) ** 2))
    return freedom, max(float(np.median(2 * cost / freedom)), lowest)


def _straight(position: np.ndarray, velocity: np.ndarray, time: np.ndarray) -> np.ndarray:
    return position[None] + (time - time[0])[:, None, None] * velocity[None]


def _alternatives(found: Impacts, model: Mechanism, straight: np.ndarray) -> Iterator[Impacts]:
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
    # Contacts that would close, were all bodies to go straight on.
    closed = np.asarray(model.geometry.gap(jnp.asarray(straight))) < 0
    closing = closed[1:] & ~closed[:-1] & ~chosen.any(axis=0)
    for step, contact in np.argwhere(closing):
        if not crowded[step]:
            more = chosen.copy()
            more[step, contact] = True
            yield allow_neighbours(replace(found, chosen=more))


def _costs(
    problem: Problem,
    estimate: Estimate,
    hinge: float,
    which: Sequence[int],
    cases: Sequence[Impacts],
    *,
    fitted: bool = False,
) -> tuple[Float[np.ndarray, "cases"], Float[np.ndarray, "cases local"]]:
    """Half the sum of squares of runs under some impacts, and their start states.

    The start states are those of the estimate where they are `fitted`; else they are found, from these and
    from what the data say by themselves.
    """
    recording = replace(problem.recording, runs=tuple(problem.recording.runs[run] for run in which))
    places = partition(recording, None)
    surfaces = [problem.surfaces[run] for run in which]
    segments = cut(recording, prescribe(recording, cases, surfaces), places)
    local = np.asarray(estimate.unknowns.local)[list(which)]
    fresh = local.copy()
    parameters = problem.parameters
    fresh[:, : parameters.layout.state] = first_states(recording, list(cases), places)
    result = []
    for first in range(0, len(which), BATCH):
        rows = np.arange(first, first + BATCH) % len(which)
        there = estimate._replace(unknowns=Unknowns(np.asarray(estimate.unknowns.shared), local[rows]))
        result.append(
            segment_costs(
                parameters.layout,
                parameters.maps,
                parameters.template,
                hinge,
                there,
                Segments(*(part[rows] for part in segments)),
                fresh[rows],
                most=problem.most,
                iterations=0 if fitted else 8,
            )
        )
    costs, states = (
        np.concatenate([np.asarray(part) for part in parts])[: len(which)]
        for parts in zip(*result, strict=True)
    )
    return np.where(np.isfinite(costs), costs, np.inf), states
