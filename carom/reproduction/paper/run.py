"""Running the paper's experiments: models of one shape train together, and what is finished is kept."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.data import Recording, Run
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback, Result, Task, checkpoint_directory
from carom.models import MODELS, AbstractModel, CDLagrangeNetwork, Forecast, VariationalIntegratorNetwork
from carom.reproduction.paper import experiments as paper
from carom.reproduction.paper.data import held_out_starts, motion_of, record
from carom.reproduction.paper.experiments import ALL, ORACLE, OURS, Experiment, Protocol
from carom.reproduction.scores import forecast_each, single
from carom.storage.fingerprint import fingerprint
from carom.storage.tensor_file import write_arrays
from carom.systems import AbstractSystem
from carom.training import TrainingSettings, train_many
from carom.types import State, Trajectory

ORACLE_COST = 0.1
"""Work of the oracle relative to the training of one model of the experiment, roughly."""
COUPLED_COST = 20
"""The same of a step whose contacts share bodies, relative to one whose contacts do not."""


@dataclass(frozen=True)
class Trial:
    """One model of one experiment under one protocol, with all its seeds.

    Arguments:
        experiment_name, whole: the experiment, with the recordings of its other models.
        protocol: what data and training are like.
        model_name: in the experiment.
        seeds: of noise, initial weights and minibatches.
        share: of the epochs that are trained.
    """

    experiment_name: str
    whole: Experiment
    protocol: Protocol
    model_name: str
    seeds: tuple[int, ...]
    share: float = 1.0

    @property
    def experiment(self) -> Experiment:
        """With the recordings of this model."""
        return replace(self.whole, **self.whole.trained[self.model_name].data)

    @property
    def settings(self) -> TrainingSettings:
        settings = self.experiment.settings(self.protocol, self.model_name)
        return replace(settings, epochs=max(1, round(self.share * settings.epochs)))

    @property
    def row(self) -> paper.Hyperparameters:
        return paper.HYPERPARAMETERS[self.protocol][self.experiment.trained[self.model_name].kind]

    @property
    def stem(self) -> str:
        return trial_stem(self.experiment_name, self.protocol, self.model_name)

    @property
    def windows(self) -> int:
        """Of one recording."""
        settings = self.settings
        # The last sample of the published recording is not used.
        samples = self.experiment.samples(self.protocol) - (self.protocol == "published")
        return (samples - settings.horizon - 1) // settings.stride + 1

    @property
    def gradient_steps(self) -> int:
        """Updates of the weights, of all seeds together."""
        return self.settings.epochs * -(-self.windows // self.settings.batch_size) * len(self.seeds)

    @property
    def cost(self) -> float:
        """Work to do, for the order of tasks and the estimate of the time left."""
        coupled = self.model_name == OURS and self.experiment.system.scene().geometry.coupled
        return float(self.gradient_steps * self.settings.horizon) * (COUPLED_COST if coupled else 1)

    @property
    def shape(self) -> str:
        """The same for trials that one compiled program trains together: rates, ℓ² and data may differ."""
        experiment, settings = self.experiment, replace(self.settings, l2=0.0, learning_rate=1.0)
        trained = experiment.trained[self.model_name]
        # Not the experiment's name: ablations repeat trials of the paper, beside which they cost little.
        scene = experiment.system, experiment.step_size, experiment.projection, trained.scene
        data = self.windows, experiment.true_window_starts
        options = experiment.options(self.protocol, self.model_name)
        return fingerprint(trained.kind, settings, options, scene, self.row.contacts, data)

    @property
    def fingerprint(self) -> str:
        """Changes with everything that the result depends on."""
        what = self.experiment, self.protocol, self.model_name
        return fingerprint(*what, self.seeds, self.settings, self.row)


def plan(
    names: Iterable[str], protocols: Sequence[Protocol], seeds: Sequence[int], *, share: float = 1.0
) -> list[Trial]:
    """All trials of some experiments, each trained for a share of its epochs."""
    return [
        Trial(name, ALL[name], protocol, model, tuple(seeds), share)
        for name in names
        for protocol in protocols
        if protocol in ALL[name].protocols
        for model in ALL[name].trained
    ]


def paper_tasks(trials: Sequence[Trial], folder: Path) -> list[Task]:
    """The training of every trial, and the oracle of every printed experiment and protocol."""
    together: dict[str, list[Trial]] = {}
    recorded: dict[tuple[str, Protocol], Trial] = {}
    for trial in trials:
        together.setdefault(trial.shape, []).append(trial)
        # Without noise the oracle is the truth. Many short trajectories tell it what one run of as many
        # samples does, which is far quicker to simulate.
        if trial.experiment.noise > 0 and trial.whole.printed and trial.protocol != "text":
            recorded.setdefault((trial.experiment_name, trial.protocol), trial)
    tasks: list[Task] = []
    for group in together.values():
        path = folder / f"{group[0].stem}.json"
        mark = fingerprint(*(trial.fingerprint for trial in group))
        arrays = tuple(folder / f"{trial.stem}.safetensors" for trial in group if trial.whole.printed)
        tasks.append(Task(_train, (group, path), sum(trial.cost for trial in group), path, mark, arrays))
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


def _train(group: Sequence[Trial], path: Path, report: ProgressCallback) -> Result:
    """Train all seeds of trials of one shape; metrics are returned, arrays for figures are written."""
    members = [(trial, seed) for trial in group for seed in trial.seeds]
    with _on_host():
        recordings = [record(trial.experiment, trial.protocol, seed) for trial, seed in members]
        models = [
            untrained(trial.experiment, trial.protocol, trial.model_name, recording, seed)
            for (trial, seed), recording in zip(members, recordings, strict=True)
        ]
    settings, seeds = [trial.settings for trial, _ in members], [seed for _, seed in members]
    checkpoints = checkpoint_directory(path)
    fits = train_many(models, recordings, settings, seeds=seeds, progress=report, checkpoints=checkpoints)
    rows = []
    for number, trial in enumerate(group):
        part = slice(number * len(trial.seeds), (number + 1) * len(trial.seeds))
        found = [fit.model for fit in fits[part]]
        rows += _score(trial, recordings[part][0], found, fits[0].seconds / len(fits), path)
    return {"rows": rows}


def _score(
    trial: Trial, recording: Recording, models: list[AbstractModel], seconds: float, path: Path
) -> list[dict]:
    experiment, system = trial.experiment, trial.experiment.system
    starts = [single(experiment.start), *held_out_starts(system)]
    # The truth of the recorded start is in double precision, as the data are.
    truths = [motion_of(experiment, trial.protocol, system, one) for one in [experiment.start, *starts[1:]]]
    predicted = [forecast_each(model, starts, len(truths[0].time) - 1) for model in models]
    touch = "observed" if trial.row.contacts == "touch" else "none"
    keys = _keys(trial, trial.model_name) | {"recipe": "paper", "touch": touch}
    rows = []
    with _on_host():
        for seed, model, motions in zip(trial.seeds, models, predicted, strict=True):
            metrics = score(model, system, motions, truths) | {"seconds": seconds}
            rows += tidy_rows(keys | {"seed": seed}, metrics)
        if trial.whole.printed:
            arrays = figure_arrays(system, truths[0], recording.runs, models, predicted)
            # One file per trial, though trials of a group were trained together.
            write_arrays(path.with_name(f"{trial.stem}.safetensors"), arrays)
    return rows


def _on_host() -> AbstractContextManager[object]:
    """Compute on the processor.

    Initial weights, metrics and the oracle's motions are many little operations, each a program of its own on
    a GPU.
    """
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def untrained(
    experiment: Experiment, protocol: Protocol, name: str, recording: Recording, seed: int
) -> AbstractModel:
    """One of the models of an experiment with random weights, for a recording."""
    trained = experiment.trained[name]
    assert recording.scene is not None
    # What the model is told may differ from what made the data.
    scene = replace(recording.scene, **trained.scene)
    # A contact function that is identically 0 is the same as no candidates for contact.
    if paper.HYPERPARAMETERS[protocol][trained.kind].contacts == "identically 0":
        scene = scene.without_contacts()
    model = MODELS["cd-lagrange" if trained.kind == paper.NO_TOUCH_KIND else trained.kind]
    options = experiment.options(protocol, name)
    return model.for_recording(recording.with_scene(scene), key=jax.random.key(seed), **options)


def _fit_oracles(trial: Trial, report: ProgressCallback) -> Result:
    """The error of the true equations with gravity fitted to each seed's recording."""
    experiment, protocol = trial.experiment, trial.protocol
    system, start, solve = experiment.system, experiment.start, partial(motion_of, experiment, protocol)
    rows = []
    with _on_host():
        truth = solve(system, start)
        for done, seed in enumerate(trial.seeds):
            report(done / len(trial.seeds))
            recording = record(experiment, protocol, seed)
            fit = fit_oracle(system, recording, bounds={"gravity": (9.0, 10.6)}, solve=solve)
            error = paper_rmse(solve(fit.system, start), truth)
            rows += tidy_rows(_keys(trial, ORACLE) | {"seed": seed}, {"paper_rmse": error})
    return {"rows": rows}


def _keys(trial: Trial, model: str) -> dict[str, Any]:
    keys = {"experiment": trial.experiment_name, "model": model}
    return keys | {"protocol": trial.protocol, "truth": "published"}


def score(
    model: AbstractModel, system: AbstractSystem, predicted: Sequence[Forecast], truths: Sequence[Trajectory]
) -> dict[str, float]:
    """All metrics of one seed.

    Arguments:
        model: as it was trained.
        system: the true mechanics.
        predicted: forecasts from the recorded start and then from the held-out ones.
        truths: the true motions from the same starts.
    """
    first, truth = predicted[0], truths[0]
    pairs = zip(predicted, truths, strict=True)
    errors = [paper_rmse(*pair, velocities=model.predicts_velocity) for pair in pairs]
    # A forecast that diverged counts as an infinite error.
    held_out = np.nan_to_num(errors[1:], nan=np.inf)
    metrics = {"paper_rmse": errors[0], "held_out_median": float(np.median(held_out))}
    metrics["energy_error"] = energy_error(system, first, truth)
    if first.contact.shape[1]:
        # Models distinguish contacts or bodies, so that only whether there is any can be compared.
        touch = np.any(np.asarray(first.contact) > 0.5, axis=1)
        metrics |= contact_score(touch, np.any(truth.contact, axis=1)).counts
        metrics["highest_contact_probability"] = float(np.max(first.contact))
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        # Over the range that the motion visits; elsewhere nothing was learned.
        learned, true = slopes(model, system, slope_grid(truth))
        metrics["slope_rmse"] = float(np.sqrt(np.mean((learned - true) ** 2)))
    if isinstance(model, CDLagrangeNetwork) and model.learned_damping is not None:
        metrics["damping"] = float(model.learned_damping()[0, 0])
    if isinstance(model, CDLagrangeNetwork) and model.learned_inertia is not None:
        # The common scale of M and U is free, so that only ratios are compared.
        factor = model.learned_inertia().factor
        inertia = np.asarray(factor @ factor.T, float)
        metrics["mass_ratio"] = inertia[1, 1] / inertia[0, 0]
        metrics["mass_coupling"] = inertia[0, 1] / np.sqrt(inertia[0, 0] * inertia[1, 1])
    return metrics


def energy_error(system: AbstractSystem, motion: Forecast, truth: Trajectory) -> float:
    """Energy that a forecast has gained on the truth over its last tenth, relative to that at the start.

    A mean over many samples, since the energy of a symplectic scheme oscillates about its own level.
    """
    # In double precision: energies are differences of large numbers.
    predicted = truth._replace(
        position=np.asarray(motion.position, float), velocity=np.asarray(motion.velocity, float)
    )
    gained = system.energies(predicted) - system.energies(truth)
    return float(np.mean(gained[-(len(gained) // 10) :]) / system.energies(truth)[0])


def slope_grid(truth: Trajectory) -> Float[np.ndarray, "points bodies dimension"]:
    """101 positions across the range of the motion, all coordinates together."""
    low, high = truth.position.min(axis=0), truth.position.max(axis=0)
    return low + np.linspace(0, 1, 101)[:, None, None] * (high - low)


def slopes(model, system: AbstractSystem, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∂U/∂q as learned and as it is."""
    functions = model.potential.gradient, jax.grad(system.potential)
    learned, true = (np.asarray(jax.vmap(of)(jnp.asarray(grid, jnp.float32))) for of in functions)
    return learned, true


def figure_arrays(
    system: AbstractSystem,
    truth: Trajectory,
    runs: Sequence[Run],
    models: Sequence[AbstractModel],
    predicted: Sequence[Sequence[Forecast]],
) -> dict[str, np.ndarray]:
    """What `carom.reproduction.paper.figures` draws of one trial.

    The data are those of the first seed, forecasts and learned functions of all seeds, in their order.
    `contact_on_truth[:, n]` is the probability of touch in the step that arrives at sample n + 1.
    """
    arrays = {"time": truth.time, "truth_contact": truth.contact}
    arrays["data_time"] = np.concatenate([run.time for run in runs])
    for name in ("position", "velocity"):
        arrays[f"truth_{name}"] = getattr(truth, name)
        arrays[f"data_{name}"] = np.concatenate([getattr(run, name) for run in runs])
        arrays[f"forecast_{name}"] = np.stack([getattr(motions[0], name) for motions in predicted])
    if models[0].contact.size:
        states = State(*(jnp.asarray(part[:-1], jnp.float32) for part in (truth.position, truth.velocity)))
        on_truth = [jax.nn.sigmoid(jax.vmap(model.contact_logits)(states)) for model in models]
        arrays["contact_on_truth"] = np.stack([np.asarray(values) for values in on_truth])
    if isinstance(models[0], CDLagrangeNetwork | VariationalIntegratorNetwork):
        grid = slope_grid(truth)
        learned = [slopes(model, system, grid) for model in models]
        arrays |= {"slope_grid": grid, "slope_true": learned[0][1]}
        arrays["slope_learned"] = np.stack([slope for slope, _ in learned])
    return {
        name: values.astype(np.float32) if values.dtype == np.float64 else values
        for name, values in arrays.items()
    }
