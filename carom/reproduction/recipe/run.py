"""The experiments and the grid: fits by every recipe, scored against the truth and beside the oracle."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from carom.data import Recording
from carom.estimation import LatentFit, fit_latent_many
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.evaluation.metrics import Motion
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback
from carom.execution.tasks import Result, Task, checkpoint_directory
from carom.models import MODELS, AbstractModel, Forecast, forecast, forecast_many
from carom.reproduction.paper.scores import held_out_forecasts, held_out_starts, single
from carom.reproduction.recipe.configuration import (
    EXPERIMENTS,
    FORECAST_STEPS,
    GRID_BALL,
    LEARNERS,
    PAPER_BALL,
    Experiment,
    Trial,
    find_names,
)
from carom.storage.fingerprint import fingerprint
from carom.systems import AbstractSystem, BouncingBall
from carom.training import fit_many
from carom.types import State, Trajectory

TOGETHER = 5
"""Seeds that are fitted as one batch on a processor."""
Metrics = dict[str, float]


def experiment_tasks(names: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Task]:
    """The experiments whose names begin with one of `names`, each group of seeds a task."""
    # A processor core gains nothing from a large batch, and small ones are easier to share out.
    together = TOGETHER if jax.default_backend() == "cpu" else len(seeds)
    groups = [tuple(seeds[first : first + together]) for first in range(0, len(seeds), together)]
    tasks = []
    for name in find_names(names, EXPERIMENTS):
        experiment = EXPERIMENTS[name]
        for group in groups:
            path = folder / f"{name}.seeds-{group[0]}-{group[-1]}.json"
            arguments = name, group, checkpoint_directory(path)
            weight = experiment.steps * experiment.runs * len(group)
            tasks.append(Task(_run_experiment, arguments, weight, path, fingerprint(experiment, group)))
    return tasks


def _run_experiment(name: str, seeds: tuple[int, ...], checkpoints: Path, report: ProgressCallback) -> Result:
    experiment = EXPERIMENTS[name]
    recordings = [experiment.record(seed) for seed in seeds]
    given = [experiment.starts(seed) for seed in seeds] if experiment.start_given else None
    fits = fit_latent_many(
        recordings, experiment.settings, starts=given, seeds=seeds, checkpoints=checkpoints
    )
    report(0.7)
    starts = held_out_starts(experiment.system, 50 if experiment.oracle else 5)
    truth = experiment.motion(experiment.system, experiment.system.start)
    held_out = [experiment.motion(experiment.system, start) for start in starts]
    known: dict[str, Any] = {"experiment": name, "truth": experiment.truth, "noise": experiment.noise}
    ours = {
        "model": "carom",
        "recipe": "carom",
        "touch": experiment.touch,
        "start": "known" if experiment.start_given else "estimated",
        "velocities": "recorded" if experiment.velocities else "none",
    }
    rows = []
    for done, (seed, fit, recording) in enumerate(zip(seeds, fits, recordings, strict=True)):
        known["seed"] = seed
        errors, wrong = held_out_forecasts(fit.model, starts, held_out)
        metrics = {"held_out_median": float(np.median(errors)), "held_out_wrong": wrong}
        predicted = forecast(fit.model, single(experiment.system.start), experiment.steps)
        metrics["paper_rmse"] = paper_rmse(predicted, truth)
        if truth.contact.shape[1]:
            metrics |= impact_metrics(np.asarray(predicted.contact[:, 0]) > 0.5, truth.contact[:, 0])
        metrics |= fit_metrics(fit) | _slope_metrics(experiment, fit, truth)
        rows += tidy_rows(known | ours, metrics)
        if experiment.oracle:
            for model, scores in _oracles(experiment, seed, recording, truth, starts, held_out).items():
                rows += tidy_rows(known | {"model": model}, scores)
        report(0.7 + 0.3 * done / len(seeds))
    return {"rows": rows}


def fit_metrics(fit: LatentFit) -> Metrics:
    """What a fit says of itself: whether it failed, how it was found, noise and parameters with errors."""
    metrics: dict[str, float | None] = {
        "failed": fit.failed,
        "contacts_by_gap": fit.free,
        "cd_lagrange": fit.model.scheme == "cd_lagrange",
        "found_impacts": int(sum(impacts.chosen.sum() for impacts in fit.impacts)),
        "warnings": len(fit.misfit.messages),
        "position_noise": fit.noise[0],
        "velocity_noise": fit.noise[1],
        "seconds": fit.seconds,
    }
    for parameter in fit.parameters:
        name = parameter.name.split()[0]  # "restitution of body 1 at the wall"
        metrics |= {name: parameter.value, f"{name}_error": parameter.standard_error}
        metrics |= {f"{name}_low": parameter.low, f"{name}_high": parameter.high}
    # What the data do not determine is not measured, rather than infinite.
    return {name: value for name, value in metrics.items() if value is not None and np.isfinite(value)}


def impact_metrics(predicted: Bool[np.ndarray, "samples"], true: Bool[np.ndarray, "samples"]) -> Metrics:
    """Impacts of a forecast against those of the truth."""
    score = contact_score(predicted, true)
    return {
        "impacts": score.true_events,
        "mistimed": score.mistimed,
        "missed": score.missed,
        "spurious": score.spurious,
    }


def _slope_metrics(experiment: Experiment, fit: LatentFit, truth: Trajectory) -> Metrics:
    """The error of ∂U/∂q over the samples, as a share of its range there."""
    positions = jnp.asarray(truth.position, jnp.float32)
    learned = np.asarray(jax.vmap(fit.model.slope)(positions))
    true = np.asarray(jax.vmap(jax.grad(experiment.system.potential))(positions))
    span, size = max(float(np.ptp(true)), 1e-9), float(np.abs(true).max())
    # A constant force has no range; its size stands in.
    scale = span if span > 1e-3 * size else size
    error = np.abs(learned - true)
    return {
        "slope_rmse_share": float(np.sqrt(np.mean(error**2)) / scale),
        "slope_95_share": float(np.quantile(error, 0.95) / scale),
    }


def _oracles(
    experiment: Experiment, seed: int, recording: Recording, truth: Trajectory, starts, held_out
) -> dict[str, Metrics]:
    """The true equations with gravity fitted to the same recording, forecasting from the same starts.

    Where the learner has to find the floor, a second oracle has to find it too.
    """
    system, motion = experiment.system, experiment.motion

    def fitted(bounds: dict[str, tuple[float, float]]) -> AbstractSystem:
        given = experiment.starts(seed)
        return fit_oracle(system, recording, bounds=bounds, starts=given, solve=motion, grid=17).system

    def median_error(oracle: AbstractSystem) -> float:
        pairs = zip(starts, held_out, strict=True)
        return float(np.median([paper_rmse(motion(oracle, start), true) for start, true in pairs]))

    gravity = {"gravity": (9.6, 10.0)}
    oracle = fitted(gravity)
    error = paper_rmse(motion(oracle, system.start), truth)
    found = {"oracle": {"paper_rmse": error, "held_out_median": median_error(oracle)}}
    if isinstance(system, BouncingBall) and experiment.learned.gap and experiment.truth == "exact":
        without_floor = fitted(gravity | {"radius": (-0.15, 0.15)})
        found["oracle, floor estimated"] = {"held_out_median": median_error(without_floor)}
    return found


def grid_tasks(trials: Sequence[Trial], seeds: Sequence[int], folder: Path) -> list[Task]:
    """The trials of the grid, all seeds of one together, and the error of the CD-Lagrange step itself."""
    mark = fingerprint("scheme", GRID_BALL, FORECAST_STEPS)
    tasks = [Task(_run_scheme, weight=0.1, path=folder / "scheme.json", fingerprint=mark)]
    for trial in trials:
        learner = LEARNERS[trial.learner]
        settings = trial.training if learner.recipe == "paper" else trial.experiment.settings
        path = folder / f"{trial.learner}.noise-{trial.noise:g}.bounces-{trial.bounces}.json"
        mark = fingerprint(trial, learner._asdict(), trial.experiment, settings, FORECAST_STEPS, tuple(seeds))
        arguments = trial, tuple(seeds), checkpoint_directory(path)
        tasks.append(Task(_run_trial, arguments, trial.cost, path, mark))
    return tasks


def _run_scheme(report: ProgressCallback) -> Result:
    """What the CD-Lagrange step, which the paper's network has, costs with the true gravity and floor."""
    ball = GRID_BALL.system
    scheme = ball.scheme(ball.start, steps=FORECAST_STEPS, step_size=GRID_BALL.step_size)
    error = paper_rmse(scheme, _exact_forecast(ball, ball.start))
    return {"rows": tidy_rows({"experiment": "grid", "model": "scheme"}, {"paper_rmse": error})}


def _run_trial(trial: Trial, seeds: tuple[int, ...], checkpoints: Path, report: ProgressCallback) -> Result:
    experiment, learner = trial.experiment, LEARNERS[trial.learner]
    recordings = [experiment.record(seed) for seed in seeds]
    system = experiment.system
    starts = [single(system.start), *held_out_starts(system, trial.held_out)]
    truths = [_exact_forecast(system, start) for start in starts]
    job = _Job(trial, recordings, seeds, starts, checkpoints, report)
    fitted = {"carom": _by_carom, "paper": _by_paper, "oracle": _by_oracle}[learner.recipe](job)
    known = {
        "experiment": "grid",
        "model": trial.learner,
        "recipe": learner.recipe,
        "touch": learner.touch,
        "noise": trial.noise,
        "bounces": trial.bounces,
    }
    rows = []
    for seed, (forecasts, details) in zip(seeds, fitted, strict=True):
        error, *others = [paper_rmse(one, truth) for one, truth in zip(forecasts, truths, strict=True)]
        metrics = {"paper_rmse": error, "held_out_median": float(np.median(others))}
        metrics |= impact_metrics(rises(forecasts[0]), rises(truths[0]))
        rows += tidy_rows(known | {"seed": seed}, metrics | details)
    return {"rows": rows}


class _Job(NamedTuple):
    """What a recipe is given in one trial."""

    trial: Trial
    recordings: list[Recording]
    seeds: Sequence[int]
    starts: list[State]
    checkpoints: Path
    report: ProgressCallback


_Fitted = tuple[list[Motion], Metrics]
"""Forecasts of one seed from every start, and metrics of its fit."""


def _by_carom(job: _Job) -> list[_Fitted]:
    settings = job.trial.experiment.settings
    fits = fit_latent_many(job.recordings, settings, seeds=job.seeds, checkpoints=job.checkpoints)
    return [(_forecasts(fit.model, job.starts), fit_metrics(fit)) for fit in fits]


def _by_paper(job: _Job) -> list[_Fitted]:
    settings, name = job.trial.training, LEARNERS[job.trial.learner].model
    kind, options = MODELS[PAPER_BALL.trained[name].model], PAPER_BALL.options("published", name)
    models = [
        kind.for_recording(recording, key=jax.random.key(seed), **options)
        for recording, seed in zip(job.recordings, job.seeds, strict=True)
    ]
    fits = fit_many(
        models, job.recordings, settings, seeds=job.seeds, progress=job.report, checkpoints=job.checkpoints
    )
    details = {"training_steps": job.trial.training_steps, "epochs": settings.epochs}
    return [
        (
            _forecasts(fit.model, job.starts),
            {"failed": fit.failed, "seconds": fit.seconds / len(fits)} | details,
        )
        for fit in fits
    ]


def _by_oracle(job: _Job) -> list[_Fitted]:
    experiment, found = job.trial.experiment, []
    for recording in job.recordings:
        fit = fit_oracle(
            experiment.system, recording, bounds={"gravity": (9.0, 10.6)}, solve=experiment.motion
        )
        found.append(([_exact_forecast(fit.system, start) for start in job.starts], fit.parameters))
        job.report(len(found) / len(job.recordings))
    return found


def _forecasts(model: AbstractModel, starts: list[State]) -> list[Motion]:
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    together = jax.tree.map(np.asarray, forecast_many(model, stacked, FORECAST_STEPS))
    return [Forecast(*(part[index] for part in together)) for index in range(len(starts))]


def _exact_forecast(system: AbstractSystem, start: State) -> Trajectory:
    return replace(GRID_BALL, steps=FORECAST_STEPS).motion(system, start)


def rises(motion: Motion) -> Bool[np.ndarray, "samples"]:
    """Samples at which the ball has begun to rise: bounces, also of models without contacts.

    Example:
        >>> ball = GRID_BALL.system
        >>> motion = ball.exact(ball.start, np.arange(100) * 0.02)
        >>> bool((rises(motion) == motion.contact[:, 0]).all())
        True
    """
    velocity = np.asarray(motion.velocity)[:, 0, 0]
    return np.concatenate([[False], (velocity[:-1] < 0) & (velocity[1:] > 0)])
