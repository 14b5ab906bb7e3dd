"""The result of our recipe: the fitted mechanism, its parameters with errors, and diagnostics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.contact_laws import AbstractRestitutionBySpeed
from carom.data import Recording
from carom.estimation.detection.impacts import Impacts
from carom.estimation.detection.sensor_rates import sensor_parameters
from carom.estimation.parameters.free import (
    FreeParameters,
    Layout,
    free_leaves,
    with_added,
    with_values,
)
from carom.estimation.parameters.report import Parameter, report_parameters
from carom.estimation.problem import SURFACES, Problem
from carom.estimation.sample_counts import SampleCounts, count_samples
from carom.estimation.settings import Settings
from carom.estimation.solver.iteration import Outcome
from carom.estimation.solver.normal_equations import Parameters
from carom.estimation.solver.segments import Partition, Prescription, Segments, pad_rows
from carom.estimation.solver.sensitivities import segment_motion
from carom.estimation.uncertainty.diagnostics import Diagnostics, diagnose
from carom.estimation.uncertainty.failure import likely_cause
from carom.estimation.uncertainty.laplace import sample_mechanisms
from carom.estimation.uncertainty.new_runs import as_in_some_run, centred_on_median
from carom.integrators import PRESCRIBED, CDLagrange, ConstraintExact
from carom.mechanics import at
from carom.models import Mechanism
from carom.notebook import table
from carom.storage.program_cache import CachedFunction
from carom.types import State

NEGLIGIBLE = 0.02
"""Residuals up to this fraction of the range of motion are never a failure, however small the noise is."""
ENOUGH_RUNS = 8
"""Number of runs from which on the sandwich estimator of the covariance is used."""
LESS = 0.1
"""Weight of the squared residuals of a run below which it is said to count less."""
WORSE_BY_GAP = 0.02
"""Loss of log-likelihood per sample up to which contacts by the gap explain the recording equally well."""


@dataclass(frozen=True, eq=False)
class Motion:
    """A run as reproduced by the fitted model: states, and residuals over the noise."""

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]
    residual: Float[np.ndarray, "samples 2 bodies dimension"]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted mechanism, its parameters with errors, and how well it explains the recording.

    Arguments:
        model: the mechanism; that of the median run if runs have parameters of their own.
        parameters: estimates with their errors.
        noise: standard deviations of positions and velocities.
        diagnostics: tests of the residuals.
        log_likelihood: up to a constant.
        impacts: the detected impacts of every run.
        motions: every run as reproduced by the model.
        added: deviations of each run from the parameters of the model, one row per run.
        added_errors: their standard errors.
        free: the free parameters.
        covariance: of the values shared by all runs.
        by_gap: whether contacts determined by the gap explain the recording as well as prescribed impacts.
        counts: what became of every sample.
        samples: mechanisms sampled from the posterior (Laplace), stacked along the first axis of all arrays.
            If runs have parameters of their own, each sample has those of a random run, as a new run might.
        settings: of the fit.
        history: the log-likelihood of the best start, round by round.
        seconds: duration of the fit.
    """

    model: Mechanism
    parameters: tuple[Parameter, ...]
    noise: tuple[float, float]
    diagnostics: Diagnostics
    log_likelihood: float
    impacts: tuple[Impacts, ...]
    motions: tuple[Motion, ...]
    added: Float[np.ndarray, "runs added"]
    added_errors: Float[np.ndarray, "runs added"]
    free: FreeParameters
    covariance: Float[np.ndarray, "shared shared"]
    by_gap: bool
    counts: SampleCounts
    samples: Mechanism
    settings: Settings
    history: tuple[float, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the fit is unusable; the first message of `diagnostics` then says why."""
        return not np.isfinite(self.log_likelihood) or _unusable(self.diagnostics)

    def __repr__(self) -> str:
        state = "failed" if self.failed else f"{len(self.parameters)} parameters"
        return f"Fit({state}, noise {self.noise[0]:.3g}, {self.seconds:.1f} s)"

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
            *(("warning", message) for message in self.diagnostics.messages),
        ]
        return table("Fit by our recipe", rows)

    def in_run(self, index: int) -> Mechanism:
        """The model with the parameters of one run."""
        added = jnp.asarray(self.added[index], jnp.float32)
        return with_added(self.free.layout, self.free.maps, self.model, added)

    def per_run(self, key: str) -> tuple[Float[np.ndarray, "runs values"], Float[np.ndarray, "runs values"]]:
        """Deviations of each run from a parameter of the model, and their standard errors."""
        layout = self.free.layout
        for (_, rows), spec in zip(layout.local_slices(), self.free.local_specs, strict=True):
            if spec.key == key:
                columns = slice(rows.start - layout.state, rows.stop - layout.state)
                return self.added[:, columns], self.added_errors[:, columns]
        raise KeyError(key)

    def covariance_of(self, key: str) -> Float[np.ndarray, "values values"]:
        """The covariance of the shared values of a parameter."""
        for (_, rows), spec in zip(self.free.layout.shared_slices(), self.free.specs, strict=True):
            if spec.key == key:
                return self.covariance[rows, rows]
        raise KeyError(key)


def _unusable(diagnostics: Diagnostics) -> bool:
    return diagnostics.excess > 4 and diagnostics.unexplained > NEGLIGIBLE


def describe(
    problem: Problem,
    partition: Partition,
    prescribed: Outcome,
    unprescribed: Outcome,
    *,
    history: tuple[float, ...],
    whole: bool = True,
) -> Fit:
    """The fit of one recording, from its estimates with prescribed impacts and with contacts by the gap.

    Unless the segments are `whole`, the model explains no longer ones.
    """
    recording, free = problem.recording, problem.free
    agrees = bool(
        unprescribed.log_likelihood > prescribed.log_likelihood - WORSE_BY_GAP * recording.samples
    ) or not np.isfinite(prescribed.log_likelihood)
    # Perfect touch readings tell the step of every impact, which contacts by the gap need not keep.
    best = unprescribed if agrees and problem.settings.touch != "observed" else prescribed
    values, noise = np.asarray(best.estimate.parameters.shared), np.asarray(best.estimate.noise)
    local = np.asarray(best.estimate.parameters.local)
    exact = isinstance(free.template.stepper, ConstraintExact)
    by_gap = best is unprescribed and exact and not problem.short
    segments = problem.segments(partition, by_gap=by_gap)
    retrace = retracer(free.layout, None if by_gap else problem.most)
    motion = State(*retrace(*retraced(problem, best.estimate.parameters, segments)))
    motions = _motions(recording, partition, motion, segments, noise)
    scatter = np.asarray(best.estimate.spread)[: len(free.layout.impacts)]
    free = free.without_impacts()
    free = replace(free, template=replace(free.template, scatter=scatter if len(scatter) else None))
    free = _within_closing_speeds(free, values, problem.impacts)
    model = with_values(free.layout, free.maps, free.template, values)
    half_widths = None
    if not exact and any(block.path == SURFACES for block in free.layout.shared):
        # The likelihood is constant between positions with and without contact: a uniform posterior.
        model, half_widths = _between_arrivals(model, motions, problem.prescriptions)
        values = free.values_of(model)
    counts = count_samples(recording, problem.impacts, problem.prescriptions)
    importance = _importance(recording, partition, np.asarray(best.estimate.weight))
    diagnostics = _diagnostics(problem, motions, importance, noise, counts, by_gap=agrees)
    if not whole:
        seconds = partition.length * recording.step_size
        limit = (
            f"The model explains {partition.length} samples ({seconds:.3g} s) at a time, not longer motions: "
            "something acts that it does not have, such as hands, drag or a table that is not level. "
            "Parameters are those of short motions; do not trust longer forecasts."
        )
        diagnostics = diagnostics._replace(messages=(limit, *diagnostics.messages))
    covariance = np.asarray(best.covariance)
    independent = len(recording.runs) if whole else len(partition.run)
    if len(partition.run) == independent >= ENOUGH_RUNS:
        # Runs are independent, whatever correlates the residuals within each.
        covariance = _wider(covariance, np.asarray(best.scatter))
    else:
        # Correlated residuals, of a tracker that smooths or of a misfit, tell less than independent ones.
        covariance = covariance * diagnostics.correlation_time
    added, added_errors = _added(problem, partition, local, np.asarray(best.local_error))
    samples = sample_mechanisms(
        free, values, covariance, np.asarray(best.gradient), problem.priors, half_widths
    )
    model, centred = centred_on_median(free, model, added)
    return Fit(
        model=jax.tree.map(_single, model),
        parameters=_parameters(problem, values, covariance, half_widths, best),
        noise=(float(noise[0]), float(noise[1]) if recording.has_velocity else float("nan")),
        diagnostics=diagnostics,
        log_likelihood=float(best.log_likelihood),
        impacts=tuple(problem.impacts),
        motions=motions,
        added=centred,
        added_errors=added_errors,
        free=free,
        covariance=covariance,
        by_gap=agrees,
        counts=counts,
        samples=as_in_some_run(free, samples, added),
        settings=problem.settings,
        history=history,
        seconds=float("nan"),
    )


def retracer(layout: Layout, most: int | None) -> CachedFunction:
    """A compiled function for the positions and velocities of all segments, given values and modes."""

    def retrace(template, maps, shared, local, duration, modes, impact):
        def one(local, duration, modes, impact):
            leaves = free_leaves(layout, maps, template, shared, local)
            states, _ = segment_motion(
                layout, template, leaves, layout.start(local), duration, modes, impact, most=most
            )
            return states.position, states.velocity

        return jax.vmap(one)(local, duration, modes, impact)

    return CachedFunction(retrace, (0, 0), ("retrace", layout, most))


def retraced(problem: Problem, parameters: Parameters, segments: Segments) -> tuple:
    """Arguments of that function, with segments padded as those of the solver are."""
    by_segment = (parameters.local, segments.duration, segments.modes, segments.impact)
    padded = (pad_rows(np.asarray(part)) for part in by_segment)
    return problem.free.template, problem.free.maps, np.asarray(parameters.shared), *padded


def _within_closing_speeds(
    free: FreeParameters, values: np.ndarray, impacts: Sequence[Impacts]
) -> FreeParameters:
    """Free parameters of a mechanism whose law of restitution knows the closing speeds of its impacts.

    From the 1st to the 99th percentile, so that in a long recording no single false impact sets a limit.
    Contacts whose laws have the same values share a range; without impacts it is unlimited.
    """
    law = with_values(free.layout, free.maps, free.template, values).restitution
    if not isinstance(law, AbstractRestitutionBySpeed):
        return free
    terms, speeds = np.asarray(law.terms), np.array(law.speeds)
    for contact in range(len(terms)):
        alike = (terms == terms[contact]).all(axis=1)
        closing = np.concatenate([-found.before[found.chosen & alike] for found in impacts])
        if (closing > 0).any():
            closing = closing[closing > 0]
            # Of fewer than a hundred impacts the slowest and the fastest.
            speeds[contact] = (
                np.percentile(closing, 1, method="lower"),
                np.percentile(closing, 99, method="higher"),
            )
    return replace(free, template=eqx.tree_at(lambda m: m.restitution.speeds, free.template, speeds))


def _single(leaf):
    """Arrays of a fitted model in single precision, which suffices for forecasts."""
    return jnp.asarray(leaf, jnp.float32) if eqx.is_inexact_array(leaf) else leaf


def _parameters(
    problem: Problem,
    values: np.ndarray,
    covariance: np.ndarray,
    half_widths: np.ndarray | None,
    best: Outcome,
) -> tuple[Parameter, ...]:
    free = problem.free
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    for block, rows in free.layout.shared_slices():
        if half_widths is not None and block.path == SURFACES and block.count == len(half_widths):
            errors[rows] = half_widths / np.sqrt(3)  # the standard deviation of a uniform distribution
    counted = sum(found.chosen.sum(axis=0) * found.explained for found in problem.impacts)
    parameters = report_parameters(
        free,
        values,
        errors,
        np.asarray(best.gradient),
        1 / np.sqrt(problem.priors.precision),
        np.asarray(counted),
        np.asarray(best.estimate.spread),
    )
    return parameters if problem.sensor is None else parameters + sensor_parameters(problem.sensor)


def _added(
    problem: Problem, partition: Partition, local: np.ndarray, errors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Deviations of each run from the shared parameters, by the segment with the smallest error; errors."""
    rows = [np.flatnonzero(partition.run == run) for run in range(len(problem.impacts))]
    clearest = np.array([of_run[np.argmin(errors[of_run], axis=0)] for of_run in rows])
    columns, first = np.arange(errors.shape[1]), problem.free.layout.own
    return local[clearest, columns][:, first:], errors[clearest, columns][:, first:]


def _diagnostics(
    problem: Problem,
    motions: Sequence[Motion],
    importance: Sequence[np.ndarray],
    noise: np.ndarray,
    counts: SampleCounts,
    *,
    by_gap: bool,
) -> Diagnostics:
    # Residuals below the resolution of the data are errors of the network, and never white.
    resolved = (noise > problem.priors.resolution)[None, :, None, None]
    shown = [
        np.where(resolved, motion.residual * np.sqrt(weight)[:, :, None, None], np.nan)
        for motion, weight in zip(motions, importance, strict=True)
    ]
    found = diagnose(
        [residual.reshape(len(residual), -1) for residual in shown],
        [_near(found) for found in problem.impacts],
        noise,
        problem.noise,
        np.array([True, problem.recording.has_velocity]),
        _half_ranges(problem.recording),
        by_gap=by_gap,
        lost=counts.message,
    )
    poor = sum(float(weight[:, 0].min()) < LESS for weight in importance)
    if 0 < poor < 0.5 * len(importance):
        runs = f"{poor} of {len(importance)} runs count" if poor > 1 else "One run counts"
        less = f"{runs} less, as the model explains {'them' if poor > 1 else 'it'} worse than the others."
        found = found._replace(messages=(*found.messages, less))
    if not _unusable(found):
        return found
    squares = [float(np.nanmean(motion.residual**2)) for motion in motions]
    left_out = counts.left_out / max(counts.total - counts.missing, 1)
    cause = likely_cause(problem.recording, problem.impacts, squares, left_out)
    return found._replace(messages=(f"The fit failed. {cause}", *found.messages))


def _importance(recording: Recording, partition: Partition, weight: np.ndarray) -> list[np.ndarray]:
    """The weights of the samples of every run, (samples, 2): those of their segments."""
    result = [np.ones((len(run), 2)) for run in recording.runs]
    for row, (index, start, size) in enumerate(zip(*partition[:3], strict=True)):
        result[index][start : start + size] = weight[row]
    return result


def _wider(covariance: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    """The covariance with standard deviations raised to those of the sandwich estimator if these are larger.

    Both agree if the model explains the data; if it does not, runs differ by more than the noise.
    """
    diagonals = [np.maximum(np.diagonal(matrix), 1e-300) for matrix in (covariance, scatter)]
    factor = np.sqrt(np.maximum(diagonals[1] / diagonals[0], 1.0))
    return covariance * factor[:, None] * factor[None, :]


def _motions(
    recording: Recording, partition: Partition, motion: State, segments: Segments, noise: np.ndarray
) -> tuple[Motion, ...]:
    """Concatenate the segments of every run."""
    measured = slice(len(segments.observed))  # the rest is padding
    predicted = np.stack([np.asarray(part)[measured] for part in (motion.position, motion.velocity)], axis=2)
    residuals = np.where(segments.known, predicted - segments.observed, np.nan) / noise[None, :, None, None]
    result = []
    for index, run in enumerate(recording.runs):
        states, residual = (np.full((len(run), *part.shape[2:]), np.nan) for part in (predicted, residuals))
        for row in np.flatnonzero(partition.run == index):
            start, size = partition.sample[row], partition.size[row]
            states[start : start + size] = predicted[row, :size]
            residual[start : start + size] = residuals[row, :size]
        result.append(Motion(states[:, 0], states[:, 1], residual))
    return tuple(result)


def _half_ranges(recording: Recording) -> np.ndarray:
    """Half the range of positions and of velocities, the greatest over all coordinates."""
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
    """Samples within `width` steps of an impact."""
    impact = np.any(found.chosen, axis=1).astype(float)
    steps = np.convolve(impact, np.ones(2 * width), "full")[width - 1 :][: len(impact)] > 0
    return np.concatenate([steps[:1], steps])


def _between_arrivals(
    model: Mechanism, motions: Sequence[Motion], prescriptions: Sequence[Prescription]
) -> tuple[Mechanism, np.ndarray]:
    """Surfaces in the middle of the interval between tested positions with and without contact; half-widths.

    The CD-Lagrange step determines them no better: a contact occurs wherever the tested position is below.
    """
    stepper = model.stepper
    assert isinstance(stepper, CDLagrange)
    offset = np.array(model.geometry.offset)
    closed, opened = [[[] for _ in offset] for _ in range(2)]
    for motion, prescription in zip(motions, prescriptions, strict=True):
        tested = motion.position[:-1]
        if stepper.detection == "arrival":
            tested = tested + model.step_size * motion.velocity[:-1]
        height = np.asarray(jax.vmap(model.geometry.gap)(jnp.asarray(tested))) + offset
        for j in range(len(offset)):
            contact = prescription.modes[:, j] == PRESCRIBED
            closed[j] += list(height[contact, j])
            opened[j] += list(height[~contact, j])
    half_widths = np.full(offset.shape, np.inf)
    for j in range(len(offset)):
        if closed[j]:
            highest = max(closed[j])
            above = [value for value in opened[j] if value > highest]
            offset[j] = 0.5 * (highest + min(above)) if above else highest
            half_widths[j] = 0.5 * (min(above) - highest) if above else np.inf
    return eqx.tree_at(lambda m: at(SURFACES)(m)[0], model, jnp.asarray(offset)), half_widths
