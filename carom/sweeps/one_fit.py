"""One fit of a sweep as a task: from its fit directory to its row of the table."""

import math
import time
from pathlib import Path
from typing import Any

from carom.data import read_described
from carom.errors import InputError
from carom.evaluation import score_held_out
from carom.execution.executor import ProgressCallback
from carom.execution.tasks import Task
from carom.fits import FitDirectory, load_fit_directory, noise_from_notes
from carom.fits.fit_directory import is_finished
from carom.fits.plan import plan_fit
from carom.storage.lock import FolderBusyError
from carom.sweeps.planning import SweepFit, data_fingerprint

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
    for path in (out, fit.recording):
        if not path.exists():
            raise InputError(
                f"{path}: a worker cannot see this path; put recordings and --out where all machines do."
            )
    reason = _make(fit, out / fit.name, progress)
    row: Row = {
        "run": fit.name,
        "recording": fit.recording.name,
        "error": None,
        "numbers": {},
        "reason": reason,
    }
    if not reason:
        finished = load_fit_directory(out / fit.name)
        numbers = _numbers(finished)
        row["numbers"] = {name: x if x is None or math.isfinite(x) else None for name, x in numbers.items()}
        if finished.split.held_out:
            error = score_held_out(
                finished.model, finished.split.held_out, noise=noise_from_notes(finished.notes)
            )
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
    numbers: dict[str, float | None] = {"log likelihood": fit.notes["log_likelihood"]}
    for channel, value in zip(("positions", "velocities"), fit.notes["noise"], strict=True):
        numbers[f"noise of {channel}"] = value
    for parameter in fit.notes["parameters"]:
        numbers[parameter["name"]] = parameter["value"]
        numbers[f"{parameter['name']}, standard error"] = parameter["standard_error"]
    return numbers
