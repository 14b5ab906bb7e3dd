"""Impacts moved to the steps that the fitted model finds likeliest.

The first look at a recording places an impact by a parabola either side of it. A scheme that resolves impacts
on the grid alone, such as CD-Lagrange's, needs the very step; with a model at hand its neighbours can be
compared.
"""

from dataclasses import replace

import numpy as np

from carom.estimation.detection.impacts import REACH, Impacts
from carom.estimation.problem import Problem
from carom.estimation.solver.iteration import Estimate, SharedShape, unexplained
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import Layout, Plan, Segments, cut
from carom.integrators import SCHEDULED
from carom.models import ImpactNetwork

WIDTH = 16
"""Samples either side of an impact that decide on its step."""


def reschedule(
    problem: Problem, estimate: Estimate, *, template: ImpactNetwork, unravel: SharedShape, hinge: float
) -> tuple[Problem, Estimate]:
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
    places = Layout(runs, np.maximum(steps + 1 - WIDTH, 0), 2 * WIDTH + 1)
    shifts = range(-REACH, REACH + 1)
    local = problem.first_states(places)
    shared = np.asarray(estimate.unknowns.shared)
    misfit = []
    for shift in shifts:
        moved = [_moved(plan, shift) for plan in problem.plans]
        windows = _alone(cut(problem.recording, moved, places), problem.impacts, events, places)
        there = estimate._replace(unknowns=Unknowns(shared, local))
        misfit.append(
            unexplained(template, hinge, problem.units, there, windows, unravel=unravel, own=problem.own)[0]
        )
    gain = -np.asarray(misfit)
    impacts = [
        replace(
            found,
            chosen=np.zeros_like(found.chosen),
            **{name: getattr(found, name).copy() for name in ("log_odds", "gap", "before", "after")},
        )
        for found in problem.impacts
    ]
    for (run, step, contact), by_shift in zip(events, gain.T, strict=True):
        found = impacts[run]
        near = step + np.arange(-REACH, REACH + 1)
        inside = (near >= 0) & (near < len(found.chosen)) & np.isfinite(by_shift)
        if not inside.any():
            found.chosen[step, contact] = True
            continue
        by_shift = np.where(inside, by_shift, -np.inf)
        best = int(np.argmax(by_shift))
        found.chosen[near[best], contact] = True
        peak = problem.impacts[run].log_odds[step, contact]
        found.log_odds[near[inside], contact] = peak + (by_shift - by_shift[best])[inside]
        for part in (found.gap, found.before, found.after):
            part[near[best], contact] = part[step, contact]
    return problem.with_impacts(impacts), estimate


def _moved(plan: Plan, shift: int) -> Plan:
    """All impacts of a run some steps later; none may be early or late."""
    quiet = np.where(plan.schedule == SCHEDULED, -SCHEDULED, plan.schedule)
    steps, contacts = np.nonzero(plan.schedule == SCHEDULED)
    inside = (steps + shift >= 0) & (steps + shift < len(quiet))
    quiet[steps[inside] + shift, contacts[inside]] = SCHEDULED
    return plan._replace(
        schedule=quiet, earliest=np.full_like(plan.earliest, 0.0), latest=np.full_like(plan.latest, 1.0)
    )


def _alone(windows: Segments, impacts: list[Impacts], events, places: Layout) -> Segments:
    """Windows that see no other impact than the one they are about."""
    known = windows.known.copy()
    struck = [np.flatnonzero(found.chosen.any(axis=1)) for found in impacts]
    for row, (run, step, _) in enumerate(events):
        kinks, start = struck[run], places.sample[row]
        before, until = (int(np.searchsorted(kinks, step, side)) for side in ("left", "right"))
        if until < len(kinks):
            known[row, max(kinks[until] - REACH - start, 0) :] = False
        if before:
            known[row, : max(kinks[before - 1] + 1 + REACH + 1 - start, 0)] = False
    return windows._replace(known=known)
