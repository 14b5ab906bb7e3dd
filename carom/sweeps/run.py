"""A sweep from its plan to its table: all fits are checked before the first one starts, and each is a task
whose row is stored, and made once.
"""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

import carom
from carom.data import Recording, SystemFile, read_described
from carom.digits import finite
from carom.errors import InputError
from carom.evaluation import score_held_out
from carom.execution.executor import AbstractExecutor, ProgressCallback, Task, run_tasks, stored_result
from carom.fits import FitDirectory, load_fit_directory, noise_from_notes, recording_hash
from carom.fits.fit_directory import is_finished, read_manifest
from carom.fits.options import FitOptions
from carom.fits.plan import plan_fit
from carom.storage.atomic import (
    FolderBusyError,
    atomic_write,
    folder_made,
    locked,
    remove_leftovers,
    write_whole,
)
from carom.storage.fingerprint import fingerprint
from carom.storage.input_file import complaint
from carom.sweeps.sweep_file import Sweep

MAXIMUM_FITS = 100_000
_MAXIMUM_NAME = 100


@dataclass(frozen=True)
class SweepFit:
    """One fit of a sweep.

    Arguments:
        name: its fit directory.
        recording, system: its files.
        varied: what distinguishes it from the others of its sweep, by column of the table.
        options: those of `carom fit`.
        fingerprint: changes with everything that the result depends on.
        data_fingerprint: changes with the content of its files.
    """

    name: str
    recording: Path
    system: Path | None
    varied: Mapping[str, Any]
    options: FitOptions
    fingerprint: str
    data_fingerprint: str


def plan_sweep(sweep: Sweep) -> list[SweepFit]:
    """All fits, checked, in their order: recordings, then values as they stand in the file, then seeds."""
    count = sum(math.prod(map(len, grid.values())) for grid in sweep.grids)
    count *= len(sweep.recordings) * len(sweep.seeds)
    if count > MAXIMUM_FITS:
        problem = f"there would be {count} fits, more than the {MAXIMUM_FITS} allowed; leave some out"
        raise complaint(sweep.path, problem, "[grid]")
    # Kept, as checking a thousand fits would otherwise read each file a thousand times.
    data = {path: read_described(path, sweep.system) for path in sweep.recordings}
    prints = {path: data_fingerprint(*described) for path, described in data.items()}
    # The last key varies fastest, as in nested loops.
    grid = [dict(zip(one, values, strict=True)) for one in sweep.grids for values in product(*one.values())]
    found: dict[str, SweepFit] = {}
    for path, values, seed in product(sweep.recordings, grid, sweep.seeds):
        varied = {**({"recording": path.name} if len(sweep.recordings) > 1 else {}), **values}
        # A sweep of a single fit varies nothing, and its directory still needs a name.
        varied |= {"seed": seed} if len(sweep.seeds) > 1 or not varied else {}
        name = _name(varied)
        try:
            chosen = {**sweep.fixed, **values, "hold_out": sweep.hold_out, "seed": seed}
            options = FitOptions.from_values(chosen)
            # Whether a fit is possible does not depend on its seed.
            if seed in sweep.seeds[:1]:
                plan_fit(options, path, *data[path]).require_possible()
        except InputError as error:
            raise InputError(f"{sweep.path}, fit {name}: {error}") from None
        mark = fingerprint(options, prints[path])
        # Several grids may overlap; the table would have the same fit in two lines.
        if mark in found:
            raise complaint(sweep.path, f"the fit {name} is there twice; keep one", "[grid]")
        # Names are cut and rounded; the mark makes them unique.
        unique = f"{name}-{mark[:10]}"
        found[mark] = SweepFit(unique, path, sweep.system, varied, options, mark, prints[path])
    return list(found.values())


def data_fingerprint(recording: Recording, description: SystemFile) -> str:
    """Changes with every number of a recording and with its system file."""
    return fingerprint(recording_hash(recording), description)


def _name(varied: Mapping[str, Any]) -> str:
    """Values as part of the name of a directory."""
    text = ",".join(f"{name}={_short(value)}" for name, value in varied.items())
    return re.sub(r"[^A-Za-z0-9.,=+_-]", "_", text)[:_MAXIMUM_NAME]


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


ROWS = "rows"
POLL_SECONDS = 0.5
"""Between two attempts at a directory in which another process is working."""

Row = dict[str, Any]


class DataChangedError(InputError):
    """The data are no longer those that the sweep was started with."""


def fit_task(fit: SweepFit, out: Path) -> Task:
    """A fit and its row, which is stored by what it depends on: names change with the sweep file."""
    path = out / ROWS / f"{fit.fingerprint[:20]}.json"
    return Task(make_row, (fit, out), path=path, fingerprint=fit.fingerprint)


def make_row(fit: SweepFit, out: Path, progress: ProgressCallback) -> Row:
    """Make a fit, unless its directory is complete, and return its row of the table.

    A fit that is refused or fails gives a row with the reason. What only this machine refuses, such as a full
    disk, is raised: the fit would succeed elsewhere.

    Arguments:
        fit: what to make.
        out: the directory of the sweep, which every worker must see.
        progress: called with the fraction of the work done.
    """
    # A worker on another machine may not share the file system.
    for path in (out, fit.recording):
        if not path.exists():
            raise InputError(
                f"{path}: a worker cannot see this path; put recordings and --out where all machines do."
            )
    reason = _make(fit, out / fit.name, progress)
    row: Row = {"run": fit.name, "recording": fit.recording.name, "error": None, "numbers": {}}
    row["reason"] = reason
    if not reason:
        finished = load_fit_directory(out / fit.name)
        row["numbers"] = finite(_numbers(finished))
        # From the directory, not from memory: a fit found complete is scored alike.
        if finished.split.held_out:
            noise = noise_from_notes(finished.notes)
            error = score_held_out(finished.model, finished.split.held_out, noise=noise)
            row |= {"error": error} if math.isfinite(error) else {"reason": "The forecast diverged."}
    return row


def _make(fit: SweepFit, directory: Path, progress: ProgressCallback) -> str:
    """Make a fit; the reason why that is impossible, where it is."""
    while True:
        try:
            if not is_finished(directory):
                recording, description = read_described(fit.recording, fit.system)
                if data_fingerprint(recording, description) != fit.data_fingerprint:
                    problem = "the file or its system file has changed since the sweep began"
                    raise DataChangedError(f"{fit.recording}: {problem}; start the sweep again.")
                plan_fit(fit.options, fit.recording, recording, description).run(directory, progress=progress)
            return ""
        except FolderBusyError:
            # A worker that was given up for lost may still be at it; its result will do.
            time.sleep(POLL_SECONDS)
        except (DataChangedError, OSError):
            raise  # no result: another machine, or the user, can help
        except InputError as error:
            if isinstance(error.__cause__, OSError):
                raise
            if not is_finished(directory):  # else finished by such a worker in the meantime
                return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]


def _numbers(fit: FitDirectory) -> dict[str, float | None]:
    """The results of a fit: parameters with their errors and the likelihood, or the last losses."""
    if "parameters" not in fit.notes:
        return {f"loss: {name}": value for name, value in fit.history[-1].items() if name != "epoch"}
    numbers: dict[str, float | None] = {"log likelihood": fit.notes.get("log_likelihood")}
    for channel, value in zip(("positions", "velocities"), fit.notes.get("noise", ()), strict=False):
        numbers[f"noise of {channel}"] = value
    for parameter in fit.notes["parameters"]:
        numbers[parameter["name"]] = parameter["value"]
        numbers[f"{parameter['name']}, standard error"] = parameter["standard_error"]
    return numbers


TABLE, RESULTS, TIMING = "table.csv", "results.json", "timing.json"


class SweepResult(NamedTuple):
    """The results of a sweep.

    Arguments:
        fits: the row of every fit in the order of the sweep file, with its seed and what varies.
        made: number of fits made by this command; the others were stored.
    """

    fits: list[Row]
    made: int

    @property
    def failed(self) -> int:
        """Number of fits with a reason instead of an error: refused, failed, or with a diverging forecast."""
        return sum(bool(fit["reason"]) for fit in self.fits)

    @property
    def best(self) -> list[Row]:
        """Fits with an error, the least first."""
        return sorted((fit for fit in self.fits if fit["error"] is not None), key=lambda fit: fit["error"])


def _table(fits: Sequence[Row]) -> pl.DataFrame:
    varied = dict.fromkeys(name for fit in fits for name in fit["varied"])
    numbers = dict.fromkeys(name for fit in fits for name in fit["numbers"])
    rows = [
        {name: " ".join(map(str, v)) if isinstance(v, tuple) else v for name, v in fit["varied"].items()}
        | fit["numbers"]
        | {name: fit[name] for name in ("run", "error", "reason")}
        for fit in fits
    ]
    # The schema from all rows: a column may begin with empty cells.
    return pl.DataFrame(rows, infer_schema_length=None).select("run", *varied, "error", *numbers, "reason")


def _write_json(path: Path, document: Any) -> None:
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def run_sweep(
    sweep: Sweep,
    out: Path,
    executor: AbstractExecutor,
    *,
    again: bool = False,
    progress: ProgressCallback = lambda fraction: None,
) -> SweepResult:
    """Make all fits of a sweep that are not stored yet, and write its table.

    Everything that can be refused is refused before the first fit, and before the directory is made.

    Arguments:
        sweep: what to make.
        out: the directory of the sweep.
        executor: what makes the fits; not started where all are stored.
        again: repeat fits that ended without an error.
        progress: called with the fraction of the missing fits that is done.
    """
    # Reads every recording, so that wrong ones are refused before any worker starts.
    fits = plan_sweep(sweep)
    with folder_made(out / ROWS), locked(out):
        tasks, stored = [fit_task(fit, out) for fit in fits], 0
        for task in tasks:
            row = stored_result(task)
            if row is not None and again and row["reason"] and task.path is not None:
                task.path.unlink()
            elif row is not None:
                stored += 1
        rows = run_tasks(tasks, executor=executor, progress=progress)
        # Temporary files of workers that were killed; none is running any more.
        for directory in (out, out / ROWS):
            remove_leftovers(directory)
        kept = ("run", "recording", "error", "numbers", "reason")
        found = [
            {name: row[name] for name in kept} | {"seed": fit.options.seed, "varied": fit.varied}
            for fit, row in zip(fits, rows, strict=True)
        ]
        # Both are the same, byte for byte, however often and wherever the same fits were made on machines of
        # the same kind: they are in the order of the sweep, and contain no times.
        with atomic_write(out / TABLE) as temporary:
            _table(found).write_csv(temporary)
        score = "root mean squared error of a coordinate over all held-out data"
        devices = sorted({row["device"] for row in rows})
        made_by = {"versions": {"carom": carom.__version__}, "devices": devices}
        _write_json(out / RESULTS, {"score": score, **made_by, "fits": found})
        finished = [fit.name for fit in fits if is_finished(out / fit.name)]
        seconds = {name: read_manifest(out / name)["seconds"] for name in finished}
        _write_json(out / TIMING, {fit.name: seconds.get(fit.name) for fit in fits})
        return SweepResult(found, len(fits) - stored)
