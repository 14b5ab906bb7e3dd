"""The fits of a sweep, all checked before the first one starts."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from carom.data import Recording, SystemFile, read_described
from carom.errors import InputError
from carom.fits import recording_hash
from carom.fits.options import FitOptions
from carom.fits.plan import plan_fit
from carom.storage.fingerprint import fingerprint
from carom.storage.input_file import complaint
from carom.sweeps.sweep_file import Sweep

MAXIMUM_FITS = 100_000
_MAXIMUM_NAME = 100


@dataclass(frozen=True)
class SweepFit:
    """One fit of a sweep.

    Arguments:
        name: its fit directory.
        recording, system: its files.
        varied: what distinguishes it from the others of its sweep, by column of the table.
        options: those of `carom fit`.
        fingerprint: changes with everything that the result depends on.
        data_fingerprint: changes with the content of its files.
    """

    name: str
    recording: Path
    system: Path | None
    varied: Mapping[str, Any]
    options: FitOptions
    fingerprint: str
    data_fingerprint: str


def plan_sweep(sweep: Sweep) -> list[SweepFit]:
    """All fits, checked, in their order: recordings, then values as they stand in the file, then seeds."""
    count = sum(math.prod(map(len, grid.values())) for grid in sweep.grids)
    count *= len(sweep.recordings) * len(sweep.seeds)
    if count > MAXIMUM_FITS:
        problem = f"there would be {count} fits, more than the {MAXIMUM_FITS} allowed; leave some out"
        raise complaint(sweep.path, problem, "[grid]")
    # Kept, as checking a thousand fits would otherwise read each file a thousand times.
    data = {path: read_described(path, sweep.system) for path in sweep.recordings}
    prints = {path: data_fingerprint(*described) for path, described in data.items()}
    # The last key varies fastest, as in nested loops.
    grid = [
        dict(zip(grid, values, strict=True)) for grid in sweep.grids for values in product(*grid.values())
    ]
    found: dict[str, SweepFit] = {}
    for path, values, seed in product(sweep.recordings, grid, sweep.seeds):
        varied = {**({"recording": path.name} if len(sweep.recordings) > 1 else {}), **values}
        # A sweep of a single fit varies nothing, and its directory still needs a name.
        varied |= {"seed": seed} if len(sweep.seeds) > 1 or not varied else {}
        name = _name(varied)
        try:
            chosen = {**sweep.fixed, **values, "hold_out": sweep.hold_out, "seed": seed}
            options = FitOptions.from_values(chosen)
            # Whether a fit is possible does not depend on its seed.
            if seed in sweep.seeds[:1]:
                plan_fit(options, path, *data[path]).require_possible()
        except InputError as error:
            raise InputError(f"{sweep.path}, fit {name}: {error}") from None
        mark = fingerprint(options, prints[path])
        # Several grids may overlap; the table would have the same fit in two lines.
        if mark in found:
            raise complaint(sweep.path, f"the fit {name} is there twice; keep one", "[grid]")
        # Names are cut and rounded; the mark makes them unique.
        unique = f"{name}-{mark[:10]}"
        found[mark] = SweepFit(unique, path, sweep.system, varied, options, mark, prints[path])
    return list(found.values())


def data_fingerprint(recording: Recording, description: SystemFile) -> str:
    """Changes with every number of a recording and with its system file."""
    return fingerprint(recording_hash(recording), description)


def _name(varied: Mapping[str, Any]) -> str:
    """Values as part of the name of a directory."""
    text = ",".join(f"{name}={_short(value)}" for name, value in varied.items())
    return re.sub(r"[^A-Za-z0-9.,=+_-]", "_", text)[:_MAXIMUM_NAME]


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
