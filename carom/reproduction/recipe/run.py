"""The experiments and the grid: fits by every recipe, scored against the truth and beside the oracle."""

from collections.abc import Callable, Mapping, Sequence
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
from carom.execution.executor import ProgressCallback
from carom.execution.tasks import Result, Task, checkpoint_directory
from carom.models import AbstractModel, Forecast, forecast, forecast_many
from carom.reproduction.paper.data import held_out_starts, single
from carom.reproduction.paper.run import untrained
from carom.reproduction.paper.scores import held_out_forecasts
from carom.reproduction.recipe import configuration as config
from carom.reproduction.recipe.configuration import Experiment, Trial
from carom.storage.fingerprint import fingerprint
from carom.systems import AbstractSystem, BouncingBall
from carom.training import train_many
from carom.types import State, Trajectory

TOGETHER = 5
"""Seeds that are fitted as one batch on a processor."""
Metrics = dict[str, float | int]


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
        errors, wrong = held_out_forecasts(fit.model, starts, held_out)
        metrics = {"held_out_median": float(np.median(errors)), "held_out_wrong": wrong}
        predicted = forecast(fit.model, single(experiment.system.start), experiment.steps)
        metrics["paper_rmse"] = paper_rmse(predicted, truth)
        if truth.contact.shape[1]:
            metrics |= contact_score(np.asarray(predicted.contact[:, 0]) > 0.5, truth.contact[:, 0]).counts
        metrics |= fit_metrics(fit) | parameter_metrics(fit) | _slope_metrics(experiment, fit, truth)
        rows += tidy_rows(known | ours, metrics)
        if experiment.oracle:
            for model, scores in _oracles(experiment, seed, recording, truth, starts, held_out).items():
                rows += tidy_rows(known | {"model": model}, scores)
        report(0.7 + 0.3 * done / len(seeds))
    return {"rows": rows}


def fit_metrics(fit: Fit) -> Metrics:
    """What a fit says of itself: whether it failed, what it found, residuals and noise."""
    found = [int(impacts.chosen.sum()) for impacts in fit.impacts]
    return _known(
        {
            "failed": fit.failed,
            "contacts_by_gap": fit.by_gap,
            "cd_lagrange": fit.model.stepper.name == "cd_lagrange",
            "fitted_runs": len(found),
            "found_impacts": sum(found),
            "runs_with_one_impact": found.count(1),
            "set_aside": sum(not impacts.explained for impacts in fit.impacts),
            "warnings": len(fit.diagnostics.messages),
            "excess": fit.diagnostics.excess,
            "autocorrelation": fit.diagnostics.autocorrelation,
            "near_impacts": fit.diagnostics.near_impacts,
            "position_noise": fit.noise[0],
            "velocity_noise": fit.noise[1],
            "seconds": fit.seconds,
        }
    )


def parameter_metrics(fit: Fit) -> Metrics:
    """Parameters with errors and intervals.

    They are named by their first word, or by what follows a comma: "restitution of body 1 at the wall",
    "restitution between bodies 1 and 2, scatter from run to run".
    """
    metrics = {}
    for parameter in fit.parameters:
        first, _, last = parameter.name.partition(", ")
        # Tables have one column for all parameters of a kind.
        name = last or first.split()[0]
        metrics |= {name: parameter.value, f"{name}_error": parameter.standard_error}
        metrics |= {f"{name}_low": parameter.low, f"{name}_high": parameter.high}
    return _known(metrics)


def _known(metrics: Mapping[str, Any]) -> Metrics:
    """Without what the data do not determine, which would be read back as infinite."""
    return {name: value for name, value in metrics.items() if value is not None and np.isfinite(value)}


def _slope_metrics(experiment: Experiment, fit: Fit, truth: Trajectory) -> Metrics:
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
        mark = fingerprint(
            trial, learner._asdict(), trial.experiment, settings, config.FORECAST_STEPS, tuple(seeds)
        )
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
    starts = [single(system.start), *held_out_starts(system, trial.held_out)]
    truths = [_exact_forecast(system, start) for start in starts]
    recordings = [experiment.record(seed) for seed in seeds]
    # What a learner of the paper's recipe does not see is not inferred by it either.
    touch = learner.touch if learner.recipe == "carom" or learner.touch == "observed" else "none"
    known = {"experiment": "grid", "model": trial.learner, "recipe": learner.recipe, "touch": touch}
    known |= {"noise": trial.noise, "bounces": trial.bounces}
    rows = []
    fitted = _RECIPES[learner.recipe](trial, recordings, seeds, checkpoints, report)
    for seed, (found, details) in zip(seeds, fitted, strict=True):
        forecasts = _forecasts(found, starts)
        error, *others = [paper_rmse(one, truth) for one, truth in zip(forecasts, truths, strict=True)]
        metrics = {"paper_rmse": error, "held_out_median": float(np.median(others))}
        metrics |= contact_score(rises(forecasts[0]), rises(truths[0])).counts
        rows += tidy_rows(known | {"seed": seed}, metrics | details)
    return {"rows": rows}


_Fitted = tuple[AbstractModel | AbstractSystem, Metrics]
"""A model, or the oracle's system, and metrics of the fit."""


def _by_carom(trial, recordings, seeds, checkpoints, report) -> list[_Fitted]:
    fits = fit_recordings(recordings, trial.experiment.settings, seeds=seeds, checkpoints=checkpoints)
    return [(fit.model, fit_metrics(fit) | parameter_metrics(fit)) for fit in fits]


def _by_paper(trial, recordings, seeds, checkpoints, report) -> list[_Fitted]:
    settings, name = trial.training, config.LEARNERS[trial.learner].model
    models = [
        untrained(config.PAPER_BALL, "published", name, recording, seed)
        for recording, seed in zip(recordings, seeds, strict=True)
    ]
    fits = train_many(models, recordings, settings, seeds=seeds, progress=report, checkpoints=checkpoints)
    training = {"training_steps": trial.training_steps, "epochs": settings.epochs}
    return [
        (fit.model, {"failed": bool(fit.failed), "seconds": fit.seconds / len(fits)} | training)
        for fit in fits
    ]


def _by_oracle(trial, recordings, seeds, checkpoints, report) -> list[_Fitted]:
    experiment, found = trial.experiment, []
    for recording in recordings:
        bounds = {"gravity": (9.0, 10.6)}
        fit = fit_oracle(experiment.system, recording, bounds=bounds, solve=experiment.motion)
        found.append((fit.system, fit.parameters))
        report(len(found) / len(recordings))
    return found


_RECIPES: dict[str, Callable[..., list[_Fitted]]] = {
    "carom": _by_carom,
    "paper": _by_paper,
    "oracle": _by_oracle,
}


def _forecasts(fitted: AbstractModel | AbstractSystem, starts: list[State]) -> list[Motion]:
    if isinstance(fitted, AbstractSystem):
        return [_exact_forecast(fitted, start) for start in starts]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    # One program for all starts.
    together = jax.tree.map(np.asarray, forecast_many(fitted, stacked, config.FORECAST_STEPS))
    return [Forecast(*(part[index] for part in together)) for index in range(len(starts))]


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
