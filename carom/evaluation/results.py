"""The one schema of `results/*.json`: tidy rows, with the command, versions and machine that made them.

    {"command": …, "versions": {…}, "machine": …, "source_sha256": …, "commit": …, "rows": [
      {"experiment": "ball", "model": "ResNet", "seed": 200, "metric": "paper_rmse", "value": 6.1},
      …]}

A row is one number. Its other entries say what the number belongs to; those of `KEYS` have a fixed meaning,
and an experiment may add its own, such as a noise level or a number of bodies. A value of null stands for a
number that is not finite: the forecast diverged.
"""

import json
import math
import platform
import subprocess
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import polars as pl

import carom
from carom.errors import InputError
from carom.storage.atomic import make_folder, write_whole
from carom.storage.fingerprint import source_hash
from carom.storage.input_file import complaint, require_file

KEYS = ("experiment", "model", "recipe", "protocol", "truth", "touch", "start", "seed")
"""Entries of a row with a fixed meaning, in the order of the file; all are optional but the first.

experiment: which one. model: what was fitted, as tables name it. recipe: "paper" or "carom". protocol: of the
paper's experiments, "text" or "published". truth: the simulated motion, "exact", "scheme" or "published".
touch: what the model was given, "observed", "inferred", "imperfect" or "none". start: "known" or "estimated".
seed: of noise, initial weights and minibatches.
"""
MAXIMUM_BYTES = 2**26
DIGITS = 5
"""Significant digits of a value: more than any table prints or two seeds agree in."""


class Results(NamedTuple):
    """A file of results.

    Arguments:
        rows: one number per row, with all of `KEYS` as columns (null where they do not apply), the
            experiments' own keys, `metric` and `value`; infinite where a forecast diverged.
        header: where they come from: command, versions, machine, source_sha256, commit, data_sha256.
    """

    rows: pl.DataFrame
    header: dict[str, Any]


def write_results(
    path: Path | None,
    rows: Iterable[Mapping[str, Any]],
    *,
    command: str,
    machine: str | None = None,
    jax_version: str | None = None,
    data_sha256: str | None = None,
) -> Results:
    """Write tidy rows, sorted by what they belong to, one per line; returns them as they are read back.

    Arguments:
        path: the file, whose folder is made where it is missing; None to write nothing.
        rows: dictionaries with "experiment", "metric", "value" and further keys; those that are None are left
            out, and floats are rounded to `DIGITS` significant digits.
        command: what makes these results when it is typed.
        machine: the devices that computed them, by default those of this process.
        jax_version: of the processes that computed them, by default that of this one.
        data_sha256: a hash of the measured recordings that they depend on.
    """
    versions = {"carom": carom.__version__, "jax": jax_version or jax.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    header = {
        "command": command,
        "versions": versions,
        "machine": machine or jax.devices()[0].device_kind,
        "source_sha256": source_hash(),
        "commit": _commit(),
        "data_sha256": data_sha256,
    }
    header = {key: value for key, value in header.items() if value is not None}
    tidy = [_tidy(row) for row in rows]
    # A stable order keeps the differences between two versions of a file small.
    *columns, _ = _columns(tidy)  # all but the value
    tidy.sort(key=lambda row: [(key not in row, row.get(key, 0)) for key in columns])
    for one, other in pairwise(tidy):
        if one | {"value": 0} == other | {"value": 0}:
            raise InputError(f"Two results have the same keys and the same metric: {other}.")
    if path is not None:
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in tidy)
        # One row per line, so that a difference between two versions of the file is a list of numbers.
        text = json.dumps(header, indent=1, ensure_ascii=False)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n'
        make_folder(path.parent)
        write_whole(path, text)
    return Results(_frame(tidy), header)


def read_results(path: Path) -> Results:
    """Read what `write_results` wrote; anything else is an `InputError`."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="file of results")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Results(_frame(document.pop("rows")), document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise complaint(path, "this is not a file of results as Carom writes them") from error
    except pl.exceptions.PolarsError as error:
        raise complaint(path, "its rows are not those of results as Carom writes them") from error


def wide(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per fit instead of one per number: metrics become columns, null where they were not measured.

    Example:
        >>> tidy = [{"experiment": "ball", "seed": 0, "metric": name, "value": 1.0} for name in ("a", "b")]
        >>> wide(pl.DataFrame(tidy)).to_dicts()
        [{'experiment': 'ball', 'seed': 0, 'a': 1.0, 'b': 1.0}]
    """
    index = [name for name in rows.columns if name not in ("metric", "value")]
    return rows.pivot(on="metric", index=index, values="value")


def tidy_rows(keys: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each of several numbers that belong to the same fit.

    Example:
        >>> tidy_rows({"experiment": "ball", "seed": 0}, {"missed": 1})
        [{'experiment': 'ball', 'seed': 0, 'metric': 'missed', 'value': 1}]
    """
    return [{**keys, "metric": metric, "value": value} for metric, value in metrics.items()]


def _tidy(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it is written: plain numbers, keys in order, null where the value is not finite."""
    plain = {key: part.item() if isinstance(part, np.generic) else part for key, part in row.items()}
    kept = {key: part for key, part in plain.items() if part is not None or key == "value"}
    value = kept.get("value")
    # JSON would write true, which is no number.
    if isinstance(value, bool):
        kept["value"] = int(value)
    elif isinstance(value, float):
        kept["value"] = float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return {key: kept[key] for key in _columns([kept]) if key in kept}


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of `KEYS`, then others by name, then metric and value."""
    last = ("metric", "value")
    others = sorted({key for row in rows for key in row} - {*KEYS, *last})
    return [*KEYS, *others, *last]


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    found = pl.from_dicts(rows, infer_schema_length=None) if rows else pl.DataFrame()
    absent = [pl.lit(None).alias(key) for key in (*KEYS, "metric", "value") if key not in found.columns]
    # Null is a number that was not finite; tables count it as infinite.
    value = pl.col("value").cast(pl.Float64).fill_null(math.inf)
    return found.with_columns(absent).with_columns(value).select(_columns(rows))


def _commit() -> str | None:
    """The commit of a source checkout; none of an installed package."""
    root = Path(carom.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
