"""Sweep files: which fits are to be made, and where, in TOML."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from carom.data.io.toml_file import parse_toml, read_toml_text
from carom.data.io.toml_table import TomlTable, as_written
from carom.errors import MAXIMUM_SEED
from carom.storage.input_file import complaint, suggestion
from carom.sweeps.cluster_options import CLUSTER_KEYS, ClusterOptions, read_cluster
from carom.sweeps.option_values import OPTIONS, is_number, is_whole, option_value, options_table

SWEEP_KEYS = ("recording", "system", "hold_out", "seeds")
STUDY_KEYS = ("trials", "seed", "together", "sampler", "ranges")
RANGE_KEYS = ("low", "high", "log")
TABLES: dict[str, tuple[str, ...]] = {
    "sweep": SWEEP_KEYS,
    "fit": tuple(OPTIONS),
    "grid": (),
    "study": STUDY_KEYS,
    "cluster": CLUSTER_KEYS,
}
MOST_SEEDS, MOST_TRIALS = 10_000, 100_000
HOLD_OUT = 0.2

Sampler = Literal["tpe", "random"]


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` that a study draws from, evenly or by their logarithm."""

    low: int | float
    high: int | float
    log: bool
    whole: bool


@dataclass(frozen=True)
class Study:
    """Trials that Optuna chooses.

    Arguments:
        trials: how many.
        seed: of the sampler.
        together: trials that are chosen at a time, before any of them is known; whatever runs beside each
            other then, the study is the same.
        sampler: "tpe" learns from the trials so far, "random" does not.
        ranges: for every option that varies, a range or a list of choices.
    """

    trials: int
    seed: int
    together: int
    sampler: Sampler
    ranges: Mapping[str, "Range | tuple[Any, ...]"]


@dataclass(frozen=True)
class SweepFile:
    """The content of a sweep file.

    Arguments:
        path: the file.
        recordings: what is fitted.
        system: the system file of all of them; None for the one beside each.
        hold_out: the share that fits do not see, and are scored by.
        seeds: of every fit.
        fixed: options that all fits have.
        grids: options that vary, with their values; the fits are the product of each, one after the other.
        study: what is there instead of grids.
        cluster: where fits are made.
    """

    path: Path
    recordings: tuple[Path, ...]
    system: Path | None
    hold_out: float
    seeds: tuple[int, ...]
    fixed: Mapping[str, Any]
    grids: tuple[Mapping[str, tuple[Any, ...]], ...]
    study: Study | None
    cluster: ClusterOptions

    def reseeded(self, seed: int) -> "SweepFile":
        """The same with a number added to every seed."""
        study = self.study and replace(self.study, seed=self.study.seed + seed)
        return replace(self, seeds=tuple(seed + own for own in self.seeds), study=study)


def read_sweep_file(path: Path) -> SweepFile:
    """Read a sweep file; a wrong key, type or value is an `InputError` that names it and says what is right.

    Paths in it are relative to the folder that it lies in.
    """
    tables = parse_toml(path, read_toml_text(path, kind="sweep file"))
    for name in tables:
        if name not in TABLES:
            owner = next((table for table, keys in TABLES.items() if name.replace("-", "_") in keys), None)
            if owner is not None:
                raise complaint(path, f"the key stands outside the tables; write it under [{owner}]", name)
            raise complaint(path, f"there is no such table; {suggestion(name, TABLES)}", name)
    if "grid" in tables and "study" in tables:
        raise complaint(path, "a sweep is a grid or a study; write one of the two", "[study]")
    sweep = TomlTable(path, "[sweep]", _underscored(tables.get("sweep", {})), SWEEP_KEYS)
    fixed = options_table(path, "[fit]", tables.get("fit", {}))
    study = _study(path, tables["study"]) if "study" in tables else None
    hold_out = sweep.number("hold_out", default=HOLD_OUT)
    if not 0 <= hold_out < 1 or (study is not None and hold_out == 0):
        least = "greater than 0" if study is not None else "from 0"
        raise sweep.wrong("hold_out", f"write a share {least} and less than 1, not {hold_out:g}")
    varied = {*study.ranges} if study is not None else set()
    grids = _grids(path, tables.get("grid", {}))
    for key in fixed.values:
        if key in varied or any(key in grid for grid in grids):
            where = "[grid]" if study is None else "[study.ranges]"
            raise fixed.wrong(key, f"the option varies under {where}; write it in one of the two")
    return SweepFile(
        path,
        _recordings(sweep),
        path.parent / sweep.text("system") if "system" in sweep.values else None,
        hold_out,
        _seeds(sweep),
        {key: option_value(fixed, key, value) for key, value in fixed.values.items()},
        grids,
        study,
        read_cluster(path, tables.get("cluster", {})),
    )


def _underscored(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {key.replace("-", "_"): value for key, value in values.items()}


def _recordings(sweep: TomlTable) -> tuple[Path, ...]:
    value = sweep.require("recording")
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        problem = f"write a file in quotes, or a list of different ones, not {as_written(value)}"
        raise sweep.wrong("recording", problem)
    return tuple(sweep.path.parent / name for name in names)


def _seeds(sweep: TomlTable) -> tuple[int, ...]:
    value = sweep.values.get("seeds", 1)
    if not isinstance(value, list):
        return tuple(range(sweep.whole("seeds", maximum=MOST_SEEDS) if "seeds" in sweep.values else 1))
    seeds = [number for number in value if type(number) is int and 0 <= number <= MAXIMUM_SEED]
    if not value or len({*seeds}) < len(value):
        problem = f"write how many, or a list of different ones from 0 to {MAXIMUM_SEED}"
        raise sweep.wrong("seeds", f"{problem}, not {as_written(value)}")
    return tuple(seeds)


def _grids(path: Path, value: Any) -> tuple[Mapping[str, tuple[Any, ...]], ...]:
    several = isinstance(value, list)
    titles = [f"[[grid]] {number}" for number in range(1, len(value) + 1)] if several else ["[grid]"]
    grids = []
    for title, part in zip(titles, value if several else [value], strict=True):
        table = options_table(path, title, part)
        grids.append({key: _values(table, key, part) for key, part in table.values.items()})
    return tuple(grids)


def _values(table: TomlTable, key: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or not value:
        raise table.wrong(key, f"write a list of values to try, not {as_written(value)}")
    values = tuple(option_value(table, key, part) for part in value)
    if len({*values}) < len(values):
        raise table.wrong(key, "a value is there twice; keep one")
    return values


def _study(path: Path, value: Any) -> Study:
    table = TomlTable(path, "[study]", value, STUDY_KEYS)
    ranges = options_table(path, "[study.ranges]", table.require("ranges"))
    if not ranges.values:
        raise complaint(
            path, "nothing varies; write a range such as hidden = {low = 8, high = 64}", ranges.title
        )
    return Study(
        trials=table.whole("trials", maximum=MOST_TRIALS),
        seed=table.whole("seed", minimum=0, maximum=MAXIMUM_SEED) if "seed" in table.values else 0,
        together=table.whole("together", maximum=1000) if "together" in table.values else 4,
        sampler="tpe"
        if table.choice("sampler", choices=get_args(Sampler), default="tpe") == "tpe"
        else "random",
        ranges={key: _range(ranges, key, part) for key, part in ranges.values.items()},
    )


def _range(table: TomlTable, key: str, value: Any) -> "Range | tuple[Any, ...]":
    if isinstance(value, list):
        return _values(table, key, value)
    if not isinstance(value, Mapping) or not is_number(key):
        numbers = ", or a table such as {low = 8, high = 64}" if is_number(key) else ""
        raise table.wrong(key, f"write a list of values to try{numbers}, not {as_written(value)}")
    ends = TomlTable(table.path, f"{table.title} {key}", value, RANGE_KEYS)
    low, high = (option_value(table, key, ends.require(name)) for name in ("low", "high"))
    log = ends.flag("log", default=False)
    if not low < high or (log and low <= 0) or not math.isfinite(high - low):
        more = ", both greater than 0" if log else ""
        raise table.wrong(key, f"write low less than high{more}, not {low:g} and {high:g}")
    return Range(low, high, log, is_whole(key))
