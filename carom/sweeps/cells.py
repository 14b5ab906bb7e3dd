"""The single fits of a sweep, all checked before the first is made."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from carom.data import Recording, SystemFile, read_described
from carom.errors import InputError
from carom.fits import recording_hash
from carom.fits.options import FitOptions
from carom.fits.plan import plan_fit
from carom.storage.fingerprint import fingerprint
from carom.storage.input_file import complaint
from carom.sweeps.option_values import fit_options
from carom.sweeps.sweep_file import Range, SweepFile

MOST_CELLS = 100_000
MOST_CORNERS = 4096
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Cell:
    """One fit of a sweep.

    Arguments:
        name: its run folder.
        recording, system: its files.
        varied: what tells it from the others of its sweep, by column of the table.
        options: all that `carom fit` would be told.
        fingerprint: changes with everything that the result depends on.
        data_mark: changes with what its files hold.
    """

    name: str
    recording: Path
    system: Path | None
    varied: Mapping[str, Any]
    options: FitOptions
    fingerprint: str
    data_mark: str


class Cells:
    """The cells of one sweep; every recording is read once."""

    def __init__(self, sweep: SweepFile):
        self._sweep = sweep
        self._data = {path: read_described(path, sweep.system) for path in sweep.recordings}
        self._marks = {path: data_mark(*data) for path, data in self._data.items()}

    def grid(self) -> list[Cell]:
        """All cells in their order: recordings, then values as they stand in the file, then seeds."""
        found: dict[str, Cell] = {}
        sweep = self._sweep
        for grid in sweep.grids:
            count = len(sweep.recordings) * len(sweep.seeds) * math.prod(map(len, grid.values()))
            if count > MOST_CELLS:
                problem = f"that would be {count} fits, and {MOST_CELLS} are the most; leave some out"
                raise complaint(sweep.path, problem, "[grid]")
            for values in product(*grid.values()):
                for cell in self.of(dict(zip(grid, values, strict=True))):
                    if cell.fingerprint in found:
                        problem = f"the fit {cell.name} is there twice; keep one"
                        raise complaint(sweep.path, problem, "[grid]")
                    found[cell.fingerprint] = cell
        order = {path: number for number, path in enumerate(sweep.recordings)}
        cells = sorted(found.values(), key=lambda cell: order[cell.recording])
        self._require_possible(cells)
        return cells

    def require_ranges(self) -> None:
        """Check a study at the ends of its ranges and at all choices, as far as these are few thousands."""
        assert self._sweep.study is not None
        ranges = self._sweep.study.ranges
        ends = [(r.low, r.high) if isinstance(r, Range) else r for r in ranges.values()]
        corners = islice(product(*ends), MOST_CORNERS)
        self._require_possible(cell for c in corners for cell in self.of(dict(zip(ranges, c, strict=True))))

    def of(self, varied: Mapping[str, Any]) -> Iterator[Cell]:
        """The cells of one choice of what varies: of every recording from every seed."""
        sweep = self._sweep
        for path in sweep.recordings:
            for seed in sweep.seeds:
                told = {**({"recording": path.name} if len(sweep.recordings) > 1 else {}), **varied}
                told |= {"seed": seed} if len(sweep.seeds) > 1 or not told else {}
                name = _name(told)
                try:
                    options = fit_options({**sweep.fixed, **varied}, hold_out=sweep.hold_out, seed=seed)
                except InputError as error:
                    raise self._refused(name, error) from None
                mark = fingerprint(options, self._marks[path])
                yield Cell(f"{name}-{mark[:10]}", path, sweep.system, told, options, mark, self._marks[path])

    def _require_possible(self, cells: Iterable[Cell]) -> None:
        tried = set()
        for cell in cells:
            alike = replace(cell.options, seed=0)  # whether a fit can be made does not depend on its seed
            mark = fingerprint(alike, cell.data_mark)
            if mark in tried:
                continue
            tried.add(mark)
            try:
                plan_fit(alike, cell.recording, *self._data[cell.recording]).require_possible()
            except InputError as error:
                raise self._refused(_name(cell.varied), error) from None

    def _refused(self, name: str, error: InputError) -> InputError:
        return InputError(f"{self._sweep.path}, fit {name}: {error}")


def data_mark(recording: Recording, description: SystemFile) -> str:
    """Changes with every number that was measured and with all that the system file says."""
    return fingerprint(recording_hash(recording), description)


def _name(varied: Mapping[str, Any]) -> str:
    """Values that vary, as part of the name of a folder."""
    text = ",".join(f"{key}={_short(value)}" for key, value in varied.items())
    return re.sub(r"[^A-Za-z0-9.,=+_-]", "_", text)[:_LONGEST_NAME]


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(value) or "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
