"""The results of a sweep: a table, a document, and apart from both the times."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import carom
from carom.errors import InputError
from carom.fits.fit_directory import read_manifest
from carom.storage.atomic import atomic_write
from carom.sweeps.one_fit import Row
from carom.sweeps.planning import SweepFit
from carom.sweeps.study import Trial

TABLE, RESULTS, TIMING = "table.csv", "results.json", "timing.json"


@dataclass(frozen=True)
class Line:
    """A line of the table: a fit, its row, and its trial in a study."""

    fit: SweepFit
    row: Row
    trial: int | None = None

    @property
    def varied(self) -> dict[str, Any]:
        """What distinguishes this fit from the others, by column of the table."""
        return ({} if self.trial is None else {"trial": self.trial}) | dict(self.fit.varied)


@dataclass(frozen=True)
class SweepResult:
    """The results of a sweep.

    Arguments:
        lines: in the order of the sweep file or of the trials, whichever fit ended first.
        trials: those of a study.
        made: number of fits made by this command; the others were stored.
    """

    lines: tuple[Line, ...]
    trials: tuple[Trial, ...]
    made: int

    @property
    def failed(self) -> int:
        """Number of fits with a reason instead of an error: refused, failed, or with a diverging forecast."""
        return sum(bool(line.row["reason"]) for line in self.lines)

    @property
    def best(self) -> tuple[Line, ...]:
        """Lines with an error, the least first."""
        scored = [line for line in self.lines if line.row["error"] is not None]
        return tuple(sorted(scored, key=lambda line: line.row["error"]))

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the least mean error."""
        known = [(trial.value, trial.number) for trial in self.trials if trial.value is not None]
        return self.trials[min(known)[1]] if known else None

    def write(self, out: Path) -> None:
        """Write `table.csv`, `results.json` and `timing.json`.

        The first two are the same, byte for byte, however often and wherever the same fits were made on
        machines of the same kind: they are in the order of the sweep, and contain no times.
        """
        with atomic_write(out / TABLE) as temporary:
            self._table().write_csv(temporary)
        document: dict[str, Any] = {
            "score": "root mean squared error of a coordinate over all held-out data",
            "versions": {"carom": carom.__version__},
            "devices": sorted({line.row["device"] for line in self.lines}),
        }
        if self.trials:
            document["trials"] = [vars(trial) for trial in self.trials]
        kept = ("run", "recording", "error", "numbers", "reason")
        document["fits"] = [
            {name: line.row[name] for name in kept} | {"seed": line.fit.options.seed, "varied": line.varied}
            for line in self.lines
        ]
        _write_json(out / RESULTS, document)
        # In a file of their own, because they differ every time.
        _write_json(out / TIMING, {line.row["run"]: _seconds(out / line.row["run"]) for line in self.lines})

    def _table(self) -> pl.DataFrame:
        varied = {name: None for line in self.lines for name in line.varied}
        numbers = {name: None for line in self.lines for name in line.row["numbers"]}
        rows = [
            varied
            | {name: " ".join(map(str, v)) if isinstance(v, tuple) else v for name, v in line.varied.items()}
            | numbers
            | line.row["numbers"]
            | {name: line.row[name] for name in ("run", "error", "reason")}
            for line in self.lines
        ]
        # The schema from all rows: a column may begin with empty cells.
        return pl.DataFrame(rows, infer_schema_length=None).select(
            "run", *varied, "error", *numbers, "reason"
        )


def _seconds(directory: Path) -> float | None:
    """The duration of a fit; None where it failed."""
    try:
        return read_manifest(directory)["seconds"]
    except InputError:
        return None


def _write_json(path: Path, document: Any) -> None:
    with atomic_write(path) as temporary:
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
