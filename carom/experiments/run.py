"""Running the paper's experiments: all seeds of a model train together, and what is finished is kept."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import carom
from carom.atomic import atomic_write
from carom.data import Recording, add_noise
from carom.data.recording import run_from_trajectory
from carom.evaluation import contact_score, fit_oracle, paper_rmse, position_rmse, velocity_rmse
from carom.experiments.fingerprint import fingerprint
from carom.experiments.paper import Experiment, Protocol
from carom.experiments.published import published_motion
from carom.experiments.workers import Task, Tell, run_tasks
from carom.learning import fit_many
from carom.mechanics import Scene
from carom.models import MODELS, AbstractModel, CDLagrangeNetwork, VariationalIntegratorNetwork, forecast
from carom.systems import AbstractSystem, BentBall, BouncingBall, NewtonsCradle
from carom.types import State, Trajectory

HELD_OUT_STARTS = 50


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


def held_out_starts(system: AbstractSystem, count: int = HELD_OUT_STARTS) -> list[State]:
    """Start states that no recording starts from, inside the range of energies that recordings visit."""
    generator = np.random.default_rng(2021)
    if isinstance(system, BentBall):
        positions, velocities = generator.uniform(2, 5, (count, 1)), generator.uniform(-1, 1, (count, 1))
    elif isinstance(system, BouncingBall):
        positions, velocities = generator.uniform(4, 9.5, (count, 1)), generator.uniform(-2, 2, (count, 1))
    elif isinstance(system, NewtonsCradle):
        positions, velocities = np.zeros((count, 2)), np.zeros((count, 2))
        velocities[:, 0] = generator.uniform(1.2, 1.9, count)
    else:
        positions, velocities = generator.uniform(-0.9, 0.9, (count, 1)), generator.uniform(-1, 1, (count, 1))
    return [
        State(jnp.asarray(q[:, None], jnp.float32), jnp.asarray(v[:, None], jnp.float32))
        for q, v in zip(positions, velocities, strict=True)
    ]


def held_out_forecasts(
    model: AbstractModel, starts: Sequence[State], motions: Sequence[Trajectory]
) -> tuple[list[float], int]:
    """Errors from held-out starts, and the impacts there that come at a wrong sample, or not, or unasked."""
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    predicted = _forecasts(model, stacked, len(motions[0].time) - 1)
    errors, wrong = [], 0
    for index, motion in enumerate(motions):
        one = jax.tree.map(lambda x, i=index: x[i], predicted)
        errors.append(paper_rmse(one, motion, velocities=model.predicts_velocity))
        if motion.contact.shape[1] and one.contact.shape[1]:
            score = contact_score(np.asarray(one.contact[:, 0]) > 0.5, motion.contact[:, 0])
            wrong += score.mistimed + score.missed + score.spurious
    return errors, wrong


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
    started = time.perf_counter()
    fits = fit_many(models, recordings, settings, seeds=unit.seeds, progress=tell)
    seconds = time.perf_counter() - started

    steps = experiment.samples(protocol) - 1
    starts = held_out_starts(experiment.system)
    held_out = [_motion(experiment, protocol, experiment.system, start) for start in starts]
    stacked_starts = jax.tree.map(lambda *x: jnp.stack(x), _single(experiment.system.start), *starts)
    predicted = [_forecasts(fit.model, stacked_starts, steps) for fit in fits]
    rows = [
        _row(unit, seed, fit.model, motions, truth, held_out)
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
        "seconds": seconds,
        "steps_per_seed": unit.gradient_steps // len(unit.seeds),
        "versions": {"carom": carom.__version__, "jax": jax.__version__},
        "device": jax.devices()[0].device_kind,
        "fingerprint": unit.fingerprint,
        "rows": rows,
    }
    arrays = _illustration(experiment, truth, recorded, fits, predicted)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / f"{unit.stem}.npz") as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    with atomic_write(folder / f"{unit.stem}.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=1) + "\n")
    return summary


def _row(unit: Unit, seed: int, model: AbstractModel, motions, truth: Trajectory, held_out) -> dict[str, Any]:
    """All scores of one seed; index 0 of `motions` starts where the recording does, the rest are held out."""
    velocities = model.predicts_velocity
    first = jax.tree.map(lambda x: x[0], motions)
    errors = [
        paper_rmse(jax.tree.map(lambda x, i=i: x[i + 1], motions), motion, velocities=velocities)
        for i, motion in enumerate(held_out)
    ]
    row: dict[str, Any] = {
        "seed": seed,
        "paper_rmse": paper_rmse(first, truth, velocities=velocities),
        "position_rmse": position_rmse(first, truth),
        "velocity_rmse": velocity_rmse(first, truth),
        "held_out_paper_rmse": errors,
    }
    if first.contact.shape[1]:
        score = contact_score(np.asarray(first.contact[:, 0]) > 0.5, truth.contact[:, 0])
        row |= {
            "true_impacts": score.true_events,
            "mistimed": score.mistimed,
            "missed": score.missed,
            "spurious": score.spurious,
            "highest_contact_probability": float(np.max(first.contact)),
        }
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        learned, true = _slopes(model, unit.experiment.system, _slope_grid(truth))
        row["slope_rmse"] = float(np.sqrt(np.mean((learned - true) ** 2)))
        row["slope_range"] = float(np.ptp(learned))
    if isinstance(model, CDLagrangeNetwork) and model.learned_damping is not None:
        row["damping"] = float(model.learned_damping()[0, 0])
    return row


@eqx.filter_jit
def _forecasts(model: AbstractModel, starts: State, steps: int):
    return jax.vmap(lambda start: forecast(model, start, steps))(starts)


def _slope_grid(truth: Trajectory) -> np.ndarray:
    """101 positions across the range of the motion, all coordinates together."""
    low, high = truth.position.min(axis=0), truth.position.max(axis=0)
    return low + np.linspace(0, 1, 101)[:, None, None] * (high - low)


def _slopes(model, system: AbstractSystem, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∂U/∂q as learned and as it is."""
    places = jnp.asarray(grid, jnp.float32)
    return np.asarray(jax.vmap(model.potential.gradient)(places)), np.asarray(
        jax.vmap(jax.grad(system.potential))(places)
    )


def _illustration(
    experiment: Experiment, truth: Trajectory, recorded, fits, predicted
) -> dict[str, np.ndarray]:
    """What the figures need, for all seeds."""
    noisy = recorded[0][0].runs[0]
    arrays = {
        "time": truth.time,
        "truth_position": truth.position,
        "truth_velocity": truth.velocity,
        "truth_contact": truth.contact,
        "data_position": noisy.position,
        "data_velocity": noisy.velocity,
        "forecast_position": np.stack([motions.position[0] for motions in predicted]),
        "forecast_velocity": np.stack([motions.velocity[0] for motions in predicted]),
        "forecast_contact": np.stack([motions.contact[0] for motions in predicted]),
        "state_loss": np.stack([fit.history.state for fit in fits]),
    }
    model = fits[0].model
    if model.contact.size:
        states = State(
            jnp.asarray(truth.position[:-1], jnp.float32), jnp.asarray(truth.velocity[:-1], jnp.float32)
        )
        on_truth = [jax.nn.sigmoid(jax.vmap(fit.model.contact_logits)(states)) for fit in fits]
        arrays["contact_on_truth"] = np.stack([np.asarray(values) for values in on_truth])
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        grid = _slope_grid(truth)
        learned = [_slopes(fit.model, experiment.system, grid) for fit in fits]
        arrays |= {
            "slope_grid": grid,
            "slope_true": learned[0][1],
            "slope_learned": np.stack([slope for slope, _ in learned]),
        }
    return {
        name: values.astype(np.float32) if values.dtype == np.float64 else values
        for name, values in arrays.items()
    }


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


def _single(state: State) -> State:
    return jax.tree.map(lambda x: x.astype(jnp.float32), state)


def _finished(unit: Unit, folder: Path) -> dict[str, Any] | None:
    path = folder / f"{unit.stem}.json"
    if not path.exists() or not path.with_suffix(".npz").exists():
        return None
    summary = json.loads(path.read_text())
    return summary if summary.get("fingerprint") == unit.fingerprint else None
