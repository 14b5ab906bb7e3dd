"""Reading back what `carom reproduce` has left: one object per finished unit, its arrays when needed."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from carom.errors import InputError
from carom.reproduction.paper.ablations import ABLATIONS
from carom.reproduction.paper.experiments import EXPERIMENTS, PROTOCOLS
from carom.reproduction.paper.statistics import Score, median_index, score
from carom.storage.result_file import read_arrays, read_result, unreadable

KNOWN = EXPERIMENTS | ABLATIONS
ORACLE_FILE = "oracle.json"


@dataclass(frozen=True)
class UnitArrays:
    """What the figures draw. The data are those of the first seed; forecasts are of all seeds, in order.

    `contact_on_truth[:, n]` is the probability of touch in the step that arrives at sample n + 1.
    """

    time: Float[np.ndarray, "samples"]
    truth_position: Float[np.ndarray, "samples bodies dimension"]
    truth_velocity: Float[np.ndarray, "samples bodies dimension"]
    truth_contact: Bool[np.ndarray, "samples contacts"]
    data_position: Float[np.ndarray, "samples bodies dimension"]
    data_velocity: Float[np.ndarray, "samples bodies dimension"]
    forecast_position: Float[np.ndarray, "seeds samples bodies dimension"]
    forecast_velocity: Float[np.ndarray, "seeds samples bodies dimension"]
    forecast_contact: Float[np.ndarray, "seeds samples signals"]
    state_loss: Float[np.ndarray, "seeds epochs"]
    contact_on_truth: Float[np.ndarray, "seeds steps signals"] | None = None
    slope_grid: Float[np.ndarray, "places bodies dimension"] | None = None
    slope_true: Float[np.ndarray, "places bodies dimension"] | None = None
    slope_learned: Float[np.ndarray, "seeds places bodies dimension"] | None = None


@dataclass(frozen=True)
class FinishedUnit:
    """One model of one experiment under one protocol, with all its seeds.

    Arguments:
        path: of the summary; the arrays lie beside it.
        summary: as `carom.reproduction.paper.run` wrote it.
    """

    path: Path
    summary: dict[str, Any]

    @cached_property
    def score(self) -> Score:
        return score(self.summary)

    @property
    def experiment(self) -> str:
        return self.score.experiment

    @property
    def protocol(self) -> str:
        return self.score.protocol

    @property
    def model(self) -> str:
        return self.score.model

    @property
    def median_place(self) -> int:
        """Where in the arrays the seed lies whose error is the median one."""
        return median_index(self.score.errors)

    @cached_property
    def arrays(self) -> UnitArrays:
        path = self.path.with_suffix(".npz")
        stored = read_arrays(path)
        try:
            return UnitArrays(
                **{field.name: stored[field.name] for field in fields(UnitArrays) if field.name in stored}
            )
        except TypeError as error:
            raise unreadable(path, error) from error


Group = dict[str, FinishedUnit]
"""The units of one experiment and protocol, by model."""


def load_units(folder: Path) -> list[FinishedUnit]:
    """All finished units of a folder: experiments, protocols and models in the order of the paper."""
    paths = [path for path in sorted(folder.glob("*.json")) if path.name != ORACLE_FILE]
    units = [_load_unit(path) for path in paths if path.with_suffix(".npz").exists()]
    if not units:
        raise InputError(f"{folder}: no finished unit is there; run `carom reproduce` first.")
    return sorted(units, key=_place)


def load_oracle(folder: Path) -> dict[str, list[float]]:
    """Errors of the oracle by "<experiment>.<protocol>"; none where the file does not exist."""
    path = folder / ORACLE_FILE
    if not path.exists():
        return {}
    try:
        return {name: [float(error) for error in kept["errors"]] for name, kept in read_result(path).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise unreadable(path, error) from error


def grouped(units: Iterable[FinishedUnit]) -> dict[tuple[str, str], Group]:
    """Units by experiment and protocol, then by model."""
    groups: dict[tuple[str, str], Group] = {}
    for unit in units:
        groups.setdefault((unit.experiment, unit.protocol), {})[unit.model] = unit
    return groups


def _load_unit(path: Path) -> FinishedUnit:
    unit = FinishedUnit(path, read_result(path))
    try:
        _ = unit.score
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(path, error) from error
    return unit


def _place(unit: FinishedUnit) -> tuple:
    """Sorts by the paper's order, then the ablations', then by name."""
    experiment = KNOWN.get(unit.experiment)
    models = [] if experiment is None else list(experiment.trained)
    return (
        _index(list(KNOWN), unit.experiment),
        unit.experiment,
        _index(list(PROTOCOLS), unit.protocol),
        unit.protocol,
        _index(models, unit.model),
        unit.model,
    )


def _index(names: list[str], name: str) -> int:
    return names.index(name) if name in names else len(names)
