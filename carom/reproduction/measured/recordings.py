"""Measured recordings, which are no part of the package: a directory that the user names.

`air_track/recordings.csv` has collisions of two riders, `air_track/runs.csv` what is known of each run
otherwise, and `pendulum/schmidt_lipson_pendulum.csv` a pendulum (Schmidt and Lipson, Science 324, 2009).
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from carom.data import Columns, Recording, Run, read_recording
from carom.errors import InputError
from carom.mechanics import Scene
from carom.reproduction.measured import configuration as config
from carom.reproduction.measured.configuration import CHECKS, PENDULUM, RECORDINGS, RIDERS
from carom.storage.input_file import complaint, shown

_CHECKED = ("mass_a_kg", "mass_b_kg", "t_impact_s", "closing_speed_m_s", "restitution_line_fit")


class Check(NamedTuple):
    """What is known of a run otherwise; the fit uses `bumper` alone.

    Arguments:
        bumper: the series that a run belongs to.
        mass_ratio: of the second rider to the first, as weighed.
        instant: of the impact, in the recording's time.
        closing_speed, restitution: by straight lines through a tenth of a second on either side.
    """

    bumper: str
    mass_ratio: float
    instant: float
    closing_speed: float
    restitution: float


def measured_directory(directory: Path | None) -> Path:
    """The given directory, or that of the environment; it must have the measured files."""
    if directory is None:
        directory = Path(os.environ.get(config.DATA_VARIABLE) or config.DEFAULT_DATA)
        if directory == config.DEFAULT_DATA and not directory.is_dir():
            raise InputError(
                "Measured recordings are no part of Carom: name their directory with --data or "
                f"{config.DATA_VARIABLE}."
            )
    for name in (RECORDINGS, CHECKS, PENDULUM):
        if not (directory / name).is_file():
            raise InputError(f"{directory}: this directory of measured recordings has no file {name}.")
    return directory


def data_hash(directory: Path) -> str:
    """A hash of the measured files, to identify the data that results belong to."""
    files = ((directory / name).read_bytes() for name in (RECORDINGS, CHECKS, PENDULUM))
    return hashlib.sha256(b"".join(files)).hexdigest()


def read_air_track(directory: Path) -> tuple[Recording, list[Check]]:
    """All runs, positions only, and what is known of each otherwise."""
    columns = Columns(position=("x_b", "x_a"), run="run")
    recording = read_recording(directory / RECORDINGS, columns=columns, scene=RIDERS)
    path = directory / CHECKS
    try:
        kinds = {"run": pl.Int64, "bumper": pl.String} | dict.fromkeys(_CHECKED, pl.Float64)
        frame = pl.read_csv(path, columns=list(kinds), schema_overrides=kinds).sort("run")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise complaint(path, f"the table cannot be read ({shown(error)}); copy the file again") from error
    if frame["run"].to_list() != list(range(len(recording.runs))):
        raise InputError(f"{path}: its runs are not those of {RECORDINGS}; copy both files again.")
    # Rider b is in front and comes first in the recording.
    ratio = pl.col("mass_a_kg") / pl.col("mass_b_kg")
    return recording, [Check(*row) for row in frame.select("bumper", ratio, *_CHECKED[2:]).iter_rows()]


def read_pendulum(directory: Path) -> Run:
    """The samples in the order of the file."""
    path = directory / PENDULUM
    columns = Columns(time="t", position=("o",), velocity=("v",), run="trial")
    runs = read_recording(path, columns=columns, scene=Scene(bodies=1, dimension=1)).runs
    if len(runs) != 1:
        raise InputError(f"{path}: the pendulum has one trial, and this file has {len(runs)}.")
    return runs[0]


def pendulum_recording(swing: Run) -> Recording:
    """One run on a regular grid, whose step is the median one, with NaN for missing samples.

    The clock runs on while samples are missing, and the pendulum swings on: gaps are whole steps.
    """
    assert swing.velocity is not None
    time = swing.time - swing.time[0]
    # The median is the step, since few samples are missing.
    index = np.rint(time / np.median(np.diff(time)))
    step = float(time[-1] / index[-1])
    even = np.diff(index).min() >= 1 and np.abs(time - index * step).max() <= 0.05 * step
    # Of an absurd time the regular grid would not fit into memory.
    if not even or index[-1] > 100 * len(index):
        raise InputError("The pendulum's times are not whole steps apart; copy the file again.")
    index = index.astype(int)
    position, velocity = np.full((2, index[-1] + 1, 1, 1), np.nan)
    position[index], velocity[index] = swing.position, swing.velocity
    run = Run(np.arange(index[-1] + 1) * step, position, velocity)
    return Recording((run,), step, Scene(bodies=1, dimension=1))
