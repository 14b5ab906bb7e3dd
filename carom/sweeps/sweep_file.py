"""Sweep files: which fits to make, and where, in TOML.

The tables with options of a fit are made from the one declaration of these options, `carom.fits.options`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from carom.data.io import toml_file as toml
from carom.errors import MAXIMUM_SEED
from carom.execution.cluster import ClusterSettings
from carom.fits.options import OPTIONS
from carom.validation import declared_types

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


_SEED = Annotated[toml.Whole, Field(ge=0, le=MAXIMUM_SEED)]


class SweepTable(toml.TomlTable):
    """`[sweep]`: the data, and how fits are scored."""

    recording: Annotated[tuple[toml.Name, ...], BeforeValidator(_listed), AfterValidator(_distinct)] = Field(
        min_length=1, description="what is fitted"
    )
    system: toml.Name | None = Field(default=None, description="left out: the .toml beside each recording")
    hold_out: toml.Number = Field(
        default=0.2, ge=0, lt=1, description="fraction that no fit sees, to score it"
    )
    seeds: Annotated[tuple[_SEED, ...], BeforeValidator(_counted), AfterValidator(_distinct)] = Field(
        default=(0,), min_length=1, description="of every fit, or how many"
    )


class _Options(toml.TomlTable):
    """A table whose keys are options of a fit."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _require_options(cls, values: Any) -> Any:
        # Without this, the nearest option would be proposed: "did you mean scheme?" for seed.
        for name in values if isinstance(values, Mapping) else ():
            if name in (*SweepTable.model_fields, "seed"):
                raise ValueError(f"{name} goes under [sweep], where it serves all fits")
        return values

    def given(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """The keys in the file with their values; "sensor.missed" is a field of the option sensor."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, _Options):
                yield from value.given(f"{prefix}{name}.")
            elif value is not None:
                yield prefix + name, value


def _value(kind: Any) -> Any:
    """The type of a value of an option in a file, strict where Python's own is not."""
    if get_origin(kind) is tuple:
        return Annotated[tuple[_value(get_args(kind)[0]), ...], AfterValidator(_distinct)]
    return kind if get_origin(kind) is Literal else {int: toml.Whole, str: toml.Name}.get(kind, toml.Number)


def _values(kind: Any) -> Any:
    """As `_value`, for a list of values to try."""
    return Annotated[tuple[_value(kind), ...], Field(min_length=1), AfterValidator(_distinct)]


def _table(kinds: Mapping[str, Any], accepted: Callable[[Any], Any]) -> Any:
    """The model of a table whose keys are options of these types."""
    keys: dict[str, Any] = {}
    for name, kind in kinds.items():
        inner = accepted(kind)
        if is_dataclass(kind):  # a table within the table, such as that of the touch sensor
            inner = _table({part: of for part, (of, _) in declared_types(kind).items()}, accepted)  # pyright: ignore
        keys[name] = (inner | None, None)
    return pydantic.create_model("Options", __base__=_Options, **keys)


_KINDS = {name: option.type for name, option in OPTIONS.items() if name not in ("hold_out", "seed")}
FitTable, GridTable = (_table(_KINDS, declare) for declare in (_value, _values))


class _Document(toml.TomlTable):
    """A sweep file with one grid or none."""

    sweep: SweepTable
    fit: FitTable = Field(default_factory=FitTable)  # pyright: ignore[reportInvalidTypeForm]
    grid: GridTable = Field(default_factory=GridTable)  # pyright: ignore[reportInvalidTypeForm]
    cluster: ClusterSettings = ClusterSettings()

    @property
    def grids(self) -> list[dict[str, tuple[Any, ...]]]:
        """What varies in every grid."""
        return [dict(one.given()) for one in (self.grid if isinstance(self.grid, tuple) else (self.grid,))]

    @pydantic.model_validator(mode="after")
    def _require_consistent(self):
        varied = {name for grid in self.grids for name in grid}
        for name, _ in self.fit.given():
            if name in varied:
                raise ValueError(f"[fit], {name}: the option varies too; write it in one of the two tables")
        return self


class _SeveralGrids(_Document):
    """A sweep file with several grids, one after the other."""

    grid: tuple[GridTable, ...] = Field()  # pyright: ignore


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
    tables = _underscored(toml.parse_toml(path, toml.read_toml_text(path, kind="sweep file")))
    # Two declarations, so that messages name the table as it is written, [grid] or [[grid]] 2.
    several = isinstance(tables.get("grid"), list)
    document = toml.validate(path, _SeveralGrids if several else _Document, tables)
    sweep = document.sweep
    written = tables.get("grid", []) if several else [tables.get("grid", {})]
    return Sweep(
        path,
        tuple(path.parent / name for name in sweep.recording),
        None if sweep.system is None else path.parent / sweep.system,
        sweep.hold_out,
        sweep.seeds,
        dict(document.fit.given()),
        tuple(map(_ordered, document.grids, written)),
        document.cluster,
    )


def _ordered(values: Mapping[str, Any], written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values by option in the order of the file."""
    order = list(written)
    return {name: values[name] for name in sorted(values, key=lambda n: order.index(n.partition(".")[0]))}


def _underscored(value: Any) -> Any:
    if isinstance(value, list):
        return [_underscored(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    return {name.replace("-", "_"): _underscored(part) for name, part in value.items()}
