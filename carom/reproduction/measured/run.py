"""The recipe `carom` on measured recordings: collisions on an air track, and a pendulum."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.contact_laws import AbstractRestitution
from carom.data import Recording, Run
from carom.estimation import Fit, around_impact, fit_recording, fit_recordings
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback, Result, Task, checkpoint_directory
from carom.mechanics import parameters_of
from carom.models import Mechanism, forecast
from carom.reproduction.measured import collisions as lines
from carom.reproduction.measured import configuration as config
from carom.reproduction.measured import recordings
from carom.reproduction.measured.collisions import Collision
from carom.reproduction.measured.configuration import MASKED, RIDERS, SERIES, STRETCH
from carom.reproduction.measured.recordings import Check
from carom.reproduction.scores import fit_metrics, parameter_metrics
from carom.storage.fingerprint import fingerprint
from carom.storage.tensor_file import read_arrays, write_arrays
from carom.types import State

Rows = list[dict[str, Any]]
Arrays = dict[str, np.ndarray]
LAW, CONSTANT, HINDSIGHT = "law", "best constant", "best constant for the runs left out"
"""What predicts velocities. The first constant is the best for the runs that the law is learned from; the
second, the best for the very runs that are predicted, is more than anybody could know."""
INCLUDED = "law, contact included"
"""The law fitted to the samples of the contact too."""


def measured_tasks(data: Path, seeds: Sequence[int], folder: Path) -> list[Task]:
    """Every series with every seed, and the pendulum with all seeds, which make one batch.

    The first seed leaves arrays for the figures as well.
    """
    # All constants, so that results are made anew when one of them changes.
    settings = [value for name, value in vars(config).items() if name.isupper()]
    source = recordings.data_hash(data)
    tasks = []
    for seed in seeds:
        for name in SERIES:
            path, first = folder / f"{name}.{seed}.json", seed == seeds[0]
            mark = fingerprint(name, seed, first, source, settings)
            arguments = (data, name, seed, path, first)
            arrays = (path.with_suffix(".safetensors"),) if first else ()
            tasks.append(Task(_run_air_track, arguments, 1 + first, path, mark, arrays))
    path = folder / "pendulum.json"
    mark, arguments = fingerprint("pendulum", tuple(seeds), source, settings), (data, tuple(seeds), path)
    tasks.append(Task(_run_pendulum, arguments, len(seeds), path, mark, (path.with_suffix(".safetensors"),)))
    return tasks


def load_arrays(folder: Path, seed: int) -> dict[str, Arrays]:
    """What the figures draw of every series and of the pendulum, as the first seed left it."""
    stems = {name: f"{name}.{seed}" for name in SERIES} | {"pendulum": "pendulum"}
    return {name: read_arrays(folder / f"{stem}.safetensors") for name, stem in stems.items()}


def _run_air_track(
    data: Path, name: str, seed: int, path: Path, first: bool, report: ProgressCallback
) -> Result:
    recording, checks = recordings.read_air_track(data)
    chosen = [index for index, check in enumerate(checks) if check.bumper == name]
    runs, known = [recording.runs[index] for index in chosen], [checks[index] for index in chosen]
    checkpoints = checkpoint_directory(path)
    rows, arrays = run_series(name, runs, known, seed, illustrated=first, checkpoints=checkpoints)
    if first:
        write_arrays(path.with_suffix(".safetensors"), arrays)
    return {"rows": rows}


def crop_at_random(run: Run, generator: np.random.Generator) -> Run:
    """The run without up to a quarter of its samples at its beginning, and up to a quarter at its end."""
    # The end of the range is excluded.
    first, last = generator.integers(0, int(config.CROPPED * len(run)) + 1, 2)
    return run.part(slice(int(first), len(run) - int(last)))


def left_out(count: int) -> np.ndarray:
    """Which runs of a series are left out."""
    return np.arange(count) % config.EVERY == config.EVERY - 1


def run_series(
    name: str,
    runs: Sequence[Run],
    checks: Sequence[Check],
    seed: int,
    *,
    illustrated: bool,
    checkpoints: Path | None = None,
    masked: int = MASKED,
) -> tuple[Rows, Arrays]:
    """Fit a law to the runs of a series that are not left out, and predict those that are.

    Arguments:
        name: of the series in `SERIES`.
        runs: as recorded, whole.
        checks: what is known of them otherwise.
        seed: of the crops and of the initial weights.
        illustrated: whether rows of the law and of single runs, a fit that includes the samples of the
            contact, and arrays for figures are made; crops hardly change them.
        checkpoints: a directory for what is done.
        masked: samples on either side of an impact.
    """
    series, step_size = SERIES[name], float(np.median(np.diff(runs[0].time)))
    # Series of different length are cropped independently with the same seed.
    generator = np.random.default_rng([seed, len(runs)])
    cropped = Recording(tuple(crop_at_random(run, generator) for run in runs), step_size, RIDERS)
    trimmed = around_impact(cropped, STRETCH + masked * step_size, mask=masked)
    measure = partial(lines.measure_collision, scene=RIDERS, seconds=STRETCH, masked=masked)
    collisions = [measure(run) for run in trimmed.runs]
    out = left_out(len(runs))
    # A run without a detected collision can neither be learned from nor predicted; the table counts them.
    usable = np.array([collision is not None for collision in collisions])
    training, tried = np.flatnonzero(usable & ~out), np.flatnonzero(usable & out)
    recording = replace(trimmed, runs=tuple(trimmed.runs[i] for i in training))
    fitted = partial(fit_recording, recording, seed=seed, checkpoints=checkpoints)
    fits = {law: fitted(series.settings(law, masked=masked)) for law in config.LAWS}
    # The data choose, not the error on the runs left out.
    law = min(config.LAWS, key=lambda law: _information_criterion(fits[law]))
    fit = fits[law]
    ratios = np.full(len(runs), np.nan)
    ratios[training] = [_mass_ratio(fit.in_run(index)) for index in range(len(training))]
    # Where riders change, no other run determines these masses; they are as weighed.
    weighed = np.array([check.mass_ratio for check in checks])
    ratios[out] = weighed[out] if series.other_riders else ratios[training[0]]
    keys = {"experiment": name, "recipe": "carom", "seed": seed}
    metrics = {"speed_law": law == "speed"} | fit_metrics(fit) | parameter_metrics(fit)
    rows = tidy_rows(keys | {"model": LAW}, metrics)
    known, new = ([c for i in part if (c := collisions[i]) is not None] for part in (training, tried))
    central = _central_law(fit)
    predicted = {
        LAW: restitution_at(central, np.array([collision.closing_speed for collision in new])),
        CONSTANT: lines.best_constant(known, ratios[training]),
        HINDSIGHT: lines.best_constant(new, ratios[tried]),
    }
    for model, restitution in predicted.items():
        # By regression lines, which the law was not fitted to.
        errors = lines.predict_velocities(new, ratios[tried], restitution) - [c.after for c in new]
        metrics = {"velocity_rmse": float(np.sqrt(np.mean(errors**2)))}
        if model != LAW:
            metrics["restitution"] = float(restitution)
        rows += tidy_rows(keys | {"model": model}, metrics)
    if not illustrated:
        return rows, {}
    for index, (check, collision) in enumerate(zip(checks, collisions, strict=True)):
        metrics = {"left_out": bool(out[index])} | _run_metrics(check, collision)
        rows += tidy_rows(keys | {"run": index}, metrics)
    speeds = [collision.closing_speed for collision in known]
    speeds = np.union1d(np.geomspace(min(speeds), max(speeds), 61), config.SPEEDS)
    rows += _law_rows(keys | {"model": LAW}, central, fit.covariance_of(config.LAWS[law]), speeds)
    included = fitted(series.settings(law, masked=0))
    rows += tidy_rows(keys | {"model": INCLUDED}, fit_metrics(included))
    return rows, _illustration(fit, recording, known)


def _information_criterion(fit: Fit) -> float:
    """The Bayesian one of a law: how widely runs scatter about it, and what its terms cost."""
    count = sum(int(found.chosen.any()) for found in fit.impacts)
    # Minus twice the Gaussian log-likelihood of n runs about the law is 2 n log s and a constant.
    scatter = next(p.value for p in fit.parameters if "scatter" in p.name)
    assert scatter is not None
    return 2 * count * math.log(scatter) + _terms(fit.model.restitution).size * math.log(count)


def _terms(law: AbstractRestitution) -> Array:
    """What is learned of a law, whose other arrays say where it holds."""
    return getattr(law, _name_of_terms(law))


def _name_of_terms(law: AbstractRestitution) -> str:
    ((path, _),) = parameters_of(law)
    return str(path[-1])


def _central_law(fit: Fit) -> AbstractRestitution:
    """The law about which runs scatter, where the model of the fit has that of the median run."""
    # The first parameter of that name is the level of the law.
    level = next(p.value for p in fit.parameters if p.name.startswith("restitution"))
    law, name = fit.model.restitution, _name_of_terms(fit.model.restitution)
    terms = jnp.asarray(_terms(law))
    return eqx.tree_at(lambda law: getattr(law, name), law, terms.at[(0,) * terms.ndim].set(level))


def _mass_ratio(model: Mechanism) -> float:
    """Of the second rider to the first."""
    return float(np.exp(model.bodies.log_mass[1] - model.bodies.log_mass[0]))


def _run_metrics(check: Check, collision: Collision | None) -> dict[str, float | int]:
    """What is known of one run, by the table of runs and by lines."""
    metrics = {f"checked_{key}": value for key, value in check._asdict().items() if key != "bumper"}
    if collision is None:
        return metrics
    metrics |= {name: getattr(collision, name) for name in ("closing_speed", "restitution", "mass_ratio")}
    return metrics | {"late_by": collision.instant - check.instant}


def _coefficient(law: AbstractRestitution, speed: Float[Array, ""]) -> Float[Array, ""]:
    return law.coefficient(-speed[None])[0]


def restitution_at(law: AbstractRestitution, speeds: Float[np.ndarray, "_"]) -> Float[np.ndarray, "_"]:
    """e of the only contact at some closing speeds."""
    return np.asarray(jax.vmap(_coefficient, (None, 0))(law, jnp.asarray(speeds, jnp.float32)), float)


def _law_rows(
    keys: dict[str, Any], law: AbstractRestitution, covariance: Float[np.ndarray, "_ _"], speeds: np.ndarray
) -> Rows:
    """e at some closing speeds, and its standard error."""
    slopes = jax.vmap(jax.grad(_coefficient), (None, 0))(law, jnp.asarray(speeds, jnp.float32))
    slopes = np.asarray(_terms(slopes)).reshape(len(speeds), -1)
    # First-order propagation of the covariance of the terms.
    errors = np.sqrt(np.einsum("ni,ij,nj->n", slopes, covariance, slopes))
    rows = []
    for speed, value, error in zip(speeds, restitution_at(law, speeds), errors, strict=True):
        rows += tidy_rows(keys | {"speed": float(speed)}, {"e": float(value), "e_error": float(error)})
    return rows


def _illustration(fit: Fit, recording: Recording, collisions: Sequence[Collision]) -> Arrays:
    """A slow, a medium and a fast run with the model's motion, for the figures."""
    order = np.argsort([collision.closing_speed for collision in collisions])
    arrays = {}
    for name, quantile in (("slow", 0.1), ("medium", 0.5), ("fast", 0.9)):
        index = int(order[round(quantile * (len(order) - 1))])
        run, collision = recording.runs[index], collisions[index]
        arrays[f"{name}_time"] = run.time - collision.instant
        arrays[f"{name}_measured"] = run.position[:, :, 0]
        arrays[f"{name}_model"] = fit.motions[index].position[:, :, 0]
        arrays[f"{name}_speed"] = np.asarray(collision.closing_speed)
    return arrays


def energy(swing: Run) -> np.ndarray:
    """2.4 (1 − cos o) + v², in the units of the pendulum's file."""
    assert swing.velocity is not None
    return (2.4 * (1 - np.cos(swing.position)) + swing.velocity**2)[:, 0, 0]


def energy_error(predicted: Run, measured: Run) -> float:
    """Mean squared difference of the energies, sample by sample."""
    return float(np.mean((energy(predicted) - energy(measured)) ** 2))


def split(swing: Run) -> tuple[Run, Run]:
    """The first samples in the order of the file, and the rest."""
    count = int(config.TRAINING_SHARE * len(swing))
    return swing.part(slice(count)), swing.part(slice(count, None))


def roll_out(model: Mechanism, swing: Run) -> Run:
    """The model's motion from the first measured state, at the times of all samples.

    Where samples are missing the model moves on through the gap, step by step.
    """
    assert swing.velocity is not None
    index = np.rint((swing.time - swing.time[0]) / model.step_size).astype(int)
    first = (jnp.asarray(part[0], jnp.float32) for part in (swing.position, swing.velocity))
    # Nothing of the rest is seen: this is a forecast, not a fit.
    motion = forecast(model, State(*first), int(index[-1]))
    position, velocity = (np.asarray(part, float)[index] for part in (motion.position, motion.velocity))
    return Run(swing.time, position, velocity)


def _run_pendulum(data: Path, seeds: tuple[int, ...], path: Path, report: ProgressCallback) -> Result:
    rows, arrays = run_pendulum(recordings.read_pendulum(data), seeds, checkpoints=checkpoint_directory(path))
    write_arrays(path.with_suffix(".safetensors"), arrays)
    return {"rows": rows}


def run_pendulum(swing: Run, seeds: Sequence[int], *, checkpoints: Path | None = None) -> tuple[Rows, Arrays]:
    """Choose the variant within the training data, fit it to all of them, and roll out over the rest."""
    training, test = split(swing)
    inner, validation = split(training)

    def fits(part: Run, variant: str) -> list[Fit]:
        swings = [recordings.pendulum_recording(part)] * len(seeds)
        return fit_recordings(swings, config.VARIANTS[variant], seeds=seeds, checkpoints=checkpoints)

    keys = {"experiment": "pendulum", "recipe": "carom"}
    rows, errors = [], {}
    for variant in config.VARIANTS:
        tried = [energy_error(roll_out(fit.model, validation), validation) for fit in fits(inner, variant)]
        errors[variant] = float(np.mean(tried))
        for seed, error in zip(seeds, tried, strict=True):
            rows += tidy_rows(keys | {"model": variant, "seed": seed}, {"validation_error": error})
    # By the training data alone; the last fifth is rolled out once.
    chosen = min(errors, key=lambda variant: errors[variant])
    found = fits(training, chosen)
    motions = [roll_out(fit.model, test) for fit in found]
    for seed, fit, motion in zip(seeds, found, motions, strict=True):
        metrics = fit_metrics(fit) | parameter_metrics(fit) | {"energy_error": energy_error(motion, test)}
        rows += tidy_rows(keys | {"model": chosen, "seed": seed}, metrics)
    angles = np.linspace(swing.position.min(), swing.position.max(), 101)
    slopes = jax.vmap(found[0].model.slope)(jnp.asarray(angles, jnp.float32)[:, None, None])
    arrays = {"slope": np.stack([angles, np.asarray(slopes)[:, 0, 0]])}
    for name, run in (("training", training), ("test", test), ("rollout", motions[0])):
        assert run.velocity is not None
        arrays[name] = np.stack([run.time, run.position[:, 0, 0], run.velocity[:, 0, 0], energy(run)])
    return rows, arrays
