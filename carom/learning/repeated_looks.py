"""Impacts looked at again by the fitted model, and the model fitted again, until neither changes."""

from collections.abc import Callable

import numpy as np

from carom.learning.estimation import Outcome, SharedShape
from carom.learning.problem import Problem
from carom.learning.reconsidering import changes, reconsider
from carom.learning.rescheduling import reschedule
from carom.learning.rounds import LOOSE, pick, stack
from carom.learning.segments import Layout
from carom.models import ImpactNetwork

RESCHEDULES = 4
"""Times at most that impacts are moved to likelier steps."""
RECONSIDERATIONS = 8
"""Times at most that impacts of short runs are looked at anew."""


def reschedule_until_settled(
    run: Callable[..., Outcome],
    problems: list[Problem],
    template: ImpactNetwork,
    unravel: SharedShape,
    outcome: Outcome,
    places: Layout,
) -> tuple[list[Problem], Outcome]:
    """Impacts at the steps that the model finds likeliest, and the model anew, until none moves."""
    for _ in range(RESCHEDULES):
        moved = [
            reschedule(problem, template, unravel, pick(outcome, index).estimate, LOOSE)
            for index, problem in enumerate(problems)
        ]
        settled = all(
            np.array_equal(old.chosen, new.chosen)
            for before, after in zip(problems, moved, strict=True)
            for old, new in zip(before.impacts, after.impacts, strict=True)
        )
        problems = moved
        if settled:
            break
        outcome = run(outcome.estimate, problems, places)
    return problems, outcome


def reconsider_until_settled(
    run: Callable[..., Outcome],
    problems: list[Problem],
    template: ImpactNetwork,
    unravel: SharedShape,
    outcome: Outcome,
    places: Layout,
) -> tuple[list[Problem], Outcome]:
    """Impacts of short runs in doubt anew, and the model anew, until none changes."""
    for _ in range(RECONSIDERATIONS):
        before = problems
        found = [
            reconsider(problem, template, unravel, pick(outcome, index).estimate, LOOSE)
            for index, problem in enumerate(problems)
        ]
        problems = [problem for problem, _ in found]
        if not any(changes(old, new) for old, new in zip(before, problems, strict=True)):
            break
        outcome = run(stack([estimate for _, estimate in found]), problems, places)
    return problems, outcome
