"""The recipe `carom`: states, contacts and parameters estimated together from noisy recordings.

1. Impacts are found in the data (`contacts`), and scheduled.
2. Start states of short segments, network weights and physical parameters are estimated together by least
   squares; the segments then grow to whole runs. With the impacts scheduled the problem is smooth.
3. The schedule is dropped: the gap alone decides, as it will in forecasts, and the fit is polished.

Noise and the strength of the prior on the weights are estimated along (MacKay's evidence procedure), so that
nothing is left to tune from one system to the next.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from carom.data import Recording
from carom.errors import InputError, require_choice
from carom.integrators import SCHEDULED
from carom.learning.contacts import PERFECT, Impacts, Touch, TouchSensor, find_impacts
from carom.learning.diagnosis import Misfit, diagnose
from carom.learning.least_squares import (
    Bounds,
    Normal,
    Prior,
    Unknowns,
    minimise,
    shared_covariance,
)
from carom.learning.parameters import Parameter, describe_parameters
from carom.learning.segments import Layout, Plan, Segments, cut, first_states, layout, plans
from carom.learning.unknowns import (
    Learned,
    Shared,
    Units,
    initial_shared,
    roughness,
    shared_bounds,
    shared_prior,
    with_unknowns,
)
from carom.mechanics import Scene
from carom.models import ImpactNetwork
from carom.models.impact_network import Field, ImpactScheme
from carom.types import State, Values

MARGIN, LOOSE, HINGE = 1e-2, 0.3, 3e-3
"""A scheduled impact keeps the first share of a step from the ends of the time that the data leave it; how
softly, at first and in the end."""
OVERLAP = 0.005
"""How far, as a share of the noise, a start state may reach into a surface, softly."""
PLACES = 32
"""Where the smoothness of the force is judged."""
ROUNDS, ITERATIONS, SETTLED = 8, 12, 0.2
"""Of every stage: how often noise and prior are estimated anew at most, steps of least squares in between,
and the change of the log-likelihood that ends it."""


@dataclass(frozen=True)
class LatentSettings:
    """Hyperparameters of the recipe; one set serves all systems.

    Arguments:
        touch: whether touch readings are perfect ("observed"), ignored ("inferred"), or "imperfect".
        sensor: rates and delay of an imperfect sensor.
        learned: which physical parameters are estimated.
        scheme: the model's step; "auto" tries the exact one, and where that leaves doubts the other too, and
            keeps the likelier.
        field: whether all bodies move in one field and act on each other by contact alone, or not.
        hidden: units of the potential's hidden layer.
        starts: random initial weights that are tried together.
        horizons: samples per segment, stage by stage; whole runs come last by themselves.
        longest: samples beyond which a run is not followed in one piece.
        blind: samples either side of an impact that are not compared, for contacts that last.
    """

    touch: Touch = "inferred"
    sensor: TouchSensor = field(default_factory=TouchSensor)
    learned: Learned = field(default_factory=Learned)
    scheme: ImpactScheme | Literal["auto"] = "auto"
    field: Field = "shared"
    hidden: int = 32
    starts: int = 4
    horizons: tuple[int, ...] = (20,)
    longest: int = 2000
    blind: int = 0


@dataclass(frozen=True)
class SharedShape:
    """From the vector of shared unknowns to its parts.

    Hashable, so that programs are compiled once per shape.
    """

    shapes: tuple[tuple[int, ...], ...]

    def split(self, vector: np.ndarray) -> Shared:
        """The same outside of compiled programs."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        pieces = np.split(vector, ends[:-1])
        return Shared(*(p.reshape(shape) for p, shape in zip(pieces, self.shapes, strict=True)))  # pyright: ignore

    def __call__(self, vector: Float[Values, "shared"]) -> Shared:
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        pieces = jnp.split(vector, ends[:-1])
        return Shared(*(piece.reshape(shape) for piece, shape in zip(pieces, self.shapes, strict=True)))


class Stage(NamedTuple):
    """The state of an estimation between stages."""

    unknowns: Unknowns
    noise: Float[Values, "2"]
    precision: Float[Values, "2"]
    """Of the prior that the force is flat, and that it is straight."""
    cost: Float[Values, ""]
    log_likelihood: Float[Values, ""]
    normal: Normal
    covariance: Float[Values, "shared shared"]
    """Of the shared unknowns, the others integrated out."""


# Compiled by itself so that the transformations around it find it traced.
@jax.jit
def segment_motion(model: ImpactNetwork, start: State, duration, schedule) -> tuple[State, Array]:
    """States on the sample grid, the start included, under a schedule, and when its impacts took place."""

    def step(state, inputs):
        length, plan = inputs
        after, contact, instant = model.move(state, length, plan)
        return after, (model.leave(state, after, contact), instant)

    _, (rest, instants) = jax.lax.scan(step, model.enter(start), (duration, schedule))
    states = jax.tree.map(lambda first, others: jnp.concatenate([first[None], others]), start, rest)
    return states, instants


def _split_local(local, model: ImpactNetwork) -> tuple[State, Array]:
    size, shape = model.scene.coordinates, (model.scene.bodies, model.scene.dimension)
    state = State(local[:size].reshape(shape), local[size : 2 * size].reshape(shape))
    return state, local[2 * size :]


@partial(jax.jit, static_argnames=("unravel", "iterations"))
def _run_stages(
    template: ImpactNetwork,
    units: Units,
    stage: Stage,
    segments: Segments,
    prior_local: tuple[Array, Array],
    hinge: Float[Array, ""],
    *,
    unravel: "SharedShape",
    iterations: int,
) -> Stage:
    """One stage of many estimations together."""
    run = partial(_run_stage, template, unravel=unravel, iterations=iterations)
    return jax.vmap(run, in_axes=(0, 0, 0, 0, None))(units, stage, segments, prior_local, hinge)


def _run_stage(
    template: ImpactNetwork,
    units: Units,
    stage: Stage,
    segments: Segments,
    prior_local: tuple[Array, Array],
    hinge: Float[Array, ""],
    *,
    unravel: "SharedShape",
    iterations: int,
) -> Stage:
    """Least squares, then noise and prior anew."""
    first = unravel(stage.unknowns.shared)
    low, high = (ravel_pytree(x)[0] for x in shared_bounds(first))
    weights = first.weights
    counts = jnp.sum(jnp.asarray(segments.known, float), axis=(0, 1, 3, 4))

    noise = stage.noise

    def residuals(shared, local, data):
        start, shift = _split_local(local, template)
        model = with_unknowns(template, unravel(shared), units, shift if shift.size else None)
        motion, instants = segment_motion(model, start, data.duration, data.schedule)
        predicted = jnp.stack([motion.position, motion.velocity], axis=1)
        away = jnp.where(data.known, predicted - data.observed, 0.0) / noise[None, :, None, None]
        # Where no sample counts, nothing else does.
        seen = jnp.any(data.known, axis=(1, 2, 3))
        early = jnp.maximum(data.earliest + MARGIN - instants, 0)
        late = jnp.maximum(instants - data.latest + MARGIN, 0)
        timing = jnp.where(seen[1:, None], (late - early) / hinge, 0).ravel()
        if template.scheme == "cd_lagrange":  # whose bodies overlap for a step at every impact
            return away.reshape(len(away), 2, -1), timing
        overlap = jnp.minimum(model.geometry.gap(start.position), 0) / (OVERLAP * noise[0])
        overlap = jnp.where(seen[0], overlap, 0)
        return away.reshape(len(away), 2, -1), jnp.concatenate([timing, overlap])

    mean, precisions = (ravel_pytree(part)[0] for part in shared_prior(first, units))

    def rough(shared):
        return jnp.stack(roughness(unravel(shared), units))

    def rough_residuals(shared):
        return (jnp.sqrt(stage.precision)[:, None] * rough(shared)).ravel()

    unknowns, precision = stage.unknowns, stage.precision
    solution = minimise(
        residuals,
        unknowns,
        segments,
        Prior(mean, precisions, *prior_local, rough_residuals),
        Bounds(low, high),
        max_iterations=iterations,
    )
    covariance = shared_covariance(solution.normal)
    # MacKay: the strength of a prior follows from how much of what it restrains the data determine.
    fitted = solution.unknowns.shared
    bends = jax.jacfwd(rough)(fitted)
    inverse = jnp.linalg.inv(jnp.diag(precisions) + jnp.einsum("g,gip,giq->pq", precision, bends, bends))
    allowed, left = (jnp.einsum("gip,pq,giq->g", bends, c, bends) for c in (inverse, covariance))
    determined = jnp.clip(precision * (allowed - left), 1e-2, None)
    wanted = determined / jnp.sum(rough(fitted) ** 2, axis=1)
    # The fixed point is approached by ever smaller steps; longer ones get there sooner.
    new_precision = jnp.clip(precision * jnp.clip(wanted / precision, 1e-2, 1e2) ** 1.8, 1e-4, 1e8)
    spent = (
        weights
        - jnp.sum(precisions[:weights] * jnp.diagonal(covariance)[:weights])
        - jnp.sum(precision * left)
    )
    spent = jnp.clip(spent, 1.0, weights)
    squares = solution.normal.squares * noise**2
    used = spent + unknowns.local.size + (unknowns.shared.size - weights)
    freedom = jnp.maximum(1 - used / jnp.sum(counts), 0.2)
    variance = squares / jnp.maximum(counts * freedom, 1.0)
    new_noise = jnp.where(counts > 0, jnp.sqrt(jnp.maximum(variance, 1e-14)), noise)
    likelihood = -jnp.sum(counts * jnp.log(new_noise))
    return Stage(
        solution.unknowns, new_noise, new_precision, solution.cost, likelihood, solution.normal, covariance
    )


@dataclass(frozen=True, eq=False)
class Motion:
    """A run as the fitted model retraces it: states, and residuals over the noise."""

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]
    residual: Float[np.ndarray, "samples 2 bodies dimension"]


@dataclass(frozen=True, eq=False)
class LatentFit:
    """A fitted model, what is known of its parameters, and how well it explains the recording."""

    model: ImpactNetwork
    parameters: tuple[Parameter, ...]
    noise: tuple[float, float]
    """Standard deviations of positions and velocities."""
    misfit: Misfit
    log_likelihood: float
    impacts: tuple[Impacts, ...]
    motions: tuple[Motion, ...]
    """Every run from its fitted start state."""
    run_gaps: Float[np.ndarray, "runs contacts"] | None
    """What each run adds to the gaps, where that was estimated."""
    free: bool
    """Whether the gap alone, without the schedule of found impacts, explains the recording as well."""
    settings: LatentSettings
    history: tuple[float, ...]
    """The log-likelihood, round by round, once the best start was chosen."""
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the fit cannot be trusted at all; `misfit` tells of smaller doubts."""
        return not np.isfinite(self.log_likelihood) or self.misfit.excess > 4


def fit_latent(
    recording: Recording,
    settings: LatentSettings | None = None,
    *,
    starts: Sequence[State] | None = None,
    seed: int = 0,
) -> LatentFit:
    """Fit a model to a recording: states, contacts, noise, the potential and physical parameters together.

    Arguments:
        recording: what was measured; its scene names the candidate contacts.
        settings: which parameters to estimate, and how touch readings are taken.
        starts: start states of the runs where they are known exactly, such as a release from rest.
        seed: of the random initial weights.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.8)
        >>> recording = carom.simulate(ball, steps=150, step_size=0.02, noise=0.05, seed=1)
        >>> fit = fit_latent(recording, LatentSettings(learned=Learned(restitution="constant")))
        >>> restitution = fit.parameters[0]
        >>> abs(restitution.value - 0.8) < 0.02
        True
    """
    known = None if starts is None else [starts]
    return fit_latent_many([recording], settings, starts=known, seeds=[seed])[0]


def fit_latent_many(
    recordings: Sequence[Recording],
    settings: LatentSettings | None = None,
    *,
    starts: Sequence[Sequence[State]] | None = None,
    seeds: Sequence[int],
) -> list[LatentFit]:
    """Fit several recordings of one shape together, each as if it were alone."""
    settings = settings or LatentSettings()
    require_choice("touch", settings.touch, Touch)
    scene = recordings[0].scene
    if scene is None:
        raise InputError("This recording has no scene: read it with a system file, or use `with_scene`.")
    if settings.touch != "inferred" and not recordings[0].has_touch:
        raise InputError(
            f'The recording has no touch readings; use touch="inferred", not "{settings.touch}".'
        )
    began = time.perf_counter()
    first: ImpactScheme = "constraint_exact" if settings.scheme == "auto" else settings.scheme
    with jax.enable_x64(True):
        fits = [_fit_scheme(recordings, scene, settings, starts, seeds, first)]
        # Velocities that are declared to lie between the samples come from such a scheme.
        staggered = scene.velocity_grid == "sample"
        if settings.scheme == "auto" and (staggered or any(_doubtful(fit) for fit in fits[0])):
            fits.append(_fit_scheme(recordings, scene, settings, starts, seeds, "cd_lagrange"))
    seconds = (time.perf_counter() - began) / len(recordings)
    best = [max(options, key=_trust) for options in zip(*fits, strict=True)]
    return [replace(fit, seconds=seconds) for fit in best]


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
) -> list[LatentFit]:
    learned = settings.learned
    template = ImpactNetwork(
        scene,
        recordings[0].step_size,
        hidden=settings.hidden,
        scheme=scheme,
        field=settings.field,
        restitution_terms=learned.restitution_terms,
        key=jax.random.key(0),
    )
    sensor = {"observed": PERFECT, "inferred": None, "imperfect": settings.sensor}[settings.touch]
    problems = [
        _Problem.of(recording, template, settings, sensor, None if starts is None else starts[index])
        for index, recording in enumerate(recordings)
    ]
    first_guesses = [
        initial_shared(template, learned, **problem.guess, generator=np.random.default_rng([seed, number]))
        for problem, seed in zip(problems, seeds, strict=True)
        for number in range(settings.starts)
    ]
    unravel = SharedShape(tuple(part.shape for part in first_guesses[0]))
    longest = max(len(run) for recording in recordings for run in recording.runs)
    horizons: list[int | None] = [h for h in settings.horizons if h < longest]
    horizons.append(None if longest <= settings.longest else settings.longest)
    places = layout(recordings[0], horizons[0])

    # Every start of every recording is one problem; they run as one batch.
    batch = [problem for problem in problems for _ in range(settings.starts)]
    stage = _blank(
        _stack([np.concatenate([np.ravel(part) for part in guess]) for guess in first_guesses]),
        _stack([problem.first_states(places) for problem in batch]),
        _stack([problem.noise for problem in batch]),
    )
    history: list[np.ndarray] = []
    run = partial(_run, template, unravel, history)
    stage = run(stage, batch, places)
    likelihoods = np.asarray(stage.log_likelihood).reshape(len(problems), settings.starts)
    picked = np.argmax(np.where(np.isfinite(likelihoods), likelihoods, -np.inf), axis=1)
    chosen = np.arange(len(problems)) * settings.starts + picked
    stage = jax.tree.map(lambda x: np.asarray(x)[chosen], stage)
    history[:] = [values[chosen] for values in history]
    for horizon in horizons[1:]:
        coarser = layout(recordings[0], horizon)
        stage = _joined(stage, places, coarser)
        places = coarser
        stage = run(stage, problems, places, tighten=horizon is horizons[-1])
    freed = stage if scheme == "cd_lagrange" else run(stage, problems, places, free=True)
    return [
        replace(
            _finished(problem, template, unravel, settings, places, _pick(stage, index), _pick(freed, index)),
            history=tuple(float(values[index]) for values in history),
        )
        for index, problem in enumerate(problems)
    ]


@dataclass(frozen=True, eq=False)
class _Problem:
    """One recording with all that is known before the first least squares."""

    recording: Recording
    impacts: list[Impacts]
    plans: list[Plan]
    guess: dict[str, np.ndarray]
    units: Units
    starts: Sequence[State] | None
    run_gaps: np.ndarray | None
    """First guesses of what each run adds to the gaps, where that is estimated."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        template: ImpactNetwork,
        settings: LatentSettings,
        sensor: TouchSensor | None,
        starts: Sequence[State] | None,
    ) -> "_Problem":
        known = not settings.learned.masses
        impacts = [find_impacts(r, template.scene, sensor=sensor, masses_known=known) for r in recording.runs]
        guess = _first_guess(impacts, recording)
        units = _units(recording, impacts, settings.field)
        run_gaps = None
        surfaces = [guess["shift"]] * len(impacts)
        if settings.learned.gap_per_run:
            surfaces = [_first_guess([found], recording)["shift"] for found in impacts]
            common = guess["shift"] if settings.learned.gap else 0.0
            run_gaps = np.array(surfaces) - common
        decided = plans(recording, impacts, surfaces, blind=settings.blind)
        return cls(recording, impacts, decided, guess, units, starts, run_gaps)

    @property
    def noise(self) -> np.ndarray:
        return np.median([found.noise for found in self.impacts], axis=0)

    def first_states(self, places: Layout) -> np.ndarray:
        """Start states of the segments, from the data near each."""
        states = first_states(self.recording, self.impacts, places)
        if self.run_gaps is not None:
            states = np.concatenate([states, self.run_gaps[places.run]], axis=1)
        return self.with_known_starts(states, places)[0]

    def with_known_starts(self, states: Array | np.ndarray, places: Layout) -> tuple[np.ndarray, np.ndarray]:
        """Start states, and the precisions with which they are known beforehand."""
        states = np.array(states)
        # A prior that only matters where no sample does.
        precision = np.full(states.shape, (100 * float(np.max(self.units.scale))) ** -2)
        if self.run_gaps is not None:
            # Runs may differ as much as they like, but a run without an impact says nothing of its gap.
            precision[:, -self.run_gaps.shape[1] :] = float(np.max(self.units.scale)) ** -2
        if self.starts is not None:
            size = 2 * self.recording.bodies * self.recording.dimension
            for row in np.flatnonzero(places.sample == 0):
                start = self.starts[places.run[row]]
                states[row, :size] = np.concatenate([np.ravel(start.position), np.ravel(start.velocity)])
                precision[row, :size] = (1e-4 * self.noise[0]) ** -2
        return states, precision

    def segments(self, places: Layout, *, free: bool) -> Segments:
        chosen = [plan.undecided() if free else plan for plan in self.plans]
        return cut(self.recording, chosen, places)


def _run(
    template: ImpactNetwork,
    unravel: SharedShape,
    history: list[np.ndarray],
    stage: Stage,
    problems: Sequence[_Problem],
    places: Layout,
    *,
    free: bool = False,
    tighten: bool = False,
) -> Stage:
    """Least squares in turn with noise and prior, until the likelihood settles."""
    units = _stack_tree([problem.units for problem in problems])
    data = _stack_tree([problem.segments(places, free=free) for problem in problems])
    known = [
        problem.with_known_starts(local, places)
        for problem, local in zip(problems, stage.unknowns.local, strict=True)
    ]
    mean, precision = (_stack(part) for part in zip(*known, strict=True))
    stage = stage._replace(unknowns=stage.unknowns._replace(local=mean))
    hinge = LOOSE
    for _ in range(ROUNDS):
        before = stage.log_likelihood
        stage = _run_stages(
            template, units, stage, data, (mean, precision), hinge, unravel=unravel, iterations=ITERATIONS
        )
        history.append(np.asarray(stage.log_likelihood))
        change = np.abs(np.asarray(stage.log_likelihood - before))
        settled = not np.any(change[np.isfinite(change)] > SETTLED)
        if settled and (hinge <= HINGE or not tighten):
            break
        hinge = max(HINGE, 0.3 * hinge) if tighten else hinge
    return stage


def _finished(
    problem: _Problem,
    template: ImpactNetwork,
    unravel: SharedShape,
    settings: LatentSettings,
    places: Layout,
    scheduled: Stage,
    freed: Stage,
) -> LatentFit:
    recording, impacts = problem.recording, problem.impacts
    samples = sum(len(run) for run in recording.runs)
    agrees = bool(freed.log_likelihood > scheduled.log_likelihood - 0.02 * samples) or not np.isfinite(
        scheduled.log_likelihood
    )
    best = freed if agrees else scheduled
    shared = unravel.split(np.asarray(best.unknowns.shared))
    model = with_unknowns(template, shared, problem.units)
    segments = problem.segments(places, free=agrees and template.scheme != "cd_lagrange")
    local = np.asarray(best.unknowns.local)
    motion = _retrace(model, local, segments.duration, segments.schedule)
    size = 2 * template.scene.coordinates
    run_gaps = None
    if problem.run_gaps is not None:
        run_gaps = np.array([local[places.run == r, size:].mean(axis=0) for r in range(len(impacts))])
    motions = _motions(recording, places, motion, segments, np.asarray(best.noise))
    widths = None
    if template.scheme == "cd_lagrange" and settings.learned.gap:
        model, halves = _with_margin(model, motions, problem.plans)
        # Any surface between arrivals with contact and without explains the data: a uniform distribution.
        shared = shared._replace(shift=model.contact.shift)
        widths = halves / np.sqrt(3)
    spread = unravel.split(np.sqrt(np.maximum(np.diagonal(best.covariance), 0)))
    if widths is not None:
        spread = spread._replace(shift=widths)
    pull = unravel.split(np.asarray(best.normal.shared_gradient))
    _, precisions = shared_prior(shared, problem.units)
    counted = sum(found.chosen.sum(axis=0) for found in impacts)
    parameters = describe_parameters(
        template.scene,
        settings.learned,
        shared,
        spread,
        pull,
        jax.tree.map(lambda x: 1 / np.sqrt(x), precisions),
        np.asarray(counted),
    )
    known = np.array([True, recording.has_velocity])
    misfit = diagnose(
        [motion.residual.reshape(len(motion.residual), -1) for motion in motions],
        [_near(found) for found in impacts],
        np.asarray(best.noise),
        problem.noise,
        known,
    )
    return LatentFit(
        model=jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), model),
        parameters=parameters,
        noise=(float(best.noise[0]), float(best.noise[1]) if recording.has_velocity else float("nan")),
        misfit=misfit,
        log_likelihood=float(best.log_likelihood),
        impacts=tuple(impacts),
        motions=motions,
        run_gaps=run_gaps,
        free=agrees,
        settings=settings,
        history=(),
        seconds=float("nan"),
    )


@jax.jit
def _retrace(model: ImpactNetwork, local, duration, schedule) -> State:
    """All segments from their start states."""

    def one(local, duration, schedule):
        start, shift = _split_local(local, model)
        if shift.size:
            shifted = model.contact.shift + shift
            return segment_motion(
                eqx.tree_at(lambda m: m.contact.shift, model, shifted), start, duration, schedule
            )
        return segment_motion(model, start, duration, schedule)

    return jax.vmap(one)(local, duration, schedule)[0]


def _motions(recording, places: Layout, motion: State, segments: Segments, noise) -> tuple[Motion, ...]:
    """Segments put together again, run by run."""
    predicted = np.stack([np.asarray(motion.position), np.asarray(motion.velocity)], axis=2)
    away = np.where(segments.known, predicted - segments.observed, np.nan) / noise[None, :, None, None]
    result = []
    for index, run in enumerate(recording.runs):
        rows = np.flatnonzero(places.run == index)
        states, residual = (
            np.concatenate([part[row] for row in rows])[: len(run)] for part in (predicted, away)
        )
        result.append(Motion(states[:, 0], states[:, 1], residual))
    return tuple(result)


def _near(found: Impacts, width: int = 5) -> np.ndarray:
    """Samples within a few of an impact."""
    steps = np.convolve(found.chosen.any(axis=1), np.ones(2 * width), "same") > 0
    return np.concatenate([steps[:1], steps])


def _with_margin(
    model: ImpactNetwork, motions: Sequence[Motion], decided: Sequence[Plan]
) -> tuple[ImpactNetwork, np.ndarray]:
    """Surfaces halfway between arrivals with contact and without, and half of what lies between.

    The CD-Lagrange step asks no more of them: an arrival below is a contact.
    """
    geometry, shift = model.scene.geometry, np.array(model.contact.shift)
    halves = np.full(shift.shape, np.inf)
    touched = [[] for _ in shift]
    passed = [[] for _ in shift]
    for motion, plan in zip(motions, decided, strict=True):
        arrival = motion.position[:-1] + model.step_size * motion.velocity[:-1]
        gap = np.asarray(jax.vmap(geometry.gap)(jnp.asarray(arrival)))
        for j in range(len(shift)):
            hit = plan.schedule[:, j] == SCHEDULED
            touched[j] += list(gap[hit, j])
            passed[j] += list(gap[~hit, j])
    for j in range(len(shift)):
        if touched[j]:
            highest = max(touched[j])
            above = [gap for gap in passed[j] if gap > highest]
            shift[j] = 0.5 * (highest + min(above)) if above else highest
            halves[j] = 0.5 * (min(above) - highest) if above else np.inf
    return eqx.tree_at(lambda m: m.contact.shift, model, jnp.asarray(shift)), halves


def _pick(stage: Stage, index: int) -> Stage:
    return jax.tree.map(lambda x: np.asarray(x)[index], stage)


def _blank(shared, local, noise) -> Stage:
    """A stage before its first least squares."""
    batch, size = shared.shape
    segments, own = local.shape[1:]
    normal = Normal(
        np.zeros((batch, size, size)),
        np.zeros((batch, segments, own, size)),
        np.zeros((batch, segments, own, own)),
        np.zeros((batch, size)),
        np.zeros((batch, segments, own)),
        np.zeros(batch),
        np.zeros((batch, 2)),
    )  # pyright: ignore
    return Stage(
        Unknowns(np.asarray(shared), np.asarray(local)),  # pyright: ignore
        np.asarray(noise),
        np.full((batch, 2), 1e-2),
        np.zeros(batch),
        np.zeros(batch),
        normal,
        np.zeros((batch, size, size)),
    )  # pyright: ignore


def _joined(stage: Stage, fine: Layout, coarse: Layout) -> Stage:
    """The same estimate with fewer, longer segments: each starts where a short one did."""
    rows = [
        int(np.flatnonzero((fine.run == run) & (fine.sample == sample))[0])
        for run, sample in zip(coarse.run, coarse.sample, strict=True)
    ]
    fresh = _blank(stage.unknowns.shared, np.asarray(stage.unknowns.local)[:, np.array(rows)], stage.noise)
    return fresh._replace(precision=stage.precision)


def _units(recording: Recording, impacts: Sequence[Impacts], field: Field) -> Units:
    width = recording.dimension if field == "shared" else recording.dimension * recording.bodies
    values = np.concatenate([run.position.reshape(-1, width) for run in recording.runs])
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    scale = np.maximum(0.5 * (high - low), 1e-9)
    acceleration = float(np.median([found.acceleration for found in impacts]))
    center = 0.5 * (low + high)
    if width == 1:
        places, directions = np.linspace(-1, 1, PLACES)[:, None], np.ones((PLACES, 1))
    else:
        whole = values[np.isfinite(values).all(axis=1)]
        places = (whole[np.linspace(0, len(whole) - 1, 2 * PLACES).astype(int)] - center) / scale
        directions = np.random.default_rng(0).standard_normal(places.shape)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    energy = max(acceleration, 1e-9) * scale.max()
    return Units(*(np.asarray(part) for part in (center, scale, energy, places, directions)))  # pyright: ignore


def _first_guess(impacts: Sequence[Impacts], recording: Recording) -> dict[str, np.ndarray]:
    """Surfaces and restitution from the impacts that were found."""
    scene = recording.scene
    assert scene is not None
    shift, restitution = np.zeros(scene.contacts), np.full(scene.contacts, scene.restitution)
    for j in range(scene.contacts):
        gaps = np.concatenate([found.gap[found.chosen[:, j], j] for found in impacts])
        ratios = [-(f.after[f.chosen[:, j], j] / f.before[f.chosen[:, j], j]) for f in impacts]
        if not len(gaps):
            # No impact was seen: the surface lies out of reach of what was.
            reach = min(float(found.smooth_gap[:, j].min()) for found in impacts)
            shift[j] = min(0.0, reach - 5 * max(float(found.noise[0]) for found in impacts))
        else:
            shift[j] = np.median(gaps)
            restitution[j] = np.clip(np.median(np.concatenate(ratios)), 0.05, 0.99)
    return {"shift": shift, "restitution": restitution}


def _stack(arrays) -> np.ndarray:
    return np.stack([np.asarray(array) for array in arrays])


def _stack_tree(trees):
    return jax.tree.map(lambda *leaves: _stack(leaves), *trees)
