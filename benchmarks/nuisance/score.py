"""Scores of Carom, of the textbook and of the oracle on the nuisance suite.

    python -m benchmarks.nuisance.score --scenes drop table --seeds 0 1 2 --models textbook oracle carom

Every model sees the same training runs and the same first samples of held-out runs; their futures are scored
against the noise-free truth. The rows of a task are written as soon as it is done, and a task that has rows
is not repeated: the same command continues where it was stopped.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

import carom
from benchmarks.nuisance.scenes import SETUPS, Task, make
from carom.data import HeldOut
from carom.evaluation import fit_textbook, forecast_held_out
from carom.evaluation.results import tidy_rows, wide, write_results
from carom.evaluation.tables import Table, arrange, cell, markdown, median_text, tabulate, where
from carom.storage.atomic import atomic_write
from carom.textbook import TextbookModel
from carom.types import State


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    error: float
    low: float
    high: float


class Outcome(NamedTuple):
    """What a model says of a task.

    Arguments:
        positions: its forecasts of the held-out futures.
        parameters: its estimates, by the names of the truth.
        messages: its warnings.
        covered: share of the measured positions within its 90 % bands, by run.
    """

    positions: list[np.ndarray]
    parameters: dict[str, Interval] = {}  # noqa: RUF012
    messages: Sequence[str] = ()
    covered: Sequence[float] = ()


def textbook(task: Task) -> Outcome:
    """The textbook with its own detector."""
    return _textbook(task, fit_textbook(task.train))


def textbook_true_impacts(task: Task) -> Outcome:
    """The textbook, told when which contact closed."""
    impacts = [[(hit.time, hit.contact) for hit in hits] for hits in task.truth.impacts]
    numbers = _stated_numbers(task)
    known = [[(when, numbers[contact]) for when, contact in run] for run in impacts]
    return _textbook(task, fit_textbook(task.train, impacts=known))


def _stated_numbers(task: Task) -> dict[int, int]:
    """Numbers of the true system's contacts in the scene that was stated, which leaves out distant walls."""
    assert task.train.scene is not None
    stated = [(c.bodies, getattr(c, "normal", None)) for c in task.train.scene.candidates]
    every = [(c.bodies, getattr(c, "normal", None)) for c in task.truth.system.geometry.candidates]
    return {number: stated.index(contact) for number, contact in enumerate(every) if contact in stated}


def _textbook(task: Task, model: TextbookModel) -> Outcome:
    names = {
        f"surface {model.scene.contact_name(j)}": f"surface {j + 1}" for j in range(model.scene.contacts)
    }
    names |= {f"acceleration along axis {axis}": f"gravity {axis}" for axis in (1, 2, 3)}
    names |= {f"friction of {kind}": f"friction of {kind}" for kind in ("walls", "pairs")}
    if model.variant.law == "constant":
        names |= {f"restitution of {kind}": f"restitution of {kind}" for kind in ("walls", "pairs")}
    parameters = {
        names.get(name, name): Interval(
            one.value, one.error, one.value - 1.96 * one.error, one.value + 1.96 * one.error
        )
        for name, one in model.parameters.items()
        if name in names or name == "drag"
    }
    return Outcome([model.forecast(part.history, part.future.time) for part in task.held_out], parameters)


def oracle(task: Task) -> Outcome:
    """The true equations without the scatter of restitution; starts estimated from the same samples."""
    system = replace(task.truth.system, scatter=0.0)
    positions = []
    for part, guess in zip(task.held_out, task.truth.starts, strict=True):
        start = _oracle_start(task, system, part, guess)
        times = np.concatenate([part.history.time[:1], part.future.time])
        positions.append(task.truth.view(system.exact(start, times).position)[1:])
    return Outcome(positions)


def _oracle_start(task: Task, system, part: HeldOut, guess: State) -> State:
    """By least squares over the history (Gauss–Newton from the true start), outliers left out."""
    shape = (2, *part.history.position.shape[1:])
    values = np.concatenate([np.ravel(guess.position), np.ravel(guess.velocity)]).astype(float)

    def residuals(values: np.ndarray) -> np.ndarray:
        path = system.exact(_double(values.reshape(shape)), part.history.time).position
        return (task.truth.view(path) - part.history.position).ravel()

    for _ in range(3):
        here, scale = residuals(values), 1e-6 * max(1.0, float(np.abs(values).max()))
        columns = [(residuals(values + scale * unit) - here) / scale for unit in np.eye(len(values))]
        usual = np.abs(here) <= 5 * 1.4826 * np.median(np.abs(here)) + 1e-12
        design = np.stack(columns, axis=1)
        values = values - np.linalg.lstsq(design[usual], here[usual])[0]
    return _double(values.reshape(shape))


def _double(values: np.ndarray) -> State:
    """A state in double precision, in which differences are taken."""
    with jax.enable_x64(True):
        return State(jnp.asarray(values[0]), jnp.asarray(values[1]))


def fit_carom(task: Task) -> Outcome:
    """Carom's own recipe, as the command that `carom init` prints runs it."""
    settings = carom.Settings(learn=("auto",))
    fit = carom.fit(task.train, settings=settings, seed=task.seed)
    forecasts = forecast_held_out(
        fit.model, task.held_out, samples=fit.samples, noise=fit.noise, seed=task.seed
    )
    parameters: dict[str, Interval] = {}
    counts: dict[str, int] = dict.fromkeys(("surfaces", "gravity", "restitution", "friction"), 0)
    for one in fit.parameters:
        if one.key in counts:
            counts[one.key] += 1
        name = {"surfaces": "surface"}.get(one.key, one.key) + f" {counts.get(one.key, '')}".rstrip()
        if one.value is not None and one.standard_error is not None:
            low, high = one.low, one.high
            parameters[name] = Interval(
                one.value,
                one.standard_error,
                -np.inf if low is None else low,
                np.inf if high is None else high,
            )
    covered = [forecast.covered for forecast in forecasts if forecast.covered is not None]
    messages = list(fit.diagnostics.messages) + ["The fit failed."] * fit.failed
    return Outcome([forecast.position for forecast in forecasts], parameters, messages, covered)


MODELS: dict[str, Callable[[Task], Outcome]] = {
    "textbook": textbook,
    "textbook, true impacts": textbook_true_impacts,
    "oracle": oracle,
    "carom": fit_carom,
}


def score(task: Task, model: str) -> list[dict[str, Any]]:
    """The rows of a model on a task; a crash is a row with its message."""
    keys = {"experiment": "nuisance", "scene": task.scene, "model": model, "seed": task.seed}
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            outcome = MODELS[model](task)
        except Exception as error:  # whatever it is, the suite counts it
            message = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            seconds = time.perf_counter() - began
            crash = {**keys, "metric": "crashed", "value": 1, "message": message}
            return [crash, *tidy_rows(keys, {"seconds": seconds})]
    errors = [
        np.sqrt(np.mean((position - true) ** 2))
        for position, true in zip(outcome.positions, task.truth.held_out, strict=True)
    ]
    metrics = {"held_out_error": float(np.mean(errors)), "seconds": time.perf_counter() - began}
    if outcome.covered:
        metrics["band_covered"] = float(np.mean(outcome.covered))
    rows = tidy_rows(keys, metrics)
    messages = [*outcome.messages, *(str(one.message) for one in caught if one.category is UserWarning)]
    rows.append({**keys, "metric": "warnings", "value": len(messages)} | _message(messages))
    for name, (value, error, low, high) in outcome.parameters.items():
        truth = task.truth.parameters
        true = truth.get(name, truth.get(name.split(" ")[0]))  # one restitution for all contacts
        if true is not None:
            numbers = {
                "estimate": value,
                "standard_error": error,
                "true_value": true,
                "covered": low <= true <= high,
            }
            rows += tidy_rows({**keys, "parameter": name}, numbers)
    return rows


def _message(messages: Sequence[str]) -> dict[str, str]:
    return {"message": " ".join(messages)[:300]} if messages else {}


def run(
    scenes: Sequence[str], seeds: Sequence[int], models: Sequence[str], folder: Path
) -> list[dict[str, Any]]:
    """All rows of these tasks; those that a file in the folder has are read."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, total = [], len(scenes) * len(seeds) * len(models)
    for scene in scenes:
        for seed in seeds:
            files = {
                model: folder / f"{scene}-{seed}-{model.replace(', ', '-').replace(' ', '-')}.json"
                for model in models
            }
            task = None
            for model, file in files.items():
                if not file.exists():
                    task = task or make(scene, seed)
                    found = score(task, model)
                    with atomic_write(file) as temporary:
                        temporary.write_text(json.dumps(found, default=_plain))
                rows.append(json.loads(file.read_text()))
                print(f"{len(rows)}/{total} {scene} {seed} {model}: {_line(rows[-1])}", flush=True)
    return [row for part in rows for row in part]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def _line(rows: Sequence[dict[str, Any]]) -> str:
    found = {row["metric"]: row for row in rows if "parameter" not in row}
    if "crashed" in found:
        return f"crashed, {found['crashed']['message']}"
    return f"error {found['held_out_error']['value']:.4g}, {found['seconds']['value']:.1f} s"


def error_table(rows: pl.DataFrame) -> Table:
    """Median held-out error of every model in every scene."""
    fits = wide(
        rows.filter(pl.col("metric") == "held_out_error").select("scene", "model", "seed", "metric", "value")
    )
    shown = {model: where("model", model, cell("held_out_error", median_text)) for model in MODELS}
    caption = "Held-out error of a coordinate against the noise-free truth, median over seeds."
    return tabulate(arrange(fits, scene=SETUPS), {"scene": "scene"}, shown, caption=caption)


def coverage_table(rows: pl.DataFrame) -> Table:
    """Shares of 95 % intervals that hold the truth, and of parameters more than four errors off."""
    kept = rows.filter(pl.col("metric").is_in(["estimate", "standard_error", "true_value", "covered"]))
    kept = wide(kept.select("scene", "model", "seed", "parameter", "metric", "value"))

    def share(group: pl.DataFrame) -> str:
        return f"{int(group['covered'].sum())} of {group.height}"

    def far(group: pl.DataFrame) -> str:
        off = (group["estimate"] - group["true_value"]).abs() > 4 * group["standard_error"]
        return str(int(off.sum()))

    columns = {"covered": share, "off by more than 4 standard errors": far}
    caption = "95 % intervals of parameters that hold the truth."
    by = {"scene": "scene", "model": "model"}
    return tabulate(arrange(kept, scene=SETUPS, model=MODELS), by, columns, caption=caption)


def main() -> None:
    """Score, write the rows and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--scenes", nargs="+", choices=list(SETUPS), default=list(SETUPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--parts", type=Path, default=Path("nuisance"), help="folder of finished tasks")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nuisance.json"))
    options = parser.parse_args()
    carom.configure()
    rows = run(options.scenes, options.seeds, options.models, options.parts)
    results = write_results(options.out, rows, command="python -m benchmarks.nuisance.score")
    print(markdown(error_table(results.rows)), end="\n\n")
    if "parameter" in results.rows.columns:
        print(markdown(coverage_table(results.rows)))


if __name__ == "__main__":
    main()
