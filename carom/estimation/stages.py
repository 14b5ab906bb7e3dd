"""Our recipe: states, contacts and parameters estimated together from noisy recordings (multiple shooting).

1. Impacts are detected in the data, and prescribed.
2. Start states of short segments, network weights and physical parameters are estimated together by least
   squares; the segments then grow to whole runs. With the impacts prescribed the problem is smooth.
3. Nothing is prescribed any more: the gap alone decides, as it will in forecasts, and the fit is polished.

Noise and the smoothness of the force are estimated along, so that nothing is left to tune from one system to
the next.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from carom.compilation import device_memory, full_precision
from carom.data import Recording
from carom.data.recording import require_moderate
from carom.errors import InputError
from carom.estimation.detection.reassignment import (
    reassign_short_runs,
    reassign_steps,
    reassign_until_converged,
)
from carom.estimation.detection.touch_sensor import PERFECT
from carom.estimation.parameters.free import Layout
from carom.estimation.problem import Problem, mechanism_to_fit, require_scene, short, stepper_for
from carom.estimation.result import Fit, describe, retracer
from carom.estimation.rounds import LOOSE, Rounds, by_start, joined, pick, with_local
from carom.estimation.settings import Settings
from carom.estimation.solver.iteration import Estimate, Outcome
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import Partition, partition, spread_out
from carom.mechanics import Scene
from carom.models import Mechanism
from carom.storage.checkpoints import Progress
from carom.types import State

FLAT, STRAIGHT = 1e-2, 1e-2
"""Precisions of the priors that the force is uniform, and that it is linear, before anything is known."""
SCATTER = 0.2
"""Standard deviation of restitutions from run to run, before anything is known."""
STEP_REASSIGNMENTS, SHORT_REASSIGNMENTS = 4, 8
"""Times at most that impacts are assigned to likelier steps, or those of short runs anew."""
COPIES, MOST_MEMORY = 16, 0.5
"""What a fit takes of long recordings, over the derivatives of all segments by their own parameters (5 of a
million samples, by measurement); and the share of memory that it may take."""
LONG, PART = 512, 128
"""Short segments from which on a recording is long, and those of it on which random starts are compared."""


def fit_recording(
    recording: Recording,
    settings: Settings | None = None,
    *,
    starts: Sequence[State] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> Fit:
    """Fit a mechanism to a recording: states, contacts, noise, forces and physical parameters together.

    Arguments:
        recording: what was measured; its scene names the candidate contacts.
        settings: which parameters to estimate, and how touch readings are taken.
        starts: start states of the runs where they are known exactly, such as a release from rest.
        seed: of the random initial weights.
        progress: called with the estimated share of the work that is done.
        checkpoints: a folder where every round is kept; the same fit continues from there.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.8)
        >>> recording = carom.simulate(ball, steps=150, step_size=0.02, noise=0.05, seed=1)
        >>> fit = fit_recording(recording, Settings(learn=("restitution", "surfaces")))
        >>> restitution = fit.parameters[0]
        >>> abs(restitution.value - 0.8) < 0.02
        True
    """
    known = None if starts is None else [starts]
    return fit_recordings(
        [recording], settings, starts=known, seeds=[seed], progress=progress, checkpoints=checkpoints
    )[0]


@full_precision()
def fit_recordings(
    recordings: Sequence[Recording],
    settings: Settings | None = None,
    *,
    starts: Sequence[Sequence[State]] | None = None,
    seeds: Sequence[int],
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> list[Fit]:
    """Fit several recordings of one shape together, each as if it were alone."""
    settings = settings or Settings()
    if settings.potential == "none":  # no weights to begin from
        settings = replace(settings, starts=1)
    scene, template = require_fittable(recordings, settings)
    # The CD-Lagrange step relates velocities to one step size; the exact one takes steps as they come.
    even = all(recording.even for recording in recordings)
    if settings.stepper == "cd_lagrange" and not even:
        raise InputError('The CD-Lagrange step needs a constant time between samples; use stepper="auto".')
    done = Progress(checkpoints, recordings, settings, template, starts, tuple(seeds), report=progress)
    first = "constraint_exact" if settings.stepper == "auto" else settings.stepper
    with jax.enable_x64(True):
        fits = [_fit_by(first, recordings, scene, settings, starts, seeds, done)]
        # Velocities that are declared to lie between the samples come from such a scheme.
        staggered = scene.velocity_grid == "sample"
        # Runs that single impacts fill tell little of where between samples velocities lie.
        doubtful = not all(short(recording) for recording in recordings) and any(map(_doubtful, fits[0]))
        if settings.stepper == "auto" and even and (staggered or doubtful):
            fits.append(_fit_by("cd_lagrange", recordings, scene, settings, starts, seeds, done))
    seconds = done.seconds / len(recordings)
    best = [max(options, key=_likelihood) for options in zip(*fits, strict=True)]
    return [replace(fit, seconds=seconds) for fit in best]


def require_fittable(recordings: Sequence[Recording], settings: Settings) -> tuple[Scene, Mechanism]:
    """Refuse what these settings cannot be used for, before any work; the scene, and what would be fitted."""
    scene = require_scene(recordings, settings)
    for recording in recordings:
        require_moderate(recording)
    stepper = stepper_for(scene, settings, "constraint_exact")
    return scene, mechanism_to_fit(scene, recordings[0].step_size, settings, stepper)


def _doubtful(fit: Fit) -> bool:
    """Whether the other scheme deserves a try: physical data leave the exact step nothing to explain."""
    diagnostics = fit.diagnostics
    return fit.failed or not fit.by_gap or diagnostics.excess > 1.15 or diagnostics.near_impacts > 1.6


def _likelihood(fit: Fit) -> float:
    return fit.log_likelihood if np.isfinite(fit.log_likelihood) else -np.inf


def _fit_by(
    stepper: str,
    recordings: Sequence[Recording],
    scene: Scene,
    settings: Settings,
    starts: Sequence[Sequence[State]] | None,
    seeds: Sequence[int],
    done: Progress,
) -> list[Fit]:
    """The stages of a fit by one scheme."""
    template = mechanism_to_fit(
        scene, recordings[0].step_size, settings, stepper_for(scene, settings, stepper)
    )
    sensor = {"observed": PERFECT, "inferred": None, "imperfect": settings.sensor}[settings.touch]
    problems = [
        Problem.of(recording, template, settings, sensor, None if starts is None else starts[index])
        for index, recording in enumerate(recordings)
    ]
    exact = stepper != "cd_lagrange"
    partitions = _partitions(recordings, settings)
    _require_memory(len(problems), len(partitions[0].run), problems[0].parameters.layout)
    rounds = Rounds(settings, done, [])
    outcome = _first_stage(rounds, problems, partitions, seeds, by_gap_later=exact and not problems[0].short)
    if not exact:
        reassign, times = reassign_steps, STEP_REASSIGNMENTS
    else:
        reassign, times = reassign_short_runs, SHORT_REASSIGNMENTS if problems[0].short else 0
    problems, outcome = reassign_until_converged(
        partial(reassign, hinge=LOOSE), rounds, problems, outcome, partitions[0], times=times
    )
    places = partitions[0]
    for coarser in partitions[1:]:
        longer = joined(outcome.estimate, places, coarser)
        places = coarser
        outcome = rounds.run(longer, problems, places, tighten=coarser is partitions[-1])
    freed = outcome
    if exact and not problems[0].short:
        freed = rounds.run(outcome.estimate, problems, places, by_gap=True)
    return [
        describe(
            problem,
            places,
            pick(outcome, index),
            pick(freed, index),
            history=tuple(float(values[index]) for values in rounds.history),
        )
        for index, problem in enumerate(problems)
    ]


def _partitions(recordings: Sequence[Recording], settings: Settings) -> list[Partition]:
    """Short segments, then ever longer ones."""
    longest = max(len(run) for recording in recordings for run in recording.runs)
    horizons: list[int | None] = [h for h in settings.horizons if h < longest]
    horizons.append(None if longest <= settings.longest else settings.longest)
    return [partition(recordings[0], horizon) for horizon in horizons]


def _first_stage(
    rounds: Rounds,
    problems: Sequence[Problem],
    partitions: Sequence[Partition],
    seeds: Sequence[int],
    *,
    by_gap_later: bool,
) -> Outcome:
    """Short segments from several random starts, of which the likeliest is kept; the other stages are
    compiled."""
    starts, places = rounds.settings.starts, partitions[0]
    layout = problems[0].parameters.layout
    guesses = [
        problem.random_start(np.random.default_rng([seed, number]))
        for problem, seed in zip(problems, seeds, strict=True)
        for number in range(starts)
    ]
    # Every start of every recording is one problem; they run as one batch.
    batch = [problem for problem in problems for _ in range(starts)]
    long = len(places.run) > LONG and not problems[0].short
    first_places = spread_out(places, PART) if long else places
    estimate = Estimate(
        Unknowns(np.stack(guesses), np.stack([problem.first_states(first_places) for problem in batch])),
        np.stack([problem.noise for problem in batch]),
        np.tile([FLAT, STRAIGHT], (len(batch), 1)),
        np.full((len(batch), layout.pooled), SCATTER),
    )
    local = np.stack([problem.first_states(places) for problem in problems])
    first = with_local(pick(estimate, np.arange(len(problems)) * starts), local)
    rounds.progress.expect(len(partitions) + long + by_gap_later)
    # All stages are compiled from now on, in their order.
    rounds.prepare(estimate, batch, first_places)
    if long:
        rounds.prepare(first, problems, places)
    for coarser in partitions[1:]:
        rounds.prepare(joined(first, places, coarser), problems, coarser)
    whole = partitions[-1]
    segments = problems[0].segments(whole, by_gap=False)
    own = pick(joined(first, places, whole), 0).unknowns
    most = problems[0].most if problems[0].short else None
    parameters = problems[0].parameters
    retracer(layout, most).prepare(
        parameters.template, parameters.maps, own.shared, own.local, segments.duration, segments.modes
    )
    outcome = rounds.run(estimate, batch, first_places, starts=starts)
    picked = np.argmax(by_start(outcome.log_likelihood, starts), axis=1)
    chosen = np.arange(len(problems)) * starts + picked
    outcome = pick(outcome, chosen)
    rounds.history[:] = [values[chosen] for values in rounds.history]
    return rounds.run(with_local(outcome.estimate, local), problems, places) if long else outcome


def _require_memory(problems: int, segments: int, layout: Layout) -> None:
    """Refuse what would run out of memory: of every segment all derivatives by its own parameters are
    kept."""
    shared, local = layout.size, layout.local_size
    needed = 8 * COPIES * problems * segments * (local + 1) * (local + shared)
    if needed > MOST_MEMORY * device_memory():
        raise InputError(
            f"Our recipe would need {needed / 1e9:.1f} GB for a recording as long as this: fit a part of it, "
            "of single collisions what is around them (around), or use the paper's recipe."
        )
