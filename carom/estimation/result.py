"""The result of the recipe `carom`: the model, its parameters in words and numbers, and doubts about it."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.data import Recording
from carom.estimation.detection.impacts import Impacts
from carom.estimation.detection.sensor_rates import sensor_parameters
from carom.estimation.parameters.per_run import RunShape, RunUnknowns, with_run
from carom.estimation.parameters.table import Parameter, describe_parameters
from carom.estimation.parameters.unknowns import shared_prior, with_unknowns
from carom.estimation.problem import Problem
from carom.estimation.settings import LatentSettings
from carom.estimation.solver.iteration import Outcome, SharedShape
from carom.estimation.solver.segments import Layout, Plan, Segments
from carom.estimation.solver.sensitivities import motion_under
from carom.estimation.uncertainty.diagnostics import Misfit, diagnose
from carom.estimation.uncertainty.laplace import draw_models
from carom.estimation.uncertainty.new_runs import as_in_some_run, put_in_the_middle
from carom.integrators import SCHEDULED
from carom.models import ImpactNetwork
from carom.notebook import curves, table
from carom.storage.program_cache import CachedFunction
from carom.types import State

NEGLIGIBLE = 0.02
"""Residuals as a share of the range of motion that make no failure, however small the noise is."""
ENOUGH_RUNS = 8
"""Runs whose disagreement tells how uncertain a parameter is."""


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
    runs: RunUnknowns
    """What each run adds to the parameters of all, a row per run, where that was estimated."""
    run_errors: RunUnknowns
    """Standard errors of these."""
    law_covariance: Float[np.ndarray, "laws terms terms"] | None
    """Of the terms of the restitution that holds for all runs, where it was estimated."""
    free: bool
    """Whether the gap alone, without the schedule of found impacts, explains the recording as well."""
    draws: ImpactNetwork
    """Models that the data do not tell from this one (Laplace), with an axis over them before all others.

    Where runs have parameters of their own, each has those of some run, as a new one may."""
    settings: LatentSettings
    history: tuple[float, ...]
    """The log-likelihood, round by round, once the best start was chosen."""
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the fit cannot be trusted at all; `misfit` tells of smaller doubts."""
        return not np.isfinite(self.log_likelihood) or (
            self.misfit.excess > 4 and self.misfit.unexplained > NEGLIGIBLE
        )

    def _repr_html_(self) -> str:
        noise = " and ".join(f"{value:.3g}" for value in self.noise if np.isfinite(value))
        rows = [
            ("state", "failed: do not trust it" if self.failed else "done"),
            *(
                (parameter.name, parameter.words.removeprefix(f"{parameter.name}: "))
                for parameter in self.parameters
            ),
            ("noise", f"{noise} (positions, velocities)" if " and " in noise else f"{noise} (positions)"),
            ("impacts found", str(sum(int(found.chosen.sum()) for found in self.impacts))),
            *(("warning", message) for message in self.misfit.messages),
        ]
        rounds, course = np.arange(1.0, len(self.history) + 1), np.array(self.history)[:, None]
        return table("Fit by the recipe carom", rows) + curves(rounds, course, x="round", y="log-likelihood")

    def in_run(self, index: int) -> ImpactNetwork:
        """The model as it is in one run, with the gaps, restitution and masses of that run."""
        return with_run(
            self.model, jax.tree.map(lambda part: jnp.asarray(part[index], jnp.float32), self.runs)
        )


def describe(
    problem: Problem,
    template: ImpactNetwork,
    unravel: SharedShape,
    own: RunShape,
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
    unknowns, noise, _, scatter = best.estimate
    shared = unravel(np.asarray(unknowns.shared))
    model = with_unknowns(template, shared, problem.units)
    undecided = agrees and template.scheme != "cd_lagrange" and not problem.short
    segments = problem.segments(places, free=undecided)
    local = np.asarray(unknowns.local)
    most = None if undecided else problem.most(template)
    motion = State(*retracer(own, most)(model, local, segments.duration, segments.schedule))
    # A run in several pieces is known by the piece that knows most.
    errors = np.asarray(best.local_error)
    pieces = [np.flatnonzero(places.run == r) for r in range(len(impacts))]
    clearest = np.array([rows[np.argmin(errors[rows], axis=0)] for rows in pieces])
    columns = np.arange(errors.shape[1])
    motions = _motions(recording, places, motion, segments, np.asarray(noise))
    halves = None
    if template.scheme == "cd_lagrange" and settings.learned.gap:
        model, halves = _with_margin(model, motions, problem.plans)
        # Any surface between arrivals with contact and without explains the data: a uniform distribution.
        shared = shared._replace(shift=np.asarray(model.contact.shift))
    covariance = np.asarray(best.covariance)
    if len(places.run) == len(recording.runs) >= ENOUGH_RUNS:
        covariance = _wider(covariance, np.asarray(best.scatter))
    spread = unravel(np.sqrt(np.maximum(np.diagonal(covariance), 0)))
    if halves is not None:
        spread = spread._replace(shift=halves / np.sqrt(3))
    pull = np.asarray(best.gradient)
    _, precisions = shared_prior(shared, problem.units)
    counted = sum(found.chosen.sum(axis=0) * found.explained for found in impacts)
    parameters = describe_parameters(
        template.scene,
        settings.learned,
        shared,
        spread,
        unravel(pull),
        jax.tree.map(lambda x: 1 / np.sqrt(x), precisions),
        np.asarray(counted),
        np.asarray(scatter),
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
        _reach(recording),
        by_gap_alone=agrees,
    )
    found = own.unknowns(local[clearest, columns])
    draws = draw_models(template, shared, covariance, pull, problem.units, unravel, half_widths=halves)
    model, runs = put_in_the_middle(model, found)
    return LatentFit(
        model=jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), model),
        parameters=parameters,
        noise=(float(noise[0]), float(noise[1]) if recording.has_velocity else float("nan")),
        misfit=misfit,
        log_likelihood=float(best.log_likelihood),
        impacts=tuple(impacts),
        motions=motions,
        runs=runs,
        run_errors=own.unknowns(errors[clearest, columns]),
        law_covariance=_law_covariance(covariance, unravel) if shared.restitution.size else None,
        free=agrees,
        draws=as_in_some_run(draws, found),
        settings=settings,
        history=history,
        seconds=float("nan"),
    )


def retracer(own: RunShape, most: int | None) -> CachedFunction:
    """Positions and velocities of all segments, of the model, their unknowns, durations and schedules."""

    def together(model, local, duration, schedule):
        def one(local, duration, schedule):
            in_run = with_run(model, own.unknowns(local))
            states, _ = motion_under(in_run, own.start(local), duration, schedule, most=most)
            return states.position, states.velocity

        return jax.vmap(one)(local, duration, schedule)

    return CachedFunction(together, (0, 0), ("retrace", own, most))


def _wider(covariance: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    """Either covariance with every standard deviation raised to the greater of the two.

    Where the model explains the data both say the same; where it does not, runs disagree by more than noise.
    """
    diagonals = [np.maximum(np.diagonal(matrix), 1e-300) for matrix in (covariance, scatter)]
    factor = np.sqrt(np.maximum(diagonals[1] / diagonals[0], 1.0))
    return covariance * factor[:, None] * factor[None, :]


def _law_covariance(covariance: np.ndarray, unravel: SharedShape) -> np.ndarray:
    """The blocks of a covariance that belong to the restitution of each contact."""
    places = np.asarray(unravel(np.arange(len(covariance), dtype=float)).restitution, int)
    return np.stack([covariance[np.ix_(rows, rows)] for rows in places])


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


def _reach(recording: Recording) -> np.ndarray:
    """Half the range of positions and of velocities, the widest of all coordinates."""
    halves = []
    for channel in ("position", "velocity"):
        parts = [getattr(run, channel) for run in recording.runs]
        if parts[0] is None:
            halves.append(np.inf)
            continue
        values = np.concatenate(parts)
        halves.append(0.5 * np.max(np.nanmax(values, axis=0) - np.nanmin(values, axis=0)))
    return np.maximum(halves, 1e-300)


def _near(found: Impacts, width: int = 5) -> np.ndarray:
    """Samples within a few of an impact."""
    struck = np.any(found.chosen, axis=1).astype(float)
    steps = np.convolve(struck, np.ones(2 * width), "full")[width - 1 :][: len(struck)] > 0
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
