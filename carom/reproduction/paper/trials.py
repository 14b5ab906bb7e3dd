"""Reading back what `carom reproduce` has left: the errors of all seeds, and the arrays that figures draw."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from carom.reproduction.paper.experiments import ALL, ORACLE, PaperNumber
from carom.reproduction.paper.run import trial_stem
from carom.storage.result_file import read_arrays, unreadable

REQUIRED = {"time", "forecast_position", "forecast_velocity"} | {
    f"{kind}_{name}" for kind in ("truth", "data") for name in ("position", "velocity")
}


@dataclass(frozen=True)
class TrialErrors:
    """The errors of one model under one protocol, seed by seed; infinite where a forecast diverged."""

    seeds: tuple[int, ...]
    errors: tuple[float, ...]
    paper: PaperNumber | None

    @property
    def median_index(self) -> int:
        """The position of the seed with the median error; of an even number, of the lower in the middle."""
        return int(np.argsort(self.errors, kind="stable")[(len(self.errors) - 1) // 2])


@dataclass(frozen=True)
class TrialArrays:
    """What `carom.reproduction.paper.scores.figure_arrays` kept of a trial, beside its errors."""

    model: str
    scores: TrialErrors
    arrays: Mapping[str, np.ndarray]

    @property
    def forecast(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity of the median seed."""
        index = self.scores.median_index
        return self.arrays["forecast_position"][index], self.arrays["forecast_velocity"][index]


Group = dict[str, TrialArrays]
"""The trained models of one experiment and protocol, by name."""


def trial_errors(fits: pl.DataFrame, experiment: str, protocol: str) -> dict[str, TrialErrors]:
    """The errors of every model of an experiment, the oracle included."""
    found = {}
    chosen = fits.filter(experiment=experiment, protocol=protocol)
    for (model,), rows in chosen.group_by("model", maintain_order=True):
        trained = ALL[experiment].trained.get(str(model))
        errors = rows["paper_rmse"].fill_nan(np.inf)
        found[str(model)] = TrialErrors(tuple(rows["seed"]), tuple(errors), trained and trained.paper)
    return found


def load_group(fits: pl.DataFrame, folder: Path, experiment: str, protocol: str) -> Group:
    """The trained models of an experiment with the arrays that lie in `folder`."""
    found = {}
    for model, scores in trial_errors(fits, experiment, protocol).items():
        if model == ORACLE:
            continue
        path = folder / f"{trial_stem(experiment, protocol, model)}.npz"
        if not path.exists():
            raise unreadable(path.with_suffix(".json"), "the arrays that belong to it are missing")
        arrays = read_arrays(path)
        absent = REQUIRED - arrays.keys()
        if absent or any(len(arrays[name]) != len(scores.seeds) for name in arrays if "forecast" in name):
            raise unreadable(path, "it does not hold the arrays of these seeds")
        found[model] = TrialArrays(model, scores, arrays)
    return found
