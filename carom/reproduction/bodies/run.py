"""Many bodies: restitution, ratios of masses and a field from short trajectories."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from carom.data import Recording, Run, add_noise
from carom.estimation import fit_recording
from carom.evaluation import paper_rmse, position_rmse
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback, Result, Task
from carom.models import Mechanism, forecast, in_scene
from carom.reproduction.bodies import configuration as config
from carom.reproduction.scores import fit_metrics, stack_states
from carom.storage.fingerprint import fingerprint
from carom.systems import BallBox, Billiards
from carom.types import State


def bodies_tasks(seeds: Sequence[int], folder: Path) -> list[Task]:
    """All estimations and transfers, of the first few seeds."""
    settings = [value for name, value in vars(config).items() if name.isupper()]
    tasks = []
    for one in config.ESTIMATIONS:
        path = folder / f"{one.quantity}.{one.restitution:g}.noise-{one.noise:g}.json"
        chosen, weight = tuple(seeds[: config.LEARNING_SEEDS]), 1.0 + (one.quantity == "masses")
        tasks.append(Task(estimate, (one, chosen), weight, path, fingerprint(one, settings, chosen)))
    for name in config.TRANSFERS:
        path, chosen = folder / f"{name.replace(' ', '-')}.json", tuple(seeds[: config.TRANSFER_SEEDS])
        tasks.append(Task(transfer, (name, chosen), 2.0, path, fingerprint(name, settings, chosen)))
    return tasks


def short_trajectories(
    system: Billiards | BallBox,
    *,
    seed: int,
    noise: float,
    count: int = config.TRAJECTORIES,
    steps: int = config.TRAJECTORY_STEPS,
    step_size: float = config.STEP_SIZE,
) -> tuple[Recording, State]:
    """Short runs from random start states, and these states; every seed has states and noise of its own."""
    random = np.random.default_rng(seed)
    starts = stack_states([system.random_start(int(number)) for number in random.integers(0, 2**31, count)])
    motions = system.motions(starts, steps=steps, step_size=step_size)
    time = step_size * np.arange(steps + 1)
    runs = tuple(Run(time, motions.position[:, run], motions.velocity[:, run], None) for run in range(count))
    return add_noise(Recording(runs, step_size, system.scene()), noise, seed=seed), starts


def estimate(task: config.Estimation, seeds: Sequence[int], report: ProgressCallback) -> Result:
    """One fit per seed, each with starts and noise of its own, beside the oracle."""
    known = {"experiment": task.quantity, "true_restitution": task.restitution, "noise": task.noise}
    rows = []
    for number, seed in enumerate(seeds):
        recording, starts = short_trajectories(task.system, seed=seed, noise=task.noise)
        assert recording.scene is not None
        # The scene states what is known; what is to be estimated starts at a default.
        scene = replace(recording.scene, restitution=1.0, masses=())
        fit = fit_recording(recording.with_scene(scene), task.settings)
        # Parameters are named in words that begin so.
        beginning = "mass" if task.quantity == "masses" else task.quantity
        found = [parameter for parameter in fit.parameters if parameter.name.startswith(beginning)]
        estimates = np.array([np.nan if one.value is None else one.value for one in found])
        carom, oracle = ({**known, "seed": seed, "model": model} for model in ("carom", "oracle"))
        rows += tidy_rows(carom, {"error": task.error(estimates)} | fit_metrics(fit))
        best = fit_oracle_to(task, recording, starts)
        rows += tidy_rows(oracle, {"error": task.error(best)})
        for body, one, value, true in zip(task.bodies, found, best, task.truth, strict=True):
            covered = one.low is not None and one.high is not None and bool(one.low <= true <= one.high)
            metrics = {"estimate": one.value, "standard_error": one.standard_error, "covered": covered}
            rows += tidy_rows(carom | {"body": body}, metrics)
            rows += tidy_rows(oracle | {"body": body}, {"estimate": float(value)})
        report((number + 1) / len(seeds))
    return {"rows": rows}


def fit_oracle_to(task: config.Estimation, recording: Recording, starts: State) -> np.ndarray:
    """The true equations and start states, with these parameters alone fitted, by least squares.

    With equal Gaussian noise on positions and velocities that is maximum likelihood: no learner, who has to
    find the starts too, can be expected to do better.
    """
    observed = np.stack([np.stack([run.position, run.velocity]) for run in recording.runs], axis=2)  # pyright: ignore
    truth, masses, steps = np.array(task.truth), task.quantity == "masses", observed.shape[1] - 1

    def residuals(values: np.ndarray) -> np.ndarray:
        given = {"ball_masses": (1.0, *values.tolist())} if masses else {"restitution": float(values[0])}
        motion = replace(task.system, **given).motions(starts, steps=steps, step_size=recording.step_size)
        return (np.stack([motion.position, motion.velocity]) - observed).ravel()

    # From the truth: the oracle may know it.
    bounds = (0, np.inf if masses else 1)
    return scipy.optimize.least_squares(residuals, truth, bounds=bounds, diff_step=1e-5).x


def transfer(name: str, seeds: Sequence[int], report: ProgressCallback) -> Result:
    """Errors of a model learned elsewhere and of one learned in place, per seed."""
    there, here = config.TRANSFERS[name]
    rows = []
    for number, seed in enumerate(seeds):
        moved = in_scene(learned(there, seed), here.system.scene(), step_size=here.step_size)
        for model, network in {"transferred": moved, "in place": learned(here, seed)}.items():
            for start, errors in enumerate(forecast_errors(network, here, seed)):
                keys = {"experiment": "transfer", "transfer": name, "model": model, "seed": seed}
                rows += tidy_rows(keys | {"forecast": start}, errors)
        report((number + 1) / len(seeds))
    return {"rows": rows}


@cache  # since most transfers begin or end where others do
def learned(setting: config.Setting, seed: int) -> Mechanism:
    """The model of a setting from short trajectories."""
    recording, _ = short_trajectories(
        setting.system, seed=seed, noise=config.TRANSFER_NOISE, count=config.TRANSFER_TRAJECTORIES,
        step_size=setting.step_size,
    )  # fmt: skip
    scene = replace(setting.system.scene(), restitution=1.0)
    return fit_recording(recording.with_scene(scene), config.TRANSFER_FIT, seed=seed).model


def forecast_errors(model: Mechanism, setting: config.Setting, seed: int) -> list[dict[str, float]]:
    """Errors against exact physics, from starts that no trajectory has.

    The paper's error jumps where an impact is mistimed by a sample; that of positions does not.
    """
    steps, system = round(config.TRANSFER_SECONDS / setting.step_size), setting.system
    # Trajectories draw the numbers of their starts below 2³¹.
    starts = [system.random_start(2**31 + 1000 * seed + number) for number in range(config.TRANSFER_STARTS)]
    stacked = stack_states(starts)
    truth = system.motions(stacked, steps=steps, step_size=setting.step_size)
    predicted = jax.vmap(lambda start: forecast(model, start, steps))(stacked)
    errors = []
    for number in range(config.TRANSFER_STARTS):
        one = State(predicted.position[number], predicted.velocity[number])
        true = State(*(jnp.asarray(part[:, number]) for part in truth))
        errors.append({"paper_rmse": paper_rmse(one, true), "position_rmse": position_rmse(one, true)})
    return errors
