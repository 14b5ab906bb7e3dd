"""Reading back what `carom reproduce` has left: the errors of all seeds, and the arrays that figures draw."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from carom.reproduction.paper.experiments import ALL, ORACLE
from carom.reproduction.paper.protocols import PaperNumber
from carom.reproduction.paper.run import trial_stem
from carom.storage.result_file import read_arrays, unreadable

REQUIRED = {"time", "data_time", "forecast_position", "forecast_velocity"} | {
    f"{kind}_{name}" for kind in ("truth", "data") for name in ("position", "velocity")
}


@dataclass(frozen=True)
class FinishedTrial:
    """One model of an experiment under one protocol.

    Arguments:
        model: its name in tables and figures.
        seeds: in the order of `errors` and of the arrays.
        errors: of every seed; infinite where the forecast diverged.
        paper: the printed number.
        arrays: what `carom.reproduction.paper.scores.figure_arrays` kept; nothing of the oracle, and where
            only errors are drawn.
    """

    model: str
    seeds: tuple[int, ...]
    errors: tuple[float, ...]
    paper: PaperNumber | None
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def median_index(self) -> int:
        """The position of the seed with the median error; of an even number, of the lower in the middle."""
        return int(np.argsort(self.errors, kind="stable")[(len(self.errors) - 1) // 2])

    @property
    def forecast(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity of the median seed."""
        index = self.median_index
        return self.arrays["forecast_position"][index], self.arrays["forecast_velocity"][index]


Trials = dict[str, FinishedTrial]
"""The models of one experiment and protocol, by name."""


def load_errors(fits: pl.DataFrame, experiment: str, protocol: str) -> Trials:
    """The errors of every model of an experiment, the oracle included."""
    found = {}
    chosen = fits.filter(experiment=experiment, protocol=protocol)
    for (model,), rows in chosen.group_by("model", maintain_order=True):
        trained = ALL[experiment].trained.get(str(model))
        errors = rows["paper_rmse"].fill_nan(np.inf)
        paper = trained.paper if trained else None
        found[str(model)] = FinishedTrial(str(model), tuple(rows["seed"]), tuple(errors), paper)
    return found


def load_trials(fits: pl.DataFrame, folder: Path, experiment: str, protocol: str) -> Trials:
    """The same with the arrays that lie in `folder`, without the oracle."""
    found = {}
    for model, trial in load_errors(fits, experiment, protocol).items():
        if model == ORACLE:
            continue
        path = folder / f"{trial_stem(experiment, protocol, model)}.npz"
        if not path.exists():
            raise unreadable(path.with_suffix(".json"), "the arrays that belong to it are missing")
        arrays = read_arrays(path)
        lengths = {len(arrays[name]) for name in arrays if name.startswith("forecast")}
        if not arrays.keys() >= REQUIRED or lengths != {len(trial.seeds)}:
            raise unreadable(path, "it does not hold the arrays of these seeds")
        found[model] = replace(trial, arrays=arrays)
    return found
