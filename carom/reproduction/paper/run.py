"""Running the paper's experiments: all seeds of a model train together, and what is finished is kept."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import carom
from carom.data import Recording, add_noise
from carom.data.recording import run_from_trajectory
from carom.evaluation import fit_oracle, paper_rmse
from carom.execution.tasks import unfinished
from carom.execution.workers import Task, Tell, run_tasks
from carom.mechanics import Scene
from carom.models import MODELS, forecast_many
from carom.reproduction.paper.experiments import Experiment, Protocol
from carom.reproduction.paper.published import published_motion
from carom.reproduction.paper.scores import held_out_starts, illustration, score_row, single
from carom.storage.fingerprint import fingerprint
from carom.storage.result_file import read_result, write_arrays, write_result
from carom.systems import AbstractSystem
from carom.training import train_many
from carom.types import State, Trajectory


@dataclass(frozen=True)
class Unit:
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
    def stem(self) -> str:
        words = "".join(c if c.isalnum() or c in ".-" else " " for c in self.model_name).split()
        return f"{self.experiment_name}.{self.protocol}.{'_'.join(words)}"

    @property
    def gradient_steps(self) -> int:
        """Updates of the weights, of all seeds together."""
        settings = self.experiment.settings(self.protocol, self.model_name)
        windows = (self.experiment.samples(self.protocol) - settings.horizon - 1) // settings.stride + 1
        return settings.epochs * -(-windows // settings.batch_size) * len(self.seeds)

    @property
    def cost(self) -> float:
        """Work to do, for the order of tasks and the estimate of the time left."""
        return self.gradient_steps * self.experiment.settings(self.protocol, self.model_name).horizon

    def shortened(self, share: float) -> "Unit":
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
    experiments: dict[str, Experiment], protocols: Sequence[Protocol], seeds: Sequence[int]
) -> list[Unit]:
    """All units of a reproduction."""
    return [
        Unit(name, experiment, protocol, model, tuple(seeds))
        for name, experiment in experiments.items()
        for protocol in protocols
        for model in experiment.trained
    ]


def run_units(
    units: Sequence[Unit], folder: Path, *, workers: int = 1, progress: Tell | None = None
) -> list[dict[str, Any]]:
    """Run what is not yet in `folder` and give the summary of every unit; a killed run continues here."""
    summaries = [_finished(unit, folder) for unit in units]
    missing = [index for index, summary in enumerate(summaries) if summary is None]
    tasks = [Task(partial(_run_unit, units[index], folder), units[index].cost) for index in missing]
    for index, summary in zip(missing, run_tasks(tasks, workers=workers, progress=progress), strict=True):
        summaries[index] = summary
    return [summary for summary in summaries if summary is not None]


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


def _run_unit(unit: Unit, folder: Path, tell: Tell) -> dict[str, Any]:
    experiment, protocol, name = unit.experiment, unit.protocol, unit.model_name
    trained = experiment.trained[name]
    settings, options = experiment.settings(protocol, name), experiment.options(protocol, name)
    recorded = [record(experiment, protocol, seed) for seed in unit.seeds]
    truth = recorded[0][1]
    recordings = [_with(recording, trained.scene) for recording, _ in recorded]
    kind = MODELS[trained.model]
    models = [
        kind.for_recording(recording, key=jax.random.key(seed), **options)
        for recording, seed in zip(recordings, unit.seeds, strict=True)
    ]
    path = folder / f"{unit.stem}.json"
    fits = train_many(
        models, recordings, settings, seeds=unit.seeds, progress=tell, checkpoints=unfinished(path)
    )

    steps = experiment.samples(protocol) - 1
    starts = held_out_starts(experiment.system)
    held_out = [_motion(experiment, protocol, experiment.system, start) for start in starts]
    stacked_starts = jax.tree.map(lambda *x: jnp.stack(x), single(experiment.system.start), *starts)
    predicted = [forecast_many(fit.model, stacked_starts, steps) for fit in fits]
    rows = [
        score_row(experiment.system, seed, fit.model, motions, truth, held_out)
        for seed, fit, motions in zip(unit.seeds, fits, predicted, strict=True)
    ]
    summary = {
        "experiment": unit.experiment_name,
        "title": experiment.title,
        "place": experiment.place,
        "model": name,
        "protocol": protocol,
        "recipe": "paper",
        "truth": "published",
        "velocity_grid": "sample",
        "touch": settings.touch if trained.model in ("cd-lagrange", "contact-resnet") else "none",
        "paper": None if trained.paper is None else list(trained.paper),
        "settings": asdict(settings),
        "options": options,
        "scene": trained.scene,
        "seconds": fits[0].seconds,
        "steps_per_seed": unit.gradient_steps // len(unit.seeds),
        "versions": {"carom": carom.__version__, "jax": jax.__version__},
        "device": jax.devices()[0].device_kind,
        "fingerprint": unit.fingerprint,
        "rows": rows,
    }
    arrays = illustration(experiment.system, truth, recorded, fits, predicted)
    write_arrays(path.with_suffix(".npz"), arrays)
    write_result(path, summary)
    shutil.rmtree(unfinished(path), ignore_errors=True)
    return summary


def oracle_errors(
    experiment: Experiment, protocol: Protocol, seeds: Sequence[int], tell: Tell
) -> list[float]:
    """The error of the true equations with gravity fitted to each seed's recording."""
    system, start = experiment.system, experiment.system.start

    def solve(candidate: AbstractSystem, start: State, steps: int) -> Trajectory:
        return _motion(experiment, protocol, candidate, start)

    errors = []
    for done, seed in enumerate(seeds):
        tell(done / len(seeds))
        recording, truth = record(experiment, protocol, seed)
        fit = fit_oracle(system, recording, bounds={"gravity": (9.0, 10.6)}, solve=solve)
        errors.append(paper_rmse(_motion(experiment, protocol, fit.system, start), truth))
    return errors


def _with(recording: Recording, changes: dict[str, Any]) -> Recording:
    """The recording with a changed scene."""
    scene: Scene | None = recording.scene
    assert scene is not None
    return recording.with_scene(replace(scene, **changes)) if changes else recording


def _finished(unit: Unit, folder: Path) -> dict[str, Any] | None:
    path = folder / f"{unit.stem}.json"
    if not path.exists() or not path.with_suffix(".npz").exists():
        return None
    summary = read_result(path)
    return summary if summary.get("fingerprint") == unit.fingerprint else None
