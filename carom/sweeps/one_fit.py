"""One fit of a sweep, from its run folder to its row: what a worker does."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

import carom
from carom.data.io.described import read_described
from carom.errors import InputError
from carom.evaluation import score_held_out
from carom.fits import FitDirectory, load_fit_directory, noise_from_notes
from carom.fits.fit_directory import is_finished
from carom.fits.plan import plan_fit
from carom.storage.fingerprint import source_hash
from carom.storage.input_file import complaint
from carom.storage.lock import FolderBusyError
from carom.storage.result_file import read_result, write_result
from carom.sweeps.cells import Cell, data_mark

ROWS = "rows"
DIVERGED = "The forecast left all bounds."
WAIT = 0.5
"""Seconds between looks at a folder that another process is at work in."""

Row = dict[str, Any]


def row_path(out: Path, name: str) -> Path:
    """Where the row of a fit lies."""
    return out / ROWS / f"{name}.json"


def make_row(cell: Cell, out: Path, source: str) -> str:
    """Make a fit, unless that was done, and write its row; the name of the fit.

    A fit that is refused or fails lands as a row with the reason. What only this machine refuses, such as a
    full disk, is raised: the fit would succeed elsewhere.

    Arguments:
        cell: the fit.
        out: the folder of the sweep, which every worker must see.
        source: the hash of the code that the sweep was started with.
    """
    _require_alike(cell, out, source)
    path, folder = row_path(out, cell.name), out / cell.name
    reason = ""
    while not path.exists():
        try:
            if not is_finished(folder):
                recording, description = read_described(cell.recording, cell.system)
                if data_mark(recording, description) != cell.data_mark:
                    problem = "the file or its system file has changed since the sweep began"
                    raise ChangedError(f"{cell.recording}: {problem}; start the sweep again.")
                plan_fit(cell.options, cell.recording, recording, description).make(folder)
        except FolderBusyError:
            # A worker that was given up may still be at it; what it finishes need not be done again.
            time.sleep(WAIT)
            continue
        except ChangedError:
            raise
        except InputError as error:
            if isinstance(error.__cause__, OSError):
                raise
            if is_finished(folder):  # by such a worker, since this one has looked
                continue
            reason = str(error)
        except OSError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
        write_result(path, _row(cell, folder, reason))
    return cell.name


class ChangedError(InputError):
    """What is to be fitted is not what the sweep was told to fit."""


def read_row(path: Path) -> Row:
    """A row that `make_row` wrote."""
    row = read_result(path)
    if not isinstance(row.get("fingerprint"), str) or not isinstance(row.get("run"), str):
        raise complaint(path, "this is not the row of a fit; delete it and run the same command again")
    return row


def _require_alike(cell: Cell, out: Path, source: str) -> None:
    if source != source_hash():
        raise InputError("A worker has another version of Carom; install the same one on all machines.")
    for path in (out, cell.recording):
        if not path.exists():
            raise InputError(
                f"{path}: a worker does not see this; put the recordings and --out where all machines do."
            )


def _row(cell: Cell, folder: Path, reason: str) -> Row:
    numbers: Mapping[str, float | None] = {}
    error = None
    if not reason:
        run = load_fit_directory(folder)
        numbers = _numbers(run)
        if run.split.held_out:
            error = score_held_out(run.model, run.split.held_out, noise=noise_from_notes(run.notes))
            if not math.isfinite(error):
                error, reason = None, DIVERGED
    return {
        "fingerprint": cell.fingerprint,
        "run": cell.name,
        "recording": cell.recording.name,
        "varied": {key: list(v) if isinstance(v, tuple) else v for key, v in cell.varied.items()},
        "error": error,
        "reason": reason,
        "numbers": {key: x if x is None or math.isfinite(x) else None for key, x in numbers.items()},
        "versions": {"carom": carom.__version__, "jax": jax.__version__},
        "device": jax.devices()[0].device_kind,
    }


def _numbers(run: FitDirectory) -> dict[str, float | None]:
    """What a fit found: parameters with their errors and the likelihood, or the last losses."""
    if "parameters" not in run.notes:
        return {f"loss: {key}": value for key, value in run.history[-1].items() if key != "epoch"}
    numbers: dict[str, float | None] = {"log likelihood": run.notes["log_likelihood"]}
    for channel, value in zip(("positions", "velocities"), run.notes["noise"], strict=True):
        numbers[f"noise of {channel}"] = value
    for parameter in run.notes["parameters"]:
        numbers[parameter["name"]] = parameter["value"]
        numbers[f"{parameter['name']}, standard error"] = parameter["standard_error"]
    return numbers
