"""The fits of a sweep: of a grid, all checked before the first one starts, or as a study suggests them."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from typing import Any

from carom.data import Recording, SystemFile, read_described
from carom.errors import InputError
from carom.execution.cluster import optional_module
from carom.fits import recording_hash
from carom.fits.options import FitOptions
from carom.fits.plan import plan_fit
from carom.storage.fingerprint import fingerprint
from carom.storage.input_file import complaint
from carom.sweeps.sweep_file import Range, Study, Sweep

MAXIMUM_FITS = 100_000
_MAXIMUM_CORNERS = 4096
"""Corners of a study's search space that are checked."""
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


class Planner:
    """Plans the fits of one sweep; reads every recording once."""

    def __init__(self, sweep: Sweep):
        self._sweep = sweep
        # Kept, as checking a thousand fits would otherwise read each file a thousand times.
        self._data = {path: read_described(path, sweep.system) for path in sweep.recordings}
        self._fingerprints = {path: data_fingerprint(*data) for path, data in self._data.items()}

    def grid(self) -> list[SweepFit]:
        """All fits in their order: recordings, then values as they stand in the file, then seeds."""
        found: dict[str, SweepFit] = {}
        sweep = self._sweep
        for grid in sweep.grids:
            count = len(sweep.recordings) * len(sweep.seeds) * math.prod(map(len, grid.values()))
            if count > MAXIMUM_FITS:
                problem = f"there would be {count} fits, more than the {MAXIMUM_FITS} allowed; leave some out"
                raise complaint(sweep.path, problem, "[grid]")
            # The last key varies fastest, as in nested loops.
            for values in product(*grid.values()):
                for fit in self.fits(dict(zip(grid, values, strict=True))):
                    # Several grids may overlap; the table would have the same fit in two lines.
                    if fit.fingerprint in found:
                        raise complaint(sweep.path, f"the fit {fit.name} is there twice; keep one", "[grid]")
                    found[fit.fingerprint] = fit
        fits = sorted(found.values(), key=lambda fit: sweep.recordings.index(fit.recording))
        self._require_possible(fits)
        return fits

    def require_search_space(self) -> None:
        """Check a study at the ends of its ranges and at all choices, as far as these are few thousand."""
        assert self._sweep.study is not None
        space = self._sweep.study.space
        # What is possible at the ends of a range is taken to be possible within.
        ends = [(part.low, part.high) if isinstance(part, Range) else part for part in space.values()]
        corners = islice(product(*ends), _MAXIMUM_CORNERS)
        self._require_possible(
            fit for corner in corners for fit in self.fits(dict(zip(space, corner, strict=True)))
        )

    def fits(self, values: Mapping[str, Any]) -> Iterator[SweepFit]:
        """The fits with some values of the options that vary: one for every recording and seed."""
        sweep = self._sweep
        for path in sweep.recordings:
            for seed in sweep.seeds:
                varied = {**({"recording": path.name} if len(sweep.recordings) > 1 else {}), **values}
                # A sweep of a single fit varies nothing, and its directory still needs a name.
                varied |= {"seed": seed} if len(sweep.seeds) > 1 or not varied else {}
                name = _name(varied)
                chosen = {**sweep.fixed, **values, "hold_out": sweep.hold_out, "seed": seed}
                try:
                    options = FitOptions.from_values(chosen)
                except InputError as error:
                    raise self._refused(name, error) from None
                data = self._fingerprints[path]
                mark = fingerprint(options, data)
                # Names are cut and rounded; the mark makes them unique.
                yield SweepFit(f"{name}-{mark[:10]}", path, sweep.system, varied, options, mark, data)

    def _require_possible(self, fits: Iterable[SweepFit]) -> None:
        checked = set()
        for fit in fits:
            alike = replace(fit.options, seed=0)  # whether a fit is possible does not depend on its seed
            mark = fingerprint(alike, fit.data_fingerprint)
            if mark in checked:
                continue
            checked.add(mark)
            try:
                plan_fit(alike, fit.recording, *self._data[fit.recording]).require_possible()
            except InputError as error:
                raise self._refused(_name(fit.varied), error) from None

    def _refused(self, name: str, error: InputError) -> InputError:
        return InputError(f"{self._sweep.path}, fit {name}: {error}")


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


@dataclass(frozen=True)
class Trial:
    """Values of the options that vary, and the mean held-out error of its fits; None where one has none."""

    number: int
    varied: dict[str, Any]
    value: float | None = None


class OptunaStudy:
    """Suggests trials and learns from their errors."""

    def __init__(self, study: Study):
        optuna = optional_module("optuna", purpose="A study", extra="cluster")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler if study.sampler == "tpe" else optuna.samplers.RandomSampler
        self._optuna = optuna
        self._study = optuna.create_study(sampler=sampler(seed=study.seed))
        self._settings, self._space = study, study.space
        self._distributions = {name: self._distribution(part) for name, part in self._space.items()}

    def batches(self) -> Iterator[list[Trial]]:
        """Trials that may run side by side; report all of them before the next batch."""
        for begin in range(0, self._settings.trials, self._settings.batch):
            count = min(self._settings.batch, self._settings.trials - begin)
            suggested = [self._study.ask(self._distributions) for _ in range(count)]
            yield [Trial(trial.number, self._values(trial.params)) for trial in suggested]

    def report(self, trial: Trial, errors: list[float | None]) -> Trial:
        """Report the held-out errors of a trial's fits."""
        known = [error for error in errors if error is not None]
        # A mean over fewer fits would favour trials whose hard cases failed.
        if len(known) < len(errors):
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            return trial
        value = fmean(known)
        self._study.tell(trial.number, value)
        return Trial(trial.number, trial.varied, value)

    def _distribution(self, part: Range | tuple[Any, ...]) -> Any:
        distributions = self._optuna.distributions
        if not isinstance(part, Range):
            # By number, as Optuna has no categories that are lists.
            return distributions.CategoricalDistribution(tuple(range(len(part))))
        if isinstance(part.low, int):
            return distributions.IntDistribution(part.low, int(part.high), log=part.log)
        return distributions.FloatDistribution(part.low, part.high, log=part.log)

    def _values(self, suggested: dict[str, Any]) -> dict[str, Any]:
        return {
            name: suggested[name] if isinstance(part, Range) else part[suggested[name]]
            for name, part in self._space.items()
        }
