"""The protocol of the air track on simulated riders: cropped at random, pushed by hand, bumpers that last."""

from dataclasses import replace

import numpy as np
import pytest
from carom.reproduction.measured.air_track import Series, crop_at_random, left_out, run_series

from carom.reproduction.measured import air_track
from carom.reproduction.measured.recordings import Check
from tests.riders import encounters

STEP = 0.004


def simulated(law, seed, *, count=20):
    """Whole runs with their contact in the middle, and a table of checks with weights that are wrong."""
    generator = np.random.default_rng(seed)
    speeds = generator.permutation(np.geomspace(0.15, 2.5, count))
    cases = encounters(speeds, law, scatter=0.015, generator=generator, mass_ratio=0.9, duration=0.03)
    time = np.arange(0, 0.8, STEP)
    runs = [case.run(time, 0.4, 2e-5, generator) for case in cases]
    checks = [Check("band", 0.5, 0.4 + case.met, case.closing_speed, case.restitution) for case in cases]
    return runs, checks, cases


@pytest.fixture(autouse=True)
def _at_half_the_rate(monkeypatch):
    monkeypatch.setattr(air_track, "BLIND", 6)


BAND = Series("band", "Bands", other_riders=False, bound=0.5)


@pytest.mark.campaign
def test_a_falling_law_is_found_and_foretells_runs_left_out():
    runs, checks, cases = simulated(lambda u: 0.62 - 0.17 * np.log(u) - 0.04 * np.log(u) ** 2, 1)
    summary, arrays = run_series(BAND, runs, checks, 7, illustrated=False)
    assert not arrays
    assert summary["kind"] == "speed"
    assert summary["errors"]["law"] < 0.25 * summary["errors"]["constant"]
    # Half the scatter of e times the speed, root mean square, for riders of nearly one mass.
    speeds = np.array([case.closing_speed for case in cases])[left_out(20)]
    assert summary["errors"]["law"] < 3 * 0.5 * 0.015 * np.sqrt(np.mean(speeds**2))
    ratio = next(p for p in summary["parameters"] if p["name"].startswith("mass"))
    assert abs(ratio["value"] - 0.9) < 4 * ratio["standard_error"]
    assert summary["fit"]["impacts"] == [1] * 16
    for line, case in zip(summary["runs"], cases, strict=True):
        assert abs(line["late_by"]) < 0.003
        np.testing.assert_allclose(line["closing_speed"], case.closing_speed, rtol=5e-3)
        np.testing.assert_allclose(line["restitution"], case.restitution, atol=5e-3)
        assert ("foretold" in line) == line["left_out"]
    # The weights in the table of checks, wrong as they are, change nothing.
    other = [replace(check, mass_ratio=2.0) for check in checks]
    again, _ = run_series(BAND, runs, other, 7, illustrated=False)
    assert again["errors"] == summary["errors"]


@pytest.mark.campaign
def test_one_e_for_all_speeds_is_called_a_constant():
    runs, checks, _ = simulated(lambda u: 0.7, 2)
    summary, _ = run_series(BAND, runs, checks, 8, illustrated=False)
    assert summary["kind"] == "constant"
    assert summary["errors"]["law"] < 1.1 * summary["errors"]["constant"]
    np.testing.assert_allclose(summary["errors"]["constant_restitution"], 0.7, atol=0.02)


def test_crops_leave_impacts_anywhere():
    runs, _, _ = simulated(lambda u: 0.7, 3, count=5)
    generator = np.random.default_rng(0)
    cropped = [crop_at_random(run, generator) for run in runs for _ in range(40)]
    places = [(0.4 - run.time[0]) / (run.time[-1] - run.time[0]) for run in cropped]
    assert min(places) < 0.37
    assert max(places) > 0.63
    assert min(len(run) for run in cropped) >= 0.5 * len(runs[0])
    assert all(len(run.time) == len(run.position) for run in cropped)


def test_every_fifth_run_is_left_out():
    assert np.flatnonzero(left_out(11)).tolist() == [4, 9]
