"""What a sweep leaves for people and programs: a table, a document, and apart from both the times."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import carom
from carom.errors import InputError
from carom.fits.fit_directory import read_manifest
from carom.storage.atomic import atomic_write
from carom.sweeps.run import Line, Outcome

TABLE, RESULTS, TIMING = "table.csv", "results.json", "timing.json"


def write_tables(outcome: Outcome, out: Path) -> None:
    """Write `table.csv`, `results.json` and `timing.json` into the folder of a sweep.

    The first two are the same, byte for byte, however often and wherever the same fits were made on machines
    of the same kind: they are in the order of the sweep, and hold no times.
    """
    header = _header(outcome.lines)
    with atomic_write(out / TABLE) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_text(_values(line).get(name)) for name in header] for line in outcome.lines)
    document: dict[str, Any] = {
        "score": "root mean squared error of a coordinate over all that was held out",
        "versions": {"carom": carom.__version__},
        "devices": sorted({line.row["device"] for line in outcome.lines}),
    }
    if outcome.trials:
        document["trials"] = [vars(trial) for trial in outcome.trials]
    document["fits"] = [_document(line) for line in outcome.lines]
    _write_json(out / RESULTS, document)
    _write_json(out / TIMING, {line.row["run"]: _seconds(out / line.row["run"]) for line in outcome.lines})


def columns(line: Line) -> dict[str, Any]:
    """What varies, by column: the trial, then the options."""
    trial = {} if line.trial is None else {"trial": line.trial}
    return trial | dict(line.cell.varied)


def _values(line: Line) -> dict[str, Any]:
    row = line.row
    before = {"run": row["run"], **columns(line), "error": row["error"]}
    return before | row["numbers"] | {"reason": row["reason"]}


def _header(lines: Iterable[Line]) -> list[str]:
    """Names of columns in the order in which they first appear, the numbers of a fit after its score."""
    varied: dict[str, None] = {}
    numbers: dict[str, None] = {}
    for line in lines:
        varied |= dict.fromkeys(columns(line))
        numbers |= dict.fromkeys(line.row["numbers"])
    return ["run", *varied, "error", *numbers, "reason"]


def _document(line: Line) -> dict[str, Any]:
    row = line.row
    kept = {key: row[key] for key in ("run", "recording", "error", "numbers", "reason")}
    return {**kept, "seed": line.cell.options.seed, "varied": columns(line)}


def _text(value: Any) -> str:
    """A cell of the table; floats have all their digits."""
    if isinstance(value, tuple):
        return " ".join(value)
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _seconds(folder: Path) -> float | None:
    """What a fit took; nothing where it was refused."""
    try:
        return read_manifest(folder)["seconds"]
    except InputError:
        return None


def _write_json(path: Path, document: Any) -> None:
    with atomic_write(path) as temporary:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
