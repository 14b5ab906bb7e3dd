"""The result of the recipe `carom`: the model, its parameters in words and numbers, and doubts about it."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.integrators import SCHEDULED
from carom.learning.contacts import Impacts
from carom.learning.diagnosis import Misfit, diagnose
from carom.learning.estimation import Outcome, SharedShape, segment_motion, split_local
from carom.learning.latent_settings import LatentSettings
from carom.learning.parameters import Parameter, describe_parameters
from carom.learning.problem import Problem
from carom.learning.segments import Layout, Plan, Segments
from carom.learning.sensor_rates import sensor_parameters
from carom.learning.unknowns import shared_prior, with_unknowns
from carom.models import ImpactNetwork
from carom.types import State


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


def describe(
    problem: Problem,
    template: ImpactNetwork,
    unravel: SharedShape,
    settings: LatentSettings,
    places: Layout,
    scheduled: Outcome,
    freed: Outcome,
    *,
    history: tuple[float, ...],
) -> LatentFit:
    """The fit of one recording, from its estimates with the schedule and without."""
    recording, impacts = problem.recording, problem.impacts
    samples = sum(len(run) for run in recording.runs)
    agrees = bool(freed.log_likelihood > scheduled.log_likelihood - 0.02 * samples) or not np.isfinite(
        scheduled.log_likelihood
    )
    best = freed if agrees else scheduled
    unknowns, noise, _ = best.estimate
    shared = unravel(np.asarray(unknowns.shared))
    model = with_unknowns(template, shared, problem.units)
    segments = problem.segments(places, free=agrees and template.scheme != "cd_lagrange")
    local = np.asarray(unknowns.local)
    motion = _retrace(model, local, segments.duration, segments.schedule)
    size = 2 * template.scene.coordinates
    run_gaps = None
    if problem.run_gaps is not None:
        run_gaps = np.array([local[places.run == r, size:].mean(axis=0) for r in range(len(impacts))])
    motions = _motions(recording, places, motion, segments, np.asarray(noise))
    widths = None
    if template.scheme == "cd_lagrange" and settings.learned.gap:
        model, halves = _with_margin(model, motions, problem.plans)
        # Any surface between arrivals with contact and without explains the data: a uniform distribution.
        shared = shared._replace(shift=model.contact.shift)
        widths = halves / np.sqrt(3)
    spread = unravel(np.sqrt(np.maximum(np.diagonal(best.covariance), 0)))
    if widths is not None:
        spread = spread._replace(shift=widths)
    pull = unravel(np.asarray(best.gradient))
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
    if problem.sensor is not None:
        parameters += sensor_parameters(problem.sensor)
    known = np.array([True, recording.has_velocity])
    # What is left below the resolution has a shape too, that of the network's last digits.
    resolved = (np.asarray(noise) > problem.units.resolution)[None, :, None, None]
    shown = [np.where(resolved, motion.residual, np.nan) for motion in motions]
    misfit = diagnose(
        [residual.reshape(len(residual), -1) for residual in shown],
        [_near(found) for found in impacts],
        np.asarray(noise),
        problem.noise,
        known,
    )
    return LatentFit(
        model=jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), model),
        parameters=parameters,
        noise=(float(noise[0]), float(noise[1]) if recording.has_velocity else float("nan")),
        misfit=misfit,
        log_likelihood=float(best.log_likelihood),
        impacts=tuple(impacts),
        motions=motions,
        run_gaps=run_gaps,
        free=agrees,
        settings=settings,
        history=history,
        seconds=float("nan"),
    )


@jax.jit
def _retrace(model: ImpactNetwork, local, duration, schedule) -> State:
    """All segments from their start states."""

    def one(local, duration, schedule):
        start, shift = split_local(local, model)
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
    """Surfaces halfway between positions tested with contact and without, and half of what lies between.

    The CD-Lagrange step asks no more of them: a position below is a contact.
    """
    geometry, shift = model.scene.geometry, np.array(model.contact.shift)
    halves = np.full(shift.shape, np.inf)
    touched = [[] for _ in shift]
    passed = [[] for _ in shift]
    for motion, plan in zip(motions, decided, strict=True):
        tested = motion.position[:-1]
        if model.detection == "arrival":
            tested = tested + model.step_size * motion.velocity[:-1]
        gap = np.asarray(jax.vmap(geometry.gap)(jnp.asarray(tested)))
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
