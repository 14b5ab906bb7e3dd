"""The committed document of a reproduction, `results/paper.json`, from the units on disk."""

import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import carom
from carom.execution.tasks import Piece, Result, run_pieces
from carom.execution.workers import Tell
from carom.reproduction.paper.run import Unit, oracle_errors
from carom.reproduction.paper.statistics import held_out_median
from carom.reproduction.paper.trials import ORACLE_FILE
from carom.storage.atomic import atomic_write
from carom.storage.fingerprint import fingerprint, source_hash
from carom.storage.result_file import read_result, write_result


def add_oracle(
    units: Sequence[Unit], folder: Path, *, workers: int = 1, progress: Tell | None = None
) -> dict[str, list[float]]:
    """The oracle's errors on the same recordings, kept beside the units and computed once.

    Those of every experiment lie in a file of their own, and all of them in one.
    """
    path = folder / ORACLE_FILE
    known: dict[str, Any] = read_result(path) if path.exists() else {}
    # Without noise the oracle is the truth, and an ablation has the recordings of its experiment.
    wanted = {
        f"{unit.experiment_name}.{unit.protocol}": unit
        for unit in units
        if unit.experiment.noise > 0 and "ablation" not in unit.experiment_name
    }
    pieces = [
        Piece(
            folder / path.stem / f"{key}.json",
            fingerprint(unit.experiment, unit.protocol, unit.seeds),
            partial(_ask_oracle, unit),
            len(unit.seeds),
        )
        for key, unit in wanted.items()
    ]
    found = run_pieces(pieces, workers=workers, progress=progress)
    for key, result in zip(wanted, found, strict=True):
        known[key] = {"seeds": result["seeds"], "errors": result["errors"]}
    write_result(path, known)
    return {key: known[key]["errors"] for key in wanted}


def _ask_oracle(unit: Unit, tell: Tell) -> Result:
    errors = oracle_errors(unit.experiment, unit.protocol, unit.seeds, tell)
    return {"seeds": list(unit.seeds), "errors": errors}


def write_results(
    summaries: Sequence[dict[str, Any]], oracle: dict[str, list[float]], path: Path, *, command: str
) -> None:
    """One document with every row, the versions and a hash of the source that made it."""
    write_document(
        path,
        command=command,
        devices=[summary["device"] for summary in summaries],
        oracle=rounded(oracle),
        units=[_condensed(summary) for summary in summaries],
    )


def write_document(path: Path, *, command: str, devices: Iterable[str], **content: Any) -> dict[str, Any]:
    """Results with what made them: the command, versions, a hash of the source, devices; returns all that."""
    document = {
        "command": command,
        "versions": {
            "carom": carom.__version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "source_sha256": source_hash(),
        "devices": sorted(set(devices)),
        **content,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return document


def _condensed(summary: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for row in summary["rows"]:
        kept = {key: value for key, value in row.items() if key != "held_out_paper_rmse"}
        rows.append(rounded(kept | {"held_out_median": held_out_median(row)}))
    return {key: value for key, value in summary.items() if key != "fingerprint"} | {"rows": rows}


def rounded(value: Any) -> Any:
    """Five digits all the way down; null for what is not finite, which JSON cannot hold.

    Example:
        >>> rounded({"errors": [1.23456789, float("nan")], "seed": 3})
        {'errors': [1.2346, None], 'seed': 3}
    """
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None
