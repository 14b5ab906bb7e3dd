"""Impacts looked at again by the fitted model, and the model fitted again, until neither changes."""

from collections.abc import Callable

from carom.estimation.detection.reassignment_short import changes
from carom.estimation.problem import Problem
from carom.estimation.rounds import pick, stack
from carom.estimation.solver.iteration import Estimate, Outcome
from carom.estimation.solver.segments import Layout

Look = Callable[[Problem, Estimate], tuple[Problem, Estimate]]
"""The problem with its impacts where the fitted model finds them, and an estimate to go on from."""


def look_until_settled(
    look: Look,
    run: Callable[..., Outcome],
    problems: list[Problem],
    outcome: Outcome,
    places: Layout,
    *,
    times: int,
) -> tuple[list[Problem], Outcome]:
    """Impacts anew and the model anew, until no impact of a run that counts changes, or `times` times."""
    for _ in range(times):
        found = [look(problem, pick(outcome, index).estimate) for index, problem in enumerate(problems)]
        before, problems = problems, [problem for problem, _ in found]
        if not any(changes(old, new) for old, new in zip(before, problems, strict=True)):
            break
        outcome = run(stack([estimate for _, estimate in found]), problems, places)
    return problems, outcome
