"""Sweep files: which fits to make, and where, in TOML."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from carom.data.io import toml_file as toml
from carom.errors import MAXIMUM_SEED
from carom.estimation import TouchSensor
from carom.execution.cluster import ClusterSettings
from carom.fits.options import OPTIONS
from carom.storage.input_file import complaint, suggestion

MAXIMUM_SEEDS = 10_000


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    # It would be made once and listed twice.
    if len({*values}) < len(values):
        raise ValueError("a value is there twice; keep one")
    return values


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _counted(value: object) -> object:
    if type(value) is not int:
        return value
    if not 1 <= value <= MAXIMUM_SEEDS:
        raise ValueError(f"write a number of seeds from 1 to {MAXIMUM_SEEDS}, or a list of them")
    return list(range(value))


_SOME = (Field(min_length=1), AfterValidator(_distinct))
_SEED = Annotated[toml.Whole, Field(ge=0, le=MAXIMUM_SEED)]


class SweepTable(toml.TomlTable):
    """`[sweep]`: the data, and how fits are scored."""

    recording: Annotated[tuple[toml.Name, ...], BeforeValidator(_listed), *_SOME]
    """what is fitted"""
    system: toml.Name | None = None
    """left out: the .toml beside each recording"""
    hold_out: toml.Number = Field(default=0.2, ge=0, lt=1)
    """fraction that no fit sees, to score it"""
    seeds: Annotated[tuple[_SEED, ...], BeforeValidator(_counted), *_SOME] = (0,)
    """of every fit, or how many"""


class _Document(toml.TomlTable):
    """A sweep file, in which a single [grid] counts as one of several."""

    sweep: SweepTable
    fit: dict[str, Any] = Field(default_factory=dict)
    grid: tuple[dict[str, Any], ...]
    cluster: ClusterSettings = ClusterSettings()


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file.

    Arguments:
        path: the file.
        recordings: what is fitted.
        system: the system file of all recordings; None for the one beside each.
        hold_out: fraction of the data that fits do not see, and are scored by.
        seeds: of every fit.
        fixed: options that all fits have.
        grids: options that vary, with their values; each grid is the product of these.
        cluster: where fits are made.
    """

    path: Path
    recordings: tuple[Path, ...]
    system: Path | None
    hold_out: float
    seeds: tuple[int, ...]
    fixed: Mapping[str, Any]
    grids: tuple[Mapping[str, tuple[Any, ...]], ...]
    cluster: ClusterSettings

    def reseeded(self, seed: int) -> "Sweep":
        """The same with a number added to every seed."""
        return replace(self, seeds=tuple(seed + own for own in self.seeds))


def read_sweep_file(path: Path) -> Sweep:
    """Read a sweep file; a wrong key, type or value is an `InputError` that names it and says what is right.

    Paths in it are relative to its directory; dashes in keys are as good as underscores.
    """
    tables = dict(toml.parse_toml(path, toml.read_toml_text(path, kind="sweep file")))
    grids = tables.get("grid", {})
    tables["grid"] = grids if isinstance(grids, list) else [grids]
    document = toml.validate(path, _Document, _underscored(tables))
    sweep, fixed = document.sweep, _options(path, "[fit]", document.fit)
    grids = tuple(_options(path, f"[[grid]] {number}", grid) for number, grid in enumerate(document.grid, 1))
    for number, grid in enumerate(grids, start=1):
        for name, values in grid.items():
            place = f"[[grid]] {number}", name
            if not isinstance(values, tuple) or not values:
                raise complaint(path, f"write a list of values to try, not {toml.as_written(values)}", *place)
            if len({*values}) < len(values):
                raise complaint(path, "a value is there twice; keep one", *place)
            if name in fixed:
                problem = "the option stands under [fit] too; write it in one of the two tables"
                raise complaint(path, problem, *place)
    recordings = tuple(path.parent / name for name in sweep.recording)
    system = None if sweep.system is None else path.parent / sweep.system
    return Sweep(path, recordings, system, sweep.hold_out, sweep.seeds, fixed, grids, document.cluster)


def _options(path: Path, title: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a fit with their values, whose types `FitOptions` checks; all of them are known."""
    known = [name for name in OPTIONS if name not in ("hold_out", "seed", "sensor")]
    known += [f"sensor.{part.name}" for part in fields(TouchSensor)]
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name in ("seed", *SweepTable.model_fields):
            raise complaint(path, f"{name} goes under [sweep], where it serves all fits", title)
        parts = {f"{name}.{key}": x for key, x in value.items()} if isinstance(value, dict) else {name: value}
        for option, content in parts.items():
            if option not in known:
                raise complaint(path, f"there is no such key; {suggestion(option, known)}", title, option)
            found[option] = _hashable(content)
    return found


def _hashable(value: Any) -> Any:
    """The same with tuples for lists."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _underscored(value: Any) -> Any:
    if isinstance(value, list):
        return [_underscored(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    return {name.replace("-", "_"): _underscored(part) for name, part in value.items()}
