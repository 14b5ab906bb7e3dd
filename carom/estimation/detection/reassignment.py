"""Impact reassignment: a fitted model reassigns the impacts, and is then fitted again.

Detection approximates runs by parabolas with velocity jumps; a fitted model discriminates better. In long
runs every impact may move to a neighbouring step, according to the data around it: a scheme with impacts on
the time grid, such as CD-Lagrange, needs the exact step. In short runs that the model explains poorly, other
sets of impacts are compared: one impact a step earlier or later, or removed, or one more where bodies would
otherwise overlap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.estimation.detection.impacts import Impacts
from carom.estimation.detection.local_motion import REACH
from carom.estimation.detection.short_runs import (
    MAX_PER_STEP,
    PRIOR_LOG_ODDS,
    REJECTED,
    allow_neighbours,
)
from carom.estimation.parameters.free import with_values
from carom.estimation.problem import Problem
from carom.estimation.rounds import Rounds, pick, stack, with_local
from carom.estimation.solver.iteration import Estimate, Outcome, segment_costs
from carom.estimation.solver.segments import (
    Partition,
    Prescription,
    Segments,
    cut,
    first_states,
    pad_rows,
    partition,
    prescribe,
)
from carom.integrators import EXCLUDED, PRESCRIBED
from carom.models import Mechanism

WIDTH = 16
"""Samples either side of an impact from which its step is determined."""
POORLY_EXPLAINED = 3.0
"""Excess of the sum of squares of a run, in standard deviations, above which other impacts are tried."""
MIN_VARIANCE_RATIO = 0.3
"""Greatest decrease of the variance of the noise in one pass."""
BATCH = 256
"""Cases evaluated at once; a fixed number, so that all recordings share a compiled program."""

Reassign = Callable[[Problem, Estimate], tuple[Problem, Estimate]]
"""Returns the problem with reassigned impacts, and an estimate to continue from."""


def reassign_until_converged(
    reassign: Reassign,
    rounds: Rounds,
    problems: list[Problem],
    outcome: Outcome,
    segments: Partition,
    *,
    passes: int,
) -> tuple[list[Problem], Outcome]:
    """Alternate between reassignment and fitting until no impact of an explained run changes."""
    for _ in range(passes):
        found = [reassign(problem, pick(outcome, index).estimate) for index, problem in enumerate(problems)]
        before, problems = problems, [problem for problem, _ in found]
        if not any(changes(old, new) for old, new in zip(before, problems, strict=True)):
            break
        outcome = rounds.run(stack([estimate for _, estimate in found]), problems, segments)
    return problems, outcome


def changes(before: Problem, after: Problem) -> int:
    """Number of runs whose impacts differ between two problems, or that are explained in only one of them."""
    return sum(
        a.explained != b.explained or (a.explained and not np.array_equal(a.chosen, b.chosen))
        for a, b in zip(before.impacts, after.impacts, strict=True)
    )


def reassign_steps(problem: Problem, estimate: Estimate, *, hinge: float) -> tuple[Problem, Estimate]:
    """Move every impact to the step within `REACH` that fits the data around it best; same estimate."""
    events = [
        (run, int(step), int(contact))
        for run, found in enumerate(problem.impacts)
        for step, contact in np.argwhere(found.chosen)
    ]
    if not events:
        return problem, estimate
    runs, steps, _ = np.array(events).T
    first, width = np.maximum(steps + 1 - WIDTH, 0), 2 * WIDTH + 1
    lengths = np.array([len(run) for run in problem.recording.runs])[runs]
    around = Partition(runs, first, np.minimum(width, lengths - first), width)
    local_estimate = with_local(estimate, pad_rows(problem.first_states(around)))
    free = problem.free
    costs = []
    for shift in range(-REACH, REACH + 1):
        moved = [_moved(prescription, shift) for prescription in problem.prescriptions]
        windows = _isolated(cut(problem.recording, moved, around), problem.impacts, events, around)
        windows = Segments(*map(pad_rows, windows))
        cost, _ = segment_costs(free.layout, free.maps, free.template, hinge, local_estimate, windows)
        costs.append(cost[: len(events)])
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
    """All impacts of a run shifted by some steps, and confined to their new steps."""
    modes = np.where(prescription.modes == PRESCRIBED, EXCLUDED, prescription.modes)
    steps, contacts = np.nonzero(prescription.modes == PRESCRIBED)
    inside = (steps + shift >= 0) & (steps + shift < len(modes))
    modes[steps[inside] + shift, contacts[inside]] = PRESCRIBED
    zero = np.zeros_like(prescription.earliest)
    return prescription._replace(modes=modes, earliest=zero, latest=zero + 1)


def _isolated(windows: Segments, impacts: list[Impacts], events, around: Partition) -> Segments:
    """Windows restricted to samples that no other impact can affect."""
    known = windows.known.copy()
    impact_steps = [np.flatnonzero(found.chosen.any(axis=1)) for found in impacts]
    for row, (run, step, _) in enumerate(events):
        steps, start = impact_steps[run], around.sample[row]
        before, until = (int(np.searchsorted(steps, step, side)) for side in ("left", "right"))
        if until < len(steps):
            known[row, max(steps[until] - REACH - start, 0) :] = False
        if before:
            known[row, : max(steps[before - 1] + 1 + REACH + 1 - start, 0)] = False
    return windows._replace(known=known)


def reassign_short_runs(problem: Problem, estimate: Estimate, *, hinge: float) -> tuple[Problem, Estimate]:
    """Assign the likeliest impacts under the fitted model; runs that no impacts explain are left out.

    The estimate is returned with the matching start states. The sum of squares of a run is independent of
    its estimated parameters, so selecting by it does not bias them.
    """
    current = [replace(found, explained=True) for found in problem.impacts]
    local = np.array(estimate.parameters.local)
    costs_of = partial(_costs, problem, estimate, hinge)
    cost, _ = costs_of(list(range(len(current))), current, fitted=True)
    freedom, scale = _degrees_and_scale(problem, estimate, cost)

    def excess(cost: np.ndarray) -> np.ndarray:
        """Excess of a sum of squares over its mean, in standard deviations of the χ² distribution."""
        return (2 * cost / scale - freedom) / np.sqrt(2 * freedom)

    # Runs that were left out have start states that were not fitted; they are always tried again.
    left_out = np.array([not found.explained for found in problem.impacts])
    poor = np.flatnonzero(~(excess(cost) < POORLY_EXPLAINED) | left_out)
    free, shared = problem.free, np.asarray(estimate.parameters.shared)
    model = with_values(free.layout, free.maps, free.template, shared)
    which: list[int] = []
    cases: list[Impacts] = []
    for run in poor:
        time = problem.recording.runs[run].time
        start = free.layout.start(jnp.asarray(local[run]))
        straight = np.asarray(start.position) + (time - time[0])[:, None, None] * np.asarray(start.velocity)
        for case in (current[run], *_neighbours(current[run], model, straight)):
            which.append(int(run))
            cases.append(case)
    best = list(current)
    if cases:
        # Each impact costs its prior log-odds, or further impacts would always fit better.
        penalty = -PRIOR_LOG_ODDS * scale
        costs, states = costs_of(which, cases)
        costs = costs + penalty * np.array([case.chosen.sum() for case in cases])
        lowest = np.where(np.isfinite(cost), cost, np.inf) + penalty * np.array(
            [case.chosen.sum() for case in current]
        )
        for run, case, value, state in zip(which, cases, costs, states, strict=True):
            if value < lowest[run]:
                lowest[run], best[run], local[run] = value, case, state
        cost = lowest - penalty * np.array([case.chosen.sum() for case in best])
    explained = excess(cost) < REJECTED
    better = problem.with_impacts(
        [replace(case, explained=bool(fine)) for case, fine in zip(best, explained, strict=True)]
    )
    return better, estimate._replace(parameters=estimate.parameters._replace(local=local))


def _degrees_and_scale(problem: Problem, estimate: Estimate, cost: np.ndarray) -> tuple[np.ndarray, float]:
    """Degrees of freedom of every run, and the ratio of the variance of the noise to its estimate."""
    recording = problem.recording
    count = np.array([np.isfinite(run.position).sum() for run in recording.runs], float)
    if recording.has_velocity:
        count += [np.isfinite(run.velocity).sum() for run in recording.runs if run.velocity is not None]
    freedom = np.maximum(count - estimate.parameters.local.shape[1], 1)
    # Poorly explained runs inflate the estimated noise; the median over the runs is robust to them. It must
    # not fall too fast: most runs may not depend on a parameter whose error still dominates the others.
    lowest = max(
        MIN_VARIANCE_RATIO, float(np.max(problem.priors.resolution / np.asarray(estimate.noise)) ** 2)
    )
    return freedom, max(float(np.median(2 * cost / freedom)), lowest)


def _neighbours(found: Impacts, model: Mechanism, straight: np.ndarray) -> Iterator[Impacts]:
    """Sets of impacts that differ from those of a run by one impact."""
    chosen = found.chosen
    full = np.sum(chosen, axis=1) >= MAX_PER_STEP
    for step, contact in np.argwhere(chosen):
        without = chosen.copy()
        without[step, contact] = False
        yield allow_neighbours(replace(found, chosen=without))
        for other in (step - 1, step + 1):
            if 0 <= other < len(chosen) and not full[other]:
                moved = without.copy()
                moved[other, contact] = True
                yield allow_neighbours(replace(found, chosen=moved))
    # Contacts that would close if all bodies moved uniformly along straight lines.
    closed = np.asarray(jax.vmap(model.geometry.gap)(jnp.asarray(straight))) < 0
    closing = closed[1:] & ~closed[:-1] & ~chosen.any(axis=0)
    for step, contact in np.argwhere(closing):
        if not full[step]:
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
    """Half the sum of squares of runs with given impacts, and their local parameters.

    The local parameters are those of the estimate if it is `fitted` to these impacts; otherwise they are
    optimised from two starting points, the estimate and the initial values from the data.
    """
    recording = replace(problem.recording, runs=tuple(problem.recording.runs[run] for run in which))
    whole_runs = partition(cases, None)
    segments = cut(recording, prescribe(cases), whole_runs)
    local = np.asarray(estimate.parameters.local)[list(which)]
    initial, free = local.copy(), problem.free
    initial[:, : free.layout.state] = first_states(recording, list(cases), whole_runs)
    result = []
    for first in range(0, len(which), BATCH):
        rows = np.arange(first, first + BATCH) % len(which)
        batch = with_local(estimate, local[rows])
        result.append(
            segment_costs(
                free.layout,
                free.maps,
                free.template,
                hinge,
                batch,
                Segments(*(part[rows] for part in segments)),
                initial[rows],
                most=problem.most,
                iterations=0 if fitted else 8,
            )
        )
    costs, states = (
        np.concatenate([np.asarray(part) for part in parts])[: len(which)]
        for parts in zip(*result, strict=True)
    )
    return np.where(np.isfinite(costs), costs, np.inf), states
