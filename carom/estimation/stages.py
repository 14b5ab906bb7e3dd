"""The recipe `carom`: states, contacts and parameters estimated together from noisy recordings.

1. Impacts are found in the data (`contacts`), and scheduled.
2. Start states of short segments, network weights and physical parameters are estimated together by least
   squares; the segments then grow to whole runs. With the impacts scheduled the problem is smooth.
3. The schedule is dropped: the gap alone decides, as it will in forecasts, and the fit is polished.

Noise and the smoothness of the force are estimated along (`estimation`), so that nothing is left to tune from
one system to the next.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np

from carom.compilation import device_memory, full_precision
from carom.data import Recording
from carom.data.recording import require_moderate
from carom.errors import InputError, require_choice
from carom.estimation.detection.reassignment import look_until_settled
from carom.estimation.detection.reassignment_short import reconsider
from carom.estimation.detection.reassignment_steps import reschedule
from carom.estimation.detection.touch_sensor import PERFECT, Touch
from carom.estimation.parameters.per_run import RunShape
from carom.estimation.parameters.unknowns import initial_shared
from carom.estimation.problem import Problem, short
from carom.estimation.result import LatentFit, describe, retracer
from carom.estimation.rounds import (
    LOOSE,
    by_start,
    joined,
    most_decided,
    pick,
    round_inputs,
    run_rounds,
    with_local,
)
from carom.estimation.settings import LatentSettings
from carom.estimation.solver.iteration import Estimate, SharedShape, improver
from carom.estimation.solver.normal_equations import Unknowns
from carom.estimation.solver.segments import layout, spread_out
from carom.mechanics import Scene
from carom.models import ImpactNetwork
from carom.models.impact_network import ImpactScheme
from carom.storage.checkpoints import Progress
from carom.types import State

FLAT, STRAIGHT = 1e-2, 1e-2
"""Precisions of the priors on the force before anything is known."""
SCATTER = 0.2
"""How widely restitutions scatter from run to run, before anything is known."""
RESCHEDULES, RECONSIDERATIONS = 4, 8
"""Times at most that impacts are moved to likelier steps, or those of short runs are looked at anew."""
COPIES, MOST_MEMORY = 16, 0.5
"""What a fit takes of long recordings, over the derivatives of all segments by their own unknowns (5 of a
million samples, by measurement); and the share of memory that it may take."""
LONG, PART = 512, 128
"""Short segments from which on a recording is long, and those of it on which random starts are compared."""


def fit_latent(
    recording: Recording,
    settings: LatentSettings | None = None,
    *,
    starts: Sequence[State] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> LatentFit:
    """Fit a model to a recording: states, contacts, noise, the potential and physical parameters together.

    Arguments:
        recording: what was measured; its scene names the candidate contacts.
        settings: which parameters to estimate, and how touch readings are taken.
        starts: start states of the runs where they are known exactly, such as a release from rest.
        seed: of the random initial weights.
        progress: called with the share of the work that seems done.
        checkpoints: a folder where every round is kept; the same fit continues from there.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.8)
        >>> recording = carom.simulate(ball, steps=150, step_size=0.02, noise=0.05, seed=1)
        >>> fit = fit_latent(recording, LatentSettings(learned=carom.Learned(restitution="constant")))
        >>> restitution = fit.parameters[0]
        >>> abs(restitution.value - 0.8) < 0.02
        True
    """
    known = None if starts is None else [starts]
    return fit_latent_many(
        [recording], settings, starts=known, seeds=[seed], progress=progress, checkpoints=checkpoints
    )[0]


@full_precision()
def fit_latent_many(
    recordings: Sequence[Recording],
    settings: LatentSettings | None = None,
    *,
    starts: Sequence[Sequence[State]] | None = None,
    seeds: Sequence[int],
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> list[LatentFit]:
    """Fit several recordings of one shape together, each as if it were alone."""
    settings = settings or LatentSettings()
    if settings.field == "none":  # no weights to begin from
        settings = replace(settings, hidden=1, starts=1)
    scene = require_fittable(recordings, settings)
    # The CD-Lagrange step relates velocities to one step size; the exact one takes steps as they come.
    even = all(recording.even for recording in recordings)
    if settings.scheme == "cd_lagrange" and not even:
        raise InputError('The CD-Lagrange step needs a constant time between samples; use scheme="auto".')
    done = Progress(checkpoints, recordings, settings, starts, tuple(seeds), report=progress)
    first: ImpactScheme = "constraint_exact" if settings.scheme == "auto" else settings.scheme
    with jax.enable_x64(True):
        fits = [_fit_scheme(recordings, scene, settings, starts, seeds, first, done)]
        # Velocities that are declared to lie between the samples come from such a scheme.
        staggered = scene.velocity_grid == "sample"
        # Runs that single impacts fill tell little of where between samples velocities lie.
        doubtful = not all(short(recording) for recording in recordings) and any(map(_doubtful, fits[0]))
        if settings.scheme == "auto" and even and (staggered or doubtful):
            fits.append(_fit_scheme(recordings, scene, settings, starts, seeds, "cd_lagrange", done))
    seconds = done.seconds / len(recordings)
    best = [max(options, key=_trust) for options in zip(*fits, strict=True)]
    return [replace(fit, seconds=seconds) for fit in best]


def require_fittable(recordings: Sequence[Recording], settings: LatentSettings) -> Scene:
    """Refuse what these settings cannot be used for, before any work; the scene that the recordings share."""
    require_choice("touch", settings.touch, Touch)
    scene = recordings[0].scene
    if scene is None:
        raise InputError("This recording has no scene: read it with a system file, or use `with_scene`.")
    if settings.touch != "inferred" and not recordings[0].has_touch:
        raise InputError(
            f"Touch is to be {settings.touch}, but the recording has no touch readings; leave that out: "
            "contacts are then inferred from the motion."
        )
    for recording in recordings:
        require_moderate(recording)
    stages = (*settings.horizons, settings.longest)
    if any(longer % shorter for shorter, longer in pairwise(stages)):
        raise InputError(f"Every horizon must be a multiple of the one before, unlike {stages}.")
    return scene


def _doubtful(fit: LatentFit) -> bool:
    """Whether the other scheme deserves a try: physical data leave the exact step nothing to explain."""
    return fit.failed or not fit.free or fit.misfit.excess > 1.15 or fit.misfit.near_impacts > 1.6


def _trust(fit: LatentFit) -> float:
    return fit.log_likelihood if np.isfinite(fit.log_likelihood) else -np.inf


def _fit_scheme(
    recordings: Sequence[Recording],
    scene: Scene,
    settings: LatentSettings,
    starts: Sequence[Sequence[State]] | None,
    seeds: Sequence[int],
    scheme: ImpactScheme,
    done: Progress,
) -> list[LatentFit]:
    learned = settings.learned
    template = ImpactNetwork(
        scene,
        recordings[0].step_size,
        hidden=settings.hidden,
        scheme=scheme,
        field=settings.field,
        restitution_terms=learned.restitution_terms,
        detection=settings.detection,
        rough=learned.friction,
        tilted=learned.normals,
    )
    sensor = {"observed": PERFECT, "inferred": None, "imperfect": settings.sensor}[settings.touch]
    problems = [
        Problem.of(recording, template, settings, sensor, None if starts is None else starts[index])
        for index, recording in enumerate(recordings)
    ]
    own = RunShape.of(scene, learned)
    guesses = [
        initial_shared(template, learned, **problem.guess, generator=np.random.default_rng([seed, number]))
        for problem, seed in zip(problems, seeds, strict=True)
        for number in range(settings.starts)
    ]
    unravel = SharedShape(tuple(part.shape for part in guesses[0]))
    longest = max(len(run) for recording in recordings for run in recording.runs)
    horizons: list[int | None] = [h for h in settings.horizons if h < longest]
    horizons.append(None if longest <= settings.longest else settings.longest)
    places, *later = [layout(recordings[0], horizon) for horizon in horizons]

    _require_memory(len(problems), len(places.run), unravel, own)
    # Every start of every recording is one problem; they run as one batch.
    batch = [problem for problem in problems for _ in range(settings.starts)]
    local = np.stack([problem.first_states(places) for problem in problems])
    long = len(places.run) > LONG and not problems[0].short
    first_places = spread_out(places, PART) if long else places
    estimate = Estimate(
        Unknowns(
            np.stack([np.concatenate([np.ravel(part) for part in guess]) for guess in guesses]),
            np.stack([problem.first_states(first_places) for problem in batch]),
        ),
        np.stack([problem.noise for problem in batch]),
        np.tile([FLAT, STRAIGHT], (len(batch), 1)),
        np.full((len(batch), own.laws), SCATTER),
    )
    history: list[np.ndarray] = []
    improvers = partial(improver, unravel, own)
    improve = improvers(most_decided(problems, template))
    first = with_local(pick(estimate, np.arange(len(problems)) * settings.starts), local)
    done.expect(len(horizons) + long + (scheme != "cd_lagrange" and not problems[0].short))
    # All stages are compiled from now on, in their order.
    improve.prepare(template, LOOSE, *round_inputs(estimate, batch, first_places))
    if long:
        improve.prepare(template, LOOSE, *round_inputs(first, problems, places))
    for coarser in later:
        improve.prepare(
            template,
            LOOSE,
            *round_inputs(joined(first, places, coarser), problems, coarser),
        )
    whole = (later or [places])[-1]
    own_unknowns = pick(joined(first, places, whole), 0).unknowns.local
    segments = problems[0].segments(whole, free=False)
    most = problems[0].most(template) if problems[0].short else None
    retracer(own, most).prepare(template, own_unknowns, segments.duration, segments.schedule)
    run = partial(run_rounds, template, improvers, done, history)
    outcome = run(estimate, batch, first_places, starts=settings.starts)
    picked = np.argmax(by_start(outcome.log_likelihood, settings.starts), axis=1)
    chosen = np.arange(len(problems)) * settings.starts + picked
    outcome = pick(outcome, chosen)
    history[:] = [values[chosen] for values in history]
    if long:
        outcome = run(with_local(outcome.estimate, local), problems, places)
    look, times = None, 0
    if scheme == "cd_lagrange":
        look, times = reschedule, RESCHEDULES
    elif problems[0].short:
        look, times = reconsider, RECONSIDERATIONS
    if look is not None:
        again = partial(look, template=template, unravel=unravel, hinge=LOOSE)
        problems, outcome = look_until_settled(again, run, problems, outcome, places, times=times)
    for coarser in later:
        longer = joined(outcome.estimate, places, coarser)
        places = coarser
        outcome = run(longer, problems, places, tighten=coarser is later[-1])
    freed = outcome
    if scheme != "cd_lagrange" and not problems[0].short:
        freed = run(outcome.estimate, problems, places, free=True)
    return [
        describe(
            problem,
            template,
            unravel,
            own,
            settings,
            places,
            pick(outcome, index),
            pick(freed, index),
            history=tuple(float(values[index]) for values in history),
        )
        for index, problem in enumerate(problems)
    ]


def _require_memory(problems: int, segments: int, unravel: SharedShape, own: RunShape) -> None:
    """Refuse what would run out of memory: of every segment all derivatives by its own unknowns are kept."""
    shared, local = unravel.size, own.state + own.gaps + own.laws + own.masses
    needed = 8 * COPIES * problems * segments * (local + 1) * (local + shared)
    if needed > MOST_MEMORY * device_memory():
        raise InputError(
            f"The recipe carom would need {needed / 1e9:.1f} GB for a recording as long as this: fit a part "
            "of it, of single collisions what is around them (--around), or use the paper's recipe."
        )
