"""Pieces of a long run: each finished one lies in a file of its own, so that a killed run continues."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

import carom
from carom.execution.workers import Task, Tell, run_tasks
from carom.storage.result_file import read_result, write_result

Result = dict[str, Any]


class Piece(NamedTuple):
    """A result to make.

    Arguments:
        path: where it is kept.
        fingerprint: changes with everything that the result depends on.
        function: makes it; picklable where there is more than one worker.
        cost: how much work it is beside the others.
    """

    path: Path
    fingerprint: str
    function: Callable[[Tell], Result]
    cost: float


def unfinished(path: Path) -> Path:
    """The folder of checkpoints of a result that is being made."""
    return path.with_suffix(".unfinished")


def run_pieces(pieces: Sequence[Piece], *, workers: int = 1, progress: Tell | None = None) -> list[Result]:
    """The results of all pieces in their order; only those that are not there yet are made.

    Versions, the device and the fingerprint are noted in each.
    """
    results = [_kept(piece) for piece in pieces]
    missing = [index for index, result in enumerate(results) if result is None]
    tasks = [Task(partial(_make, pieces[index]), pieces[index].cost) for index in missing]
    for index, result in zip(missing, run_tasks(tasks, workers=workers, progress=progress), strict=True):
        results[index] = result
    return [result for result in results if result is not None]


def _kept(piece: Piece) -> Result | None:
    if not piece.path.exists():
        return None
    result = read_result(piece.path)
    return result if result.get("fingerprint") == piece.fingerprint else None


def _make(piece: Piece, tell: Tell) -> Result:
    result = {
        "versions": {"carom": carom.__version__, "jax": jax.__version__},
        "device": jax.devices()[0].device_kind,
        "fingerprint": piece.fingerprint,
        **piece.function(tell),
    }
    write_result(piece.path, result)
    shutil.rmtree(unfinished(piece.path), ignore_errors=True)
    return result
