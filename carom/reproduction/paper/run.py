"""Running the paper's experiments: all seeds of a model train together, and what is finished is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from carom.data import Recording, add_noise
from carom.data.recording import run_from_trajectory
from carom.evaluation import fit_oracle, paper_rmse
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback
from carom.execution.tasks import Result, Task, checkpoint_directory
from carom.models import MODELS, forecast_many
from carom.reproduction.paper.experiments import ABLATIONS, ORACLE, Experiment, Protocol
from carom.reproduction.paper.published import published_motion
from carom.reproduction.paper.scores import figure_arrays, held_out_starts, score, single
from carom.storage.fingerprint import fingerprint
from carom.storage.result_file import write_arrays
from carom.systems import AbstractSystem
from carom.training import train_many
from carom.types import State, Trajectory

ORACLE_COST = 0.1
"""Work of the oracle relative to the training of one model of the experiment, roughly."""


@dataclass(frozen=True)
class Trial:
    """One model of one experiment under one protocol, with all its seeds."""

    experiment_name: str
    experiment: Experiment
    protocol: Protocol
    model_name: str
    seeds: tuple[int, ...]

    @property
    def label(self) -> str:
        return f"{self.experiment_name}, {self.protocol}, {self.model_name}"

    @property
    def gradient_steps(self) -> int:
        """Updates of the weights, of all seeds together."""
        settings = self.experiment.settings(self.protocol, self.model_name)
        windows = (self.experiment.samples(self.protocol) - settings.horizon - 1) // settings.stride + 1
        return settings.epochs * -(-windows // settings.batch_size) * len(self.seeds)

    @property
    def cost(self) -> float:
        """Work to do, for the order of tasks and the estimate of the time left."""
        return float(self.gradient_steps * self.experiment.settings(self.protocol, self.model_name).horizon)

    def shortened(self, share: float) -> "Trial":
        """The same with a share of the epochs."""
        experiment = self.experiment
        epochs = max(1, round(share * experiment.epochs))
        published = max(1, round(share * experiment.published_epochs))
        return replace(self, experiment=replace(experiment, epochs=epochs, published_epochs=published))

    @property
    def fingerprint(self) -> str:
        """Changes with everything that the result depends on."""
        settings = self.experiment.settings(self.protocol, self.model_name)
        options = self.experiment.options(self.protocol, self.model_name)
        return fingerprint(self.experiment, self.protocol, self.model_name, self.seeds, settings, options)


def plan(
    experiments: Mapping[str, Experiment], protocols: Sequence[Protocol], seeds: Sequence[int]
) -> list[Trial]:
    """All trials of some experiments."""
    return [
        Trial(name, experiment, protocol, model, tuple(seeds))
        for name, experiment in experiments.items()
        for protocol in protocols
        for model in experiment.trained
    ]


def paper_tasks(trials: Sequence[Trial], folder: Path) -> list[Task]:
    """The training of every trial, and the oracle of every experiment and protocol."""
    tasks: list[Task] = []
    recorded: dict[tuple[str, Protocol], Trial] = {}
    for trial in trials:
        path = folder / f"{trial_stem(trial.experiment_name, trial.protocol, trial.model_name)}.json"
        tasks.append(Task(_train, (trial, path), trial.cost, path, trial.fingerprint))
        # Without noise the oracle is the truth, and an ablation has the recordings of its experiment.
        if trial.experiment.noise > 0 and trial.experiment_name not in ABLATIONS:
            recorded.setdefault((trial.experiment_name, trial.protocol), trial)
    for (name, protocol), trial in recorded.items():
        # Without the models and their epochs, which the oracle does not depend on.
        known = replace(trial.experiment, epochs=0, published_epochs=0, trained={})
        path = folder / f"{trial_stem(name, protocol, ORACLE)}.json"
        mark = fingerprint(known, protocol, trial.seeds)
        tasks.append(Task(_fit_oracles, (trial,), ORACLE_COST * trial.cost, path, mark))
    return tasks


def trial_stem(experiment: str, protocol: str, model: str) -> str:
    """The name of a trial's files.

    Example:
        >>> trial_stem("ball", "text", "CD-Lagrange (no touch)")
        'ball.text.CD-Lagrange_no_touch'
    """
    words = "".join(c if c.isalnum() or c in ".-" else " " for c in model).split()
    return f"{experiment}.{protocol}.{'_'.join(words)}"


def record(experiment: Experiment, protocol: Protocol, seed: int) -> tuple[Recording, Trajectory]:
    """The noisy recording of one seed, and the motion behind it."""
    motion = _motion(experiment, protocol, experiment.system, experiment.system.start)
    scene = experiment.system.scene(velocity_grid="sample", projection=experiment.projection)
    clean = Recording((run_from_trajectory(motion, scene),), experiment.step_size, scene)
    return add_noise(clean, experiment.noise, seed=seed), motion


def _motion(experiment: Experiment, protocol: Protocol, system: AbstractSystem, start: State) -> Trajectory:
    return published_motion(
        system,
        start,
        experiment.samples(protocol) - 1,
        experiment.step_size,
        grid_stretch=experiment.grid_stretch if protocol == "published" else 1.0,
    )


def _train(trial: Trial, path: Path, report: ProgressCallback) -> Result:
    """Train all seeds of a trial; rows of metrics are returned, arrays for the figures are written."""
    experiment, protocol, name = trial.experiment, trial.protocol, trial.model_name
    trained, system = experiment.trained[name], experiment.system
    settings, options = experiment.settings(protocol, name), experiment.options(protocol, name)
    recordings = [_with_scene(record(experiment, protocol, seed)[0], trained.scene) for seed in trial.seeds]
    models = [
        MODELS[trained.model].for_recording(recording, key=jax.random.key(seed), **options)
        for recording, seed in zip(recordings, trial.seeds, strict=True)
    ]
    fits = train_many(
        models,
        recordings,
        settings,
        seeds=trial.seeds,
        progress=report,
        checkpoints=checkpoint_directory(path),
    )
    starts = [single(system.start), *held_out_starts(system)]
    # The truth of the recorded start is in double precision, as the data are.
    truths = [_motion(experiment, protocol, system, start) for start in [system.start, *starts[1:]]]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    predicted = [forecast_many(fit.model, stacked, experiment.samples(protocol) - 1) for fit in fits]
    has_contacts = trained.model in ("cd-lagrange", "contact-resnet")
    keys = _keys(trial, name) | {"recipe": "paper", "touch": settings.touch if has_contacts else "none"}
    rows = []
    for seed, fit, motions in zip(trial.seeds, fits, predicted, strict=True):
        metrics = score(fit.model, system, motions, truths) | {"seconds": fit.seconds / len(fits)}
        rows += tidy_rows(keys | {"seed": seed}, metrics)
    arrays = figure_arrays(system, truths[0], recordings[0].runs[0], [fit.model for fit in fits], predicted)
    write_arrays(path.with_suffix(".npz"), arrays)
    return {"rows": rows}


def _fit_oracles(trial: Trial, report: ProgressCallback) -> Result:
    """The error of the true equations with gravity fitted to each seed's recording."""
    experiment, protocol = trial.experiment, trial.protocol
    system, start = experiment.system, experiment.system.start

    def solve(candidate: AbstractSystem, start: State, steps: int) -> Trajectory:
        return _motion(experiment, protocol, candidate, start)

    rows = []
    for done, seed in enumerate(trial.seeds):
        report(done / len(trial.seeds))
        recording, truth = record(experiment, protocol, seed)
        fit = fit_oracle(system, recording, bounds={"gravity": (9.0, 10.6)}, solve=solve)
        error = paper_rmse(_motion(experiment, protocol, fit.system, start), truth)
        rows += tidy_rows(_keys(trial, ORACLE) | {"seed": seed}, {"paper_rmse": error})
    return {"rows": rows}


def _keys(trial: Trial, model: str) -> dict[str, Any]:
    return {
        "experiment": trial.experiment_name,
        "model": model,
        "protocol": trial.protocol,
        "truth": "published",
    }


def _with_scene(recording: Recording, changes: dict[str, Any]) -> Recording:
    """The recording with a changed scene."""
    assert recording.scene is not None
    return recording.with_scene(replace(recording.scene, **changes)) if changes else recording
