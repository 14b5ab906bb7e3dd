"""Running measured recordings unit by unit: what is finished is kept, and figures are drawn from it."""

import json
from collections import Counter

import numpy as np
import pytest
from carom.reproduction.measured.air_track import SERIES

from carom.errors import InputError
from carom.reproduction.measured import run as measured
from carom.reproduction.measured.figures import write_measured_figures
from carom.reproduction.measured.run import load_arrays, run_measured, write_measured
from tests.reproduction.test_measured_data import folder_of

RUN = {
    "left_out": False,
    "found": True,
    "closing_speed": 0.5,
    "mass_ratio": 1.1,
    "check": {"closing_speed": 0.5, "restitution": 0.7, "mass_ratio": 1.0},
}
FORETOLD = {"after": [0.2, -0.2], "foretold": {"law": [0.21, -0.19], "constant": [0.3, -0.1]}}


@pytest.fixture
def counted(monkeypatch) -> Counter:
    """Units that are run, with results made up."""
    count: Counter = Counter()

    def run_series(series, runs, checks, seed, *, illustrated, checkpoints):
        count[series.bumper, seed] += 1
        summary = {
            "title": series.title,
            "errors": {"constant_restitution": 0.6, "law": 0.1, "constant": 1 / 3},
            "law": {"speed": [0.2, 1.0], "value": [0.8, 0.5], "error": [0.01, 0.02]},
            "parameters": [
                {"name": "scatter", "value": 0.02},
                {"name": "mass of body 2", "value": 1.05, "low": 1.0, "high": 1.1},
            ],
            "weighed": [1.0],
            "runs": [RUN, RUN | {"left_out": True} | FORETOLD],
        }
        path = np.stack([np.abs(np.linspace(-0.1, 0.1, 50)), np.zeros(50)], axis=1)
        arrays = {}
        for name in ("slow", "middling", "fast"):
            arrays |= {f"{name}_time": np.linspace(-0.1, 0.1, 50), f"{name}_speed": np.asarray(0.5)}
            arrays |= {f"{name}_measured": path, f"{name}_model": path + 1e-4}
        return summary, arrays if illustrated else {}

    def run_pendulum(swing, seeds, *, checkpoints):
        count["pendulum"] += 1
        swing_of = np.stack([np.arange(9.0), np.cos(np.arange(9.0)), np.sin(np.arange(9.0))])
        arrays = dict.fromkeys(("known", "new", "rollout"), swing_of)
        arrays["slope"] = np.stack([np.linspace(-1, 1, 5), np.linspace(-1, 1, 5)])
        return {"rows": [{"energy_mse": 0.001} for _ in seeds]}, arrays

    monkeypatch.setattr(measured, "run_series", run_series)
    monkeypatch.setattr(measured, "run_pendulum", run_pendulum)
    return count


def test_finished_units_are_kept_until_the_data_change(tmp_path, counted):
    data, folder = folder_of(tmp_path), tmp_path / "units"
    first = run_measured(data, [0, 1], folder)
    assert set(first) == {*SERIES, "pendulum"}
    assert [len(first[name]) for name in SERIES] == [2] * len(SERIES)
    assert set(counted.values()) == {1}
    assert run_measured(data, [0, 1], folder) == first
    assert set(counted.values()) == {1}
    # Seed 1 has no arrays of its own until it is the first.
    with pytest.raises(InputError, match="arrays"):
        load_arrays(folder, "metal", [1])
    run_measured(data, [1], folder)
    assert counted["metal", 1] == 2
    assert counted["metal", 0] == 1
    assert "slow_time" in load_arrays(folder, "metal", [1])
    recordings = data / "air_track" / "recordings.csv"
    recordings.write_text(recordings.read_text().replace("-0.2000", "-0.2001"))
    run_measured(data, [0, 1], folder)
    assert counted["metal", 0] == 2


def test_document_and_figures(tmp_path, counted):
    data, folder, path = folder_of(tmp_path), tmp_path / "units", tmp_path / "results" / "measured.json"
    results = run_measured(data, [3, 4], folder)
    document = write_measured(results, path, data=data, seeds=[3, 4], command="carom")
    assert document == json.loads(path.read_text())
    assert document["air_track"]["rubber"][0]["errors"]["constant"] == 0.33333
    assert "fingerprint" not in path.read_text()
    # Single runs are those of the first crop.
    assert ["runs" in unit for unit in document["air_track"]["metal"]] == [True, False]
    written = write_measured_figures(document, folder, tmp_path / "figures")
    names = {"collisions", "restitution", "velocities", "masses", "pendulum"}
    assert {png.stem for png in written} == names
    for png in written:
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in png.with_suffix(".svg").read_text()
