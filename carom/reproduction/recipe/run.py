"""The experiments and the grid: fits by every recipe, scored against the truth and beside the oracle."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from carom.data import Recording
from carom.errors import find_names
from carom.estimation import Fit, fit_recordings
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.evaluation.metrics import Motion
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback, Result, Task, checkpoint_directory
from carom.models import AbstractModel, forecast
from carom.reproduction import scores
from carom.reproduction.paper.data import held_out_starts
from carom.reproduction.paper.run import untrained
from carom.reproduction.recipe import configuration as config
from carom.reproduction.recipe.configuration import Experiment, Trial
from carom.reproduction.scores import Metrics, fit_metrics, parameter_metrics
from carom.storage.fingerprint import fingerprint
from carom.systems import AbstractSystem, BouncingBall
from carom.training import train_many
from carom.types import State, Trajectory

TOGETHER = 5
"""Seeds that are fitted as one batch on a processor."""


def experiment_tasks(names: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Task]:
    """The experiments whose names begin with one of `names`, each group of seeds a task."""
    # A processor core gains nothing from a large batch, and small ones are easier to share out.
    together = TOGETHER if jax.default_backend() == "cpu" else len(seeds)
    groups = [tuple(seeds[first : first + together]) for first in range(0, len(seeds), together)]
    tasks = []
    for name in find_names(names, config.EXPERIMENTS):
        experiment = config.EXPERIMENTS[name]
        for group in groups:
            path = folder / f"{name}.seeds-{group[0]}-{group[-1]}.json"
            arguments = name, group, checkpoint_directory(path)
            weight = experiment.steps * experiment.runs * len(group)
            tasks.append(Task(_run_experiment, arguments, weight, path, fingerprint(experiment, group)))
    return tasks


def _run_experiment(name: str, seeds: tuple[int, ...], checkpoints: Path, report: ProgressCallback) -> Result:
    experiment = config.EXPERIMENTS[name]
    recordings = [experiment.record(seed) for seed in seeds]
    given = [experiment.starts(seed) for seed in seeds] if experiment.start_given else None
    fits = fit_recordings(recordings, experiment.settings, starts=given, seeds=seeds, checkpoints=checkpoints)
    report(0.7)
    # Exact motion in a bent potential is integrated numerically, which takes long.
    starts = held_out_starts(experiment.system, 50 if experiment.oracle else 5)
    truth = experiment.motion(experiment.system, experiment.system.start)
    held_out = [experiment.motion(experiment.system, start) for start in starts]
    known: dict[str, Any] = {"experiment": name, "truth": experiment.truth, "noise": experiment.noise}
    start = "known" if experiment.start_given else "estimated"
    ours = {"model": "carom", "recipe": "carom", "touch": experiment.touch, "start": start}
    ours["velocities"] = "recorded" if experiment.velocities else "none"
    rows = []
    for done, (seed, fit, recording) in enumerate(zip(seeds, fits, recordings, strict=True)):
        known["seed"] = seed
        predicted = forecast(fit.model, scores.single(experiment.system.start), experiment.steps)
        ahead = list(zip(scores.forecast_each(fit.model, starts, experiment.steps), held_out, strict=True))
        metrics: Metrics = {"held_out_median": float(np.median([paper_rmse(*pair) for pair in ahead]))}
        metrics |= {"held_out_wrong": 0, "paper_rmse": paper_rmse(predicted, truth)}
        if truth.contact.shape[1]:
            wrong = (scores.score_impacts(one, true.contact).faults for one, true in ahead)
            metrics["held_out_wrong"] = sum(wrong)
            metrics |= scores.score_impacts(predicted, truth.contact).counts
        metrics |= fit_metrics(fit) | parameter_metrics(fit) | _slope_metrics(experiment, fit, truth)
        rows += tidy_rows(known | ours, metrics)
        if experiment.oracle:
            for model, found in _oracles(experiment, seed, recording, truth, starts, held_out).items():
                rows += tidy_rows(known | {"model": model}, found)
        report(0.7 + 0.3 * done / len(seeds))
    return {"rows": rows}


def _slope_metrics(experiment: Experiment, fit: Fit, truth: Trajectory) -> Metrics:
    """The error of ∂U/∂q over the samples, as a share of its range there."""
    positions = jnp.asarray(truth.position, jnp.float32)
    learned = np.asarray(jax.vmap(fit.model.slope)(positions))
    true = np.asarray(jax.vmap(jax.grad(experiment.system.potential))(positions))
    span, size = max(float(np.ptp(true)), 1e-9), float(np.abs(true).max())
    # A constant force has no range; its size stands in.
    scale = span if span > 1e-3 * size else size
    error = np.abs(learned - true)
    rmse, tail = np.sqrt(np.mean(error**2)), np.quantile(error, 0.95)
    return {"slope_rmse_share": float(rmse / scale), "slope_95_share": float(tail / scale)}


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

    # Far wider than the standard error of any of these recordings.
    gravity = {"gravity": (9.6, 10.0)}
    oracle = fitted(gravity)
    error = paper_rmse(motion(oracle, system.start), truth)
    found = {"oracle": {"paper_rmse": error, "held_out_median": median_error(oracle)}}
    if isinstance(system, BouncingBall) and "surfaces" in experiment.learn and experiment.truth == "exact":
        without_floor = fitted(gravity | {"radius": (-0.15, 0.15)})
        found["oracle, floor estimated"] = {"held_out_median": median_error(without_floor)}
    return found


def grid_tasks(trials: Sequence[Trial], seeds: Sequence[int], folder: Path) -> list[Task]:
    """The trials of the grid, all seeds of one together, and the error of the CD-Lagrange step itself."""
    mark = fingerprint("scheme", config.GRID_BALL, config.FORECAST_STEPS)
    tasks = [Task(_run_scheme, weight=0.1, path=folder / "scheme.json", fingerprint=mark)]
    for trial in trials:
        learner = config.LEARNERS[trial.learner]
        settings = trial.training if learner.recipe == "paper" else trial.experiment.settings
        path = folder / f"{trial.learner}.noise-{trial.noise:g}.bounces-{trial.bounces}.json"
        what = trial, learner._asdict(), trial.experiment, settings
        mark = fingerprint(*what, config.FORECAST_STEPS, tuple(seeds))
        arguments = trial, tuple(seeds), checkpoint_directory(path)
        tasks.append(Task(_run_trial, arguments, trial.cost, path, mark))
    return tasks


def _run_scheme(report: ProgressCallback) -> Result:
    """What the CD-Lagrange step, which the paper's network has, costs with the true gravity and floor."""
    ball = config.GRID_BALL.system
    scheme = ball.scheme(ball.start, steps=config.FORECAST_STEPS, step_size=config.GRID_BALL.step_size)
    error = paper_rmse(scheme, _exact_forecast(ball, ball.start))
    return {"rows": tidy_rows({"experiment": "grid", "model": "scheme"}, {"paper_rmse": error})}


def _run_trial(trial: Trial, seeds: tuple[int, ...], checkpoints: Path, report: ProgressCallback) -> Result:
    experiment, learner = trial.experiment, config.LEARNERS[trial.learner]
    system = experiment.system
    starts = [scores.single(system.start), *held_out_starts(system, trial.held_out)]
    truths = [_exact_forecast(system, start) for start in starts]
    recordings = [experiment.record(seed) for seed in seeds]
    # What a learner of the paper's recipe does not see is not inferred by it either.
    touch = learner.touch if learner.recipe == "carom" or learner.touch == "observed" else "none"
    known = {"experiment": "grid", "model": trial.learner, "recipe": learner.recipe, "touch": touch}
    known |= {"noise": trial.noise, "bounces": trial.bounces}
    rows = []
    fitted = _fitted(trial, recordings, seeds, checkpoints, report)
    for seed, (found, details) in zip(seeds, fitted, strict=True):
        if isinstance(found, AbstractSystem):
            forecasts = [_exact_forecast(found, start) for start in starts]
        else:
            forecasts = scores.forecast_each(found, starts, config.FORECAST_STEPS)
        error, *others = [paper_rmse(one, truth) for one, truth in zip(forecasts, truths, strict=True)]
        metrics = {"paper_rmse": error, "held_out_median": float(np.median(others))}
        metrics |= contact_score(rises(forecasts[0]), rises(truths[0])).counts
        rows += tidy_rows(known | {"seed": seed}, metrics | details)
    return {"rows": rows}


def _fitted(
    trial: Trial, recordings, seeds, checkpoints, report
) -> list[tuple[AbstractModel | AbstractSystem, Metrics]]:
    """The model of every seed, or the oracle's system, and metrics of the fit."""
    experiment, learner = trial.experiment, config.LEARNERS[trial.learner]
    if learner.recipe == "carom":
        fits = fit_recordings(recordings, experiment.settings, seeds=seeds, checkpoints=checkpoints)
        return [(fit.model, fit_metrics(fit) | parameter_metrics(fit)) for fit in fits]
    if learner.recipe == "paper":
        models = [
            untrained(config.PAPER_BALL, "published", learner.model, recording, seed)
            for recording, seed in zip(recordings, seeds, strict=True)
        ]
        results = train_many(
            models, recordings, trial.training, seeds=seeds, progress=report, checkpoints=checkpoints
        )
        known = {"training_steps": trial.training_steps, "epochs": trial.training.epochs}
        return [
            (one.model, {"failed": bool(one.failed), "seconds": one.seconds / len(results)} | known)
            for one in results
        ]
    found = []
    for recording in recordings:
        bounds = {"gravity": (9.0, 10.6)}
        oracle = fit_oracle(experiment.system, recording, bounds=bounds, solve=experiment.motion)
        found.append((oracle.system, oracle.parameters))
        report(len(found) / len(recordings))
    return found


def _exact_forecast(system: AbstractSystem, start: State) -> Trajectory:
    return replace(config.GRID_BALL, steps=config.FORECAST_STEPS).motion(system, start)


def rises(motion: Motion) -> Bool[np.ndarray, "samples"]:
    """Samples at which the ball has begun to rise: bounces, also of models without contacts.

    Example:
        >>> ball = config.GRID_BALL.system
        >>> motion = ball.exact(ball.start, np.arange(100) * 0.02)
        >>> bool((rises(motion) == motion.contact[:, 0]).all())
        True
    """
    velocity = np.asarray(motion.velocity)[:, 0, 0]
    return np.concatenate([[False], (velocity[:-1] < 0) & (velocity[1:] > 0)])
