"""Running measured recordings task by task: finished tasks are stored until the data change."""

from collections import Counter

import numpy as np
import pytest

from carom.errors import InputError
from carom.evaluation.results import tidy_rows
from carom.execution.executor import run_tasks
from carom.reproduction.measured import run as measured
from carom.reproduction.measured.configuration import SERIES
from carom.reproduction.measured.run import load_arrays, measured_tasks
from tests.reproduction.measured.test_recordings import folder_of


@pytest.fixture
def counted(monkeypatch) -> Counter:
    """Tasks that are run, with results made up."""
    count: Counter = Counter()

    def run_series(name, runs, checks, seed, *, illustrated, checkpoints):
        count[name, seed] += 1
        arrays = {"slow_time": np.arange(3.0)} if illustrated else {}
        return tidy_rows({"experiment": name, "seed": seed}, {"velocity_rmse": 0.1}), arrays

    def run_pendulum(swing, seeds, *, checkpoints):
        count["pendulum"] += 1
        return tidy_rows({"experiment": "pendulum"}, {"energy_error": 0.001}), {"slope": np.ones((2, 5))}

    monkeypatch.setattr(measured, "run_series", run_series)
    monkeypatch.setattr(measured, "run_pendulum", run_pendulum)
    return count


def test_finished_tasks_are_stored_until_the_data_change(tmp_path, counted):
    data, folder = folder_of(tmp_path), tmp_path / "tasks"
    first = run_tasks(measured_tasks(data, [0, 1], folder))
    assert len(first) == 2 * len(SERIES) + 1
    assert set(counted.values()) == {1}
    assert run_tasks(measured_tasks(data, [0, 1], folder)) == first
    assert set(counted.values()) == {1}
    assert set(load_arrays(folder, 0)) == {*SERIES, "pendulum"}
    # Seed 1 has no arrays of its own until it is the first.
    with pytest.raises(InputError, match="arrays"):
        load_arrays(folder, 1)
    run_tasks(measured_tasks(data, [1], folder))
    assert (counted["metal", 1], counted["metal", 0]) == (2, 1)
    assert "slow_time" in load_arrays(folder, 1)["metal"]
    # Figures need both files of a task.
    (folder / "metal.1.safetensors").unlink()
    run_tasks(measured_tasks(data, [1], folder))
    assert counted["metal", 1] == 3
    recordings = data / "air_track" / "recordings.csv"
    recordings.write_text(recordings.read_text().replace("-0.2000", "-0.2001"))
    run_tasks(measured_tasks(data, [0, 1], folder))
    assert counted["metal", 0] == 2
