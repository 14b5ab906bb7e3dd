"""Measured recordings, which are no part of the package: a folder that the user names.

`air_track/recordings.csv` has collisions of two riders, `air_track/runs.csv` what is known of each run
otherwise, and `pendulum/schmidt_lipson_pendulum.csv` a pendulum (Schmidt and Lipson, Science 324, 2009).
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float

from carom.data import Columns, Recording, Run, read_recording
from carom.data.io.csv_table import CSV
from carom.data.io.tables import MAXIMUM_BYTES
from carom.errors import InputError
from carom.mechanics import Pair, Scene
from carom.storage.input_file import complaint, require_file

VARIABLE = "CAROM_DATA"
RECORDINGS, CHECKS = Path("air_track/recordings.csv"), Path("air_track/runs.csv")
PENDULUM = Path("pendulum/schmidt_lipson_pendulum.csv")
_CHECKED = ("mass_a_kg", "mass_b_kg", "t_impact_s", "closing_speed_m_s", "restitution_line_fit")
_LONGEST = 100
"""Steps per sample of the pendulum beyond which its times cannot be right."""
RIDERS = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),))
"""The rider in front, whose coordinate is the greater one, is the first."""


@dataclass(frozen=True)
class Check:
    """What is known of a run otherwise; only `bumper` may be used before the checking.

    Arguments:
        bumper: the series that a run belongs to.
        mass_ratio: of the second rider to the first, as weighed.
        instant: of the impact, in the recording's time.
        closing_speed, restitution: by straight lines through a tenth of a second either side.
    """

    bumper: str
    mass_ratio: float
    instant: float
    closing_speed: float
    restitution: float


@dataclass(frozen=True, eq=False)
class Swing:
    """A pendulum's angle and angular velocity at the times that were stamped."""

    time: Float[np.ndarray, "samples"]
    angle: Float[np.ndarray, "samples"]
    velocity: Float[np.ndarray, "samples"]

    def __len__(self) -> int:
        return len(self.time)


def measured_folder(folder: Path | None) -> Path:
    """The folder that was named, or that of the environment; it must have the measured files."""
    if folder is None:
        if not os.environ.get(VARIABLE):
            raise InputError(
                f"Measured recordings are no part of Carom: name their folder with --data or {VARIABLE}."
            )
        folder = Path(os.environ[VARIABLE])
    for name in (RECORDINGS, CHECKS, PENDULUM):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: there is no file {name} in this folder of measured recordings.")
    return folder


def data_hash(folder: Path) -> str:
    """A hash of the measured files, to tell which data results belong to."""
    digest = hashlib.sha256()
    for name in (RECORDINGS, CHECKS, PENDULUM):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def read_air_track(folder: Path) -> tuple[Recording, list[Check]]:
    """All runs, positions only, and what is known of each otherwise."""
    recording = read_recording(
        folder / RECORDINGS, columns=Columns(position=("x_b", "x_a"), run="run"), scene=RIDERS
    )
    frame = _read(folder / CHECKS, ("run", *_CHECKED), "bumper").sort("run")
    if frame["run"].to_list() != list(range(len(recording.runs))):
        raise InputError(f"{folder / CHECKS}: its runs are not those of {RECORDINGS}.")
    if not frame["mass_b_kg"].gt(0).all():
        raise InputError(f"{folder / CHECKS}, column mass_b_kg: masses must be positive.")
    checks = [
        Check(
            bumper=row["bumper"],
            mass_ratio=row["mass_a_kg"] / row["mass_b_kg"],
            instant=row["t_impact_s"],
            closing_speed=row["closing_speed_m_s"],
            restitution=row["restitution_line_fit"],
        )
        for row in frame.iter_rows(named=True)
    ]
    return recording, checks


def read_pendulum(folder: Path) -> Swing:
    """The samples in the order of the file."""
    path, names = folder / PENDULUM, ("t", "o", "v")
    frame = _read(path, names, "trial")
    if frame["trial"].n_unique() != 1:
        raise InputError(f"{path}: the pendulum has one trial.")
    if len(frame) < 2 or not frame["t"].diff().drop_nulls().gt(0).all():
        raise InputError(f"{path}: the pendulum's times must rise.")
    return Swing(*(frame[name].to_numpy() for name in names))


def pendulum_recording(swing: Swing) -> Recording:
    """One run on a regular grid, the step the median one: where a sample is missing stands NaN.

    The clock runs on while samples are missing, and the pendulum swings on: gaps are whole steps.
    """
    step = float(np.median(np.diff(swing.time)))
    places = np.rint((swing.time - swing.time[0]) / step)
    if not places[-1] < _LONGEST * len(places):
        raise InputError("The pendulum's times have too many gaps.")
    places = places.astype(int)
    step = float((swing.time[-1] - swing.time[0]) / places[-1])
    if np.any(np.diff(places) < 1) or np.abs(swing.time - swing.time[0] - places * step).max() > 0.05 * step:
        raise InputError("The pendulum's times are no whole steps apart.")
    filled = np.full((2, places[-1] + 1, 1, 1), np.nan)
    filled[0, places, 0, 0], filled[1, places, 0, 0] = swing.angle, swing.velocity
    run = Run(np.arange(places[-1] + 1) * step, filled[0], filled[1])
    return Recording((run,), step, Scene(bodies=1, dimension=1))


def _read(path: Path, numbers: Sequence[str], label: str) -> pl.DataFrame:
    """Columns of finite numbers and one of text, all of them without empty cells."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="table")
    names = CSV.names(path)
    for name in (*numbers, label):
        if names.count(name) != 1:
            raise complaint(path, "there must be one such column; copy the file again", f"column {name}")
    frame = CSV.load(path, numbers, label)
    whole = frame.select(pl.all().is_not_null().all()).row(0)
    finite = frame.select(pl.col(numbers).is_finite().all()).row(0)
    if not len(frame) or not all(whole) or not all(finite):
        raise complaint(path, "some values are missing or not finite; copy the file again")
    return frame
