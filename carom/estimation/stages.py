"""Our recipe: states, contacts and parameters estimated together from noisy recordings (multiple shooting).

1. Impacts are detected in the data, and prescribed.
2. Start states of short segments, network weights and physical parameters are estimated together by least
   squares; the segments then grow to whole runs. With the impacts prescribed the problem is smooth.
3. The prescription is dropped: contacts follow from the gap, as in forecasts, and the fit is refined.

Noise and the smoothness of the force are estimated as well, so that no setting has to be tuned per system.
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
from carom.estimation.result import Fit, describe, retraced, retracer
from carom.estimation.rounds import INITIAL_HINGE, Rounds, by_start, coarsened, pick, with_local
from carom.estimation.screening import poor_segments, retained, without_segments
from carom.estimation.settings import AUTO, Settings
from carom.estimation.solver.iteration import Estimate, Outcome
from carom.estimation.solver.normal_equations import Parameters
from carom.estimation.solver.segments import Partition, around_impacts, impacts_of, partition, subset
from carom.estimation.terms import choose_terms
from carom.estimation.uncertainty.calibration import calibrated
from carom.mechanics import Scene
from carom.models import Mechanism
from carom.storage.checkpoints import Progress
from carom.types import State

FLAT, STRAIGHT = 1e3, 1e3
"""Initial precisions of the priors that the force is uniform, and that it is linear."""
SCATTER = 0.2
"""Initial standard deviations of pooled deviations, relative to their scales."""
STEP_REASSIGNMENTS, SHORT_REASSIGNMENTS = 4, 8
"""Greatest numbers of passes of impact reassignment, in long and in short runs."""
COPIES, MAX_MEMORY = 16, 0.5
"""Peak memory of a fit in multiples of the local Jacobian blocks of all segments (5 were measured with a
million samples), and the fraction of the device memory that it may use."""
SIDES = 20
"""Samples of a segment, on both sides of the mask of an impact, from which on it tells the motion there."""
GROWN = 3.0
"""Growth of the noise from one stage to the next from which on longer segments are not explained."""
LONG, PART = 512, 128
"""Number of short segments above which a recording is long, and of those on which random starts of a long
recording are compared."""


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
        recording: the measurements; its scene names the candidate contacts.
        settings: which parameters to estimate, and how touch readings are interpreted.
        starts: start states of the runs if they are known exactly, such as a release from rest.
        seed: of the random initial weights.
        progress: called with the estimated fraction of the work that is done.
        checkpoints: a folder in which every round is saved; the same fit resumes from there.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.8)
        >>> recording = carom.simulate(ball, steps=250, step_size=0.02, noise=0.05, seed=1)
        >>> small = Settings(learn=("restitution", "surfaces"), hidden=8, starts=1, horizons=(100,))
        >>> fit = fit_recording(recording, small)
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
    """Fit several recordings of one shape as a batch; each result is the same as from a fit of its own."""
    settings = settings or Settings()
    require_scene(recordings, settings)
    report = progress or (lambda share: None)
    if AUTO in settings.learn:
        report(0.0)
        settings = choose_terms(recordings[0], settings)
    if settings.potential == "none":  # without weights all starts are the same
        settings = replace(settings, starts=1)
    scene, template = require_fittable(recordings, settings)
    # The velocities of the CD-Lagrange scheme depend on the step size; those of the exact step do not.
    even = all(recording.even for recording in recordings)
    if settings.stepper == "cd_lagrange" and not even:
        raise InputError('The CD-Lagrange step needs a constant time between samples; use stepper="auto".')
    lasting = "duration" in settings.learn
    if settings.stepper == "cd_lagrange" and lasting:
        raise InputError(
            'The contacts of the CD-Lagrange step are instantaneous; use stepper="auto" for duration.'
        )
    report(0.0)  # the first round may take a while
    done = Progress(checkpoints, recordings, settings, template, starts, tuple(seeds), report=progress)
    first = "constraint_exact" if settings.stepper == "auto" else settings.stepper
    with jax.enable_x64(True):
        fits = [_fit_by(first, recordings, scene, settings, starts, seeds, done)]
        # Velocities declared to lie between the samples come from a scheme such as CD-Lagrange.
        staggered = scene.velocity_grid == "sample"
        # Positions alone, and short runs around single impacts, hardly tell the velocity grids apart.
        told = any(one.has_velocity and not short(one) for one in recordings)
        poor = told and any(map(_poorly_explained, fits[0]))
        if settings.stepper == "auto" and even and not lasting and (staggered or poor):
            fits.append(_fit_by("cd_lagrange", recordings, scene, settings, starts, seeds, done))
    seconds = done.seconds / len(recordings)
    best = [max(options, key=_likelihood) for options in zip(*fits, strict=True)]
    return [
        calibrated(replace(fit, seconds=seconds), recording)
        for fit, recording in zip(best, recordings, strict=True)
    ]


def require_fittable(recordings: Sequence[Recording], settings: Settings) -> tuple[Scene, Mechanism]:
    """Check recordings and settings before any work; returns the scene and the mechanism to be fitted."""
    scene = require_scene(recordings, settings)
    for recording in recordings:
        require_moderate(recording)
    stepper = stepper_for(scene, settings, "constraint_exact")
    return scene, mechanism_to_fit(scene, recordings[0].step_size, settings, stepper)


def _poorly_explained(fit: Fit) -> bool:
    """Whether to try the other scheme too: the exact step should explain physical data up to the noise."""
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
    """All stages of a fit with one scheme."""
    template = mechanism_to_fit(
        scene, recordings[0].step_size, settings, stepper_for(scene, settings, stepper)
    )
    sensor = {"observed": PERFECT, "inferred": None, "imperfect": settings.sensor}[settings.touch]
    problems = [
        Problem.of(recording, template, settings, sensor, None if starts is None else starts[index])
        for index, recording in enumerate(recordings)
    ]
    exact = stepper != "cd_lagrange"
    if len({(*(one.pieces for one in problem.impacts), problem.free.layout) for problem in problems}) > 1:
        # Runs that fall into different pieces have segments of different shapes, and cannot be a batch.
        return _each(stepper, recordings, scene, settings, starts, seeds, done)
    horizons = _horizons(problems[0], settings)
    partitions = [partition(problems[0].impacts, horizon) for horizon in horizons]
    _require_memory(len(problems), len(partitions[0].run), problems[0].free.layout)
    rounds = Rounds(settings, done, [])
    outcome = _first_stage(rounds, problems, partitions, seeds, by_gap_later=exact and not problems[0].short)
    if not exact:
        reassign, passes = reassign_steps, STEP_REASSIGNMENTS
    else:
        reassign, passes = reassign_short_runs, SHORT_REASSIGNMENTS if problems[0].short else 0
    problems, outcome = reassign_until_converged(
        partial(reassign, hinge=INITIAL_HINGE), rounds, problems, outcome, partitions[0], passes=passes
    )
    for stage in range(len(partitions) - 1):
        broken = [
            poor_segments(problem, pick(outcome, row), partitions[stage])
            for row, problem in enumerate(problems)
        ]
        if exact and any(map(len, broken)) and not problems[0].short:
            if len(problems) > 1:  # they no longer have segments of the same shapes
                return _each(stepper, recordings, scene, settings, starts, seeds, done)
            problems = [without_segments(problems[0], partitions[stage], broken[0])]
            before = partitions[stage]
            partitions = [partition(problems[0].impacts, horizon) for horizon in horizons]
            estimate = retained(outcome.estimate, problems[0], before, partitions[stage])
            outcome = outcome._replace(estimate=estimate)
        fine, coarse = partitions[stage : stage + 2]
        longer = coarsened(outcome.estimate, problems, fine, coarse)
        grown = rounds.run(longer, problems, coarse, tighten=coarse is partitions[-1])
        # Shorter segments than that tell no impact from its mask.
        told = fine.length >= SIDES + 2 * max(found.mask for found in problems[0].impacts)
        if exact and told and not problems[0].short and not problems[0].free.layout.weights:
            fails = np.any(grown.estimate.noise[:, 0] > GROWN * np.asarray(outcome.estimate.noise)[:, 0])
            if fails and len(problems) > 1:  # others may fit
                return _each(stepper, recordings, scene, settings, starts, seeds, done)
            if fails:
                partitions = [around_impacts(problems[0].impacts, fine.length)]
                local = problems[0].first_states(partitions[0])[None]
                outcome = rounds.run(
                    with_local(outcome.estimate, local), problems, partitions[0], tighten=True
                )
                break
        outcome = grown
    unprescribed = outcome
    if exact and not problems[0].short:
        unprescribed = rounds.run(outcome.estimate, problems, partitions[-1], by_gap=True)
    return [
        describe(
            problem,
            partitions[-1],
            pick(outcome, index),
            pick(unprescribed, index),
            history=tuple(float(values[index]) for values in rounds.history),
            whole=len(partitions) == len(horizons) or len(horizons) == 1,
        )
        for index, problem in enumerate(problems)
    ]


def _each(
    stepper: str,
    recordings: Sequence[Recording],
    scene: Scene,
    settings: Settings,
    starts: Sequence[Sequence[State]] | None,
    seeds: Sequence[int],
    done: Progress,
) -> list[Fit]:
    """Fits of recordings that cannot be a batch, one after the other."""
    return [
        _fit_by(
            stepper,
            recordings[index : index + 1],
            scene,
            settings,
            None if starts is None else starts[index : index + 1],
            seeds[index : index + 1],
            done,
        )[0]
        for index in range(len(recordings))
    ]


def _horizons(problem: Problem, settings: Settings) -> list[int | None]:
    """Greatest numbers of samples per segment, one per stage; None for whole pieces."""
    impacts, deviations = problem.impacts, max(problem.free.layout.impacts[:1], default=np.inf)
    longest = max(end - start for found in impacts for start, end in found.pieces)
    horizons: list[int | None] = [h for h in settings.horizons if h < longest]
    horizons.append(None if longest <= settings.longest else settings.longest)
    # As long as every impact of a segment has a deviation of its own.
    most = [max(map(len, impacts_of(problem.prescriptions, partition(impacts, h)))) for h in horizons]
    return [h for h, count in zip(horizons, most, strict=True) if count <= deviations]


def _first_stage(
    rounds: Rounds,
    problems: Sequence[Problem],
    partitions: Sequence[Partition],
    seeds: Sequence[int],
    *,
    by_gap_later: bool,
) -> Outcome:
    """Fit short segments from several random starts and keep the likeliest; meanwhile compile all stages."""
    starts, fine, free = rounds.settings.starts, partitions[0], problems[0].free
    guesses = [
        problem.random_start(np.random.default_rng([seed, number]))
        for problem, seed in zip(problems, seeds, strict=True)
        for number in range(starts)
    ]
    # Every start of every recording is one problem of the batch.
    batch = [problem for problem in problems for _ in range(starts)]
    # The starts of a long recording are compared on a part of its segments, for speed.
    long = len(fine.run) > LONG and not problems[0].short
    compared = subset(fine, PART) if long else fine
    estimate = Estimate(
        Parameters(np.stack(guesses), np.stack([problem.first_states(compared) for problem in batch])),
        np.stack([problem.noise for problem in batch]),
        np.tile([FLAT, STRAIGHT], (len(batch), 1)),
        SCATTER * np.stack([problem.priors.spread for problem in batch]),
        np.ones((len(batch), len(compared.run), 2)),
    )
    local = np.stack([problem.first_states(fine) for problem in problems])
    first = with_local(pick(estimate, np.arange(len(problems)) * starts), local)
    rounds.progress.expect(len(partitions) + long + by_gap_later)
    # Compilation runs in the background, stage by stage, while the first stage is being computed.
    rounds.prepare(estimate, batch, compared)
    if long:
        rounds.prepare(first, problems, fine)
    for coarse in partitions[1:]:
        rounds.prepare(coarsened(first, problems, fine, coarse), problems, coarse)
    whole = partitions[-1]
    values = pick(coarsened(first, problems, fine, whole), 0).parameters
    if by_gap_later:
        rounds.prepare(coarsened(first, problems, fine, whole), problems, whole, by_gap=True)
    retracer(free.layout, problems[0].most if problems[0].short else None).prepare(
        *retraced(problems[0], values, problems[0].segments(whole, by_gap=False))
    )
    outcome = rounds.run(estimate, batch, compared, starts=starts)
    best = np.argmax(by_start(outcome.log_likelihood, starts), axis=1)
    chosen = np.arange(len(problems)) * starts + best
    outcome = pick(outcome, chosen)
    rounds.history[:] = [values[chosen] for values in rounds.history]
    return rounds.run(with_local(outcome.estimate, local), problems, fine) if long else outcome


def _require_memory(problems: int, segments: int, layout: Layout) -> None:
    """Raise an error instead of running out of memory: the local Jacobian blocks of all segments are kept."""
    shared, local = layout.size, layout.local_size
    needed = 8 * COPIES * problems * segments * (local + 1) * (local + shared)
    if needed > MAX_MEMORY * device_memory():
        raise InputError(
            f"Our recipe would need {needed / 1e9:.1f} GB for a recording of this length: fit a part of it, "
            "trim runs of single collisions to their surroundings (around), or use the paper's recipe."
        )
