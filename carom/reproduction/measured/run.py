"""The recipe `carom` on measured recordings: collisions on an air track, and a pendulum."""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import carom
from carom.errors import InputError
from carom.execution.tasks import unfinished
from carom.execution.workers import Task, Tell, run_tasks
from carom.reproduction.measured.air_track import BLIND, CROPPED, EVERY, SERIES, STRETCH, run_series, settings
from carom.reproduction.measured.pendulum import LEARNED_SHARE, VARIANTS, run_pendulum
from carom.reproduction.measured.recordings import data_hash, read_air_track, read_pendulum
from carom.reproduction.paper.results import rounded, write_document
from carom.storage.fingerprint import fingerprint
from carom.storage.result_file import read_arrays, read_result, write_arrays, write_result

PENDULUM = "pendulum"
Unit = tuple[str, tuple[int, ...]]
"""A series of the air track with one seed, or the pendulum with all of them."""


def plan(seeds: Sequence[int]) -> list[Unit]:
    """All that is to be run: the pendulum's seeds make one batch, an air track's crops differ in length."""
    return [*((name, (seed,)) for seed in seeds for name in SERIES), (PENDULUM, tuple(seeds))]


def run_measured(
    data: Path, seeds: Sequence[int], folder: Path, *, workers: int = 1, progress: Tell | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Run what is not yet in `folder`, by name of the series; a killed run continues here.

    The first seed leaves arrays for the figures as well.
    """
    source = data_hash(data)
    units = plan(seeds)
    illustrated = {unit: seeds[0] in unit[1] for unit in units}
    kept = {unit: _kept(folder, unit, source, illustrated[unit]) for unit in units}
    missing = [unit for unit in units if kept[unit] is None]
    tasks = [
        Task(partial(_run, data, folder, unit, source, illustrated[unit]), len(unit[1]) + illustrated[unit])
        for unit in missing
    ]
    found = run_tasks(tasks, workers=workers, progress=progress)
    kept |= dict(zip(missing, found, strict=True))
    results: dict[str, list[dict[str, Any]]] = {}
    for (name, _), result in kept.items():
        assert result is not None
        results.setdefault(name, []).append(result)
    return results


def write_measured(
    results: dict[str, list[dict[str, Any]]], path: Path, *, data: Path, seeds: Sequence[int], command: str
) -> dict[str, Any]:
    """One document with every series, seed and run, written and returned."""
    kept = {
        name: [_condensed(result, whole=index == 0) for index, result in enumerate(units)]
        for name, units in results.items()
    }
    write_document(
        path,
        command=command,
        devices=[result["device"] for units in results.values() for result in units],
        data_sha256=data_hash(data),
        seeds=list(seeds),
        protocol={
            "blind_samples": BLIND,
            "step_seconds": read_air_track(data)[0].step_size,
            "stretch_seconds": STRETCH,
            "left_out_every": EVERY,
            "cropped_share": CROPPED,
            "pendulum_learned_share": LEARNED_SHARE,
        },
        air_track={name: [rounded(unit) for unit in kept[name]] for name in SERIES},
        pendulum=rounded(kept[PENDULUM][0]),
    )
    return json.loads(path.read_text())


def load_arrays(folder: Path, name: str, seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """What the figures draw of a series or of the pendulum, as the first seed left it."""
    chosen = tuple(seeds) if name == PENDULUM else (seeds[0],)
    path = folder / f"{_stem((name, chosen))}.npz"
    if not path.exists():
        raise InputError(f"{path}: this file of arrays is missing; run the command again in an empty folder.")
    return read_arrays(path)


def _condensed(result: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """A unit as it is committed: single runs and laws, which crops hardly change, of the first seed only."""
    dropped = ("fingerprint", "device", "versions") + (
        () if whole else ("runs", "law", "law_at", "parameters")
    )
    return {key: value for key, value in result.items() if key not in dropped}


def _stem(unit: Unit) -> str:
    name, seeds = unit
    return f"{name}.{seeds[0]}" if len(seeds) == 1 else f"{name}.{seeds[0]}-{seeds[-1]}"


def _mark(unit: Unit, source: str, illustrated: bool) -> str:
    """Changes with everything that a unit's result depends on."""
    name, seeds = unit
    if name == PENDULUM:
        return fingerprint(name, seeds, source, LEARNED_SHARE, tuple(VARIANTS.items()))
    series = SERIES[name]
    chosen = settings(series, "speed")
    return fingerprint(series, seeds, source, chosen, STRETCH, BLIND, EVERY, CROPPED, illustrated)


def _kept(folder: Path, unit: Unit, source: str, illustrated: bool) -> dict[str, Any] | None:
    path = folder / f"{_stem(unit)}.json"
    if not path.exists():
        return None
    result = read_result(path)
    # A unit with arrays serves where none are asked for, too.
    marks = [_mark(unit, source, arrays) for arrays in {True, illustrated}]
    return result if result.get("fingerprint") in marks else None


def _run(data: Path, folder: Path, unit: Unit, source: str, illustrated: bool, tell: Tell) -> dict[str, Any]:
    name, seeds = unit
    path = folder / f"{_stem(unit)}.json"
    if name == PENDULUM:
        summary, arrays = run_pendulum(read_pendulum(data), seeds, checkpoints=unfinished(path))
    else:
        recording, checks = read_air_track(data)
        chosen = [index for index, check in enumerate(checks) if check.bumper == name]
        summary, arrays = run_series(
            SERIES[name],
            [recording.runs[index] for index in chosen],
            [checks[index] for index in chosen],
            seeds[0],
            illustrated=illustrated,
            checkpoints=unfinished(path),
        )
    result = summary | {
        "versions": {"carom": carom.__version__, "jax": jax.__version__},
        "device": jax.devices()[0].device_kind,
        "fingerprint": _mark(unit, source, illustrated),
    }
    if arrays:
        write_arrays(path.with_suffix(".npz"), arrays)
    # The summary comes last: a unit with a summary is whole.
    write_result(path, result)
    shutil.rmtree(unfinished(path), ignore_errors=True)
    return result
