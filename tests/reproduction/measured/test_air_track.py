"""The protocol of the air track on simulated riders: cropped at random, pushed by hand, bumpers that last."""

import numpy as np
import polars as pl
import pytest

from carom.evaluation.results import wide
from carom.reproduction.measured.recordings import Check
from carom.reproduction.measured.run import CONSTANT, LAW, crop_at_random, left_out, run_series
from tests.riders import encounters

STEP, MASKED = 0.004, 6


def simulated(law, seed, *, count=20):
    """Whole runs with their contact in the middle, and a table of checks with weights that are wrong."""
    generator = np.random.default_rng(seed)
    speeds = generator.permutation(np.geomspace(0.15, 2.5, count))
    cases = encounters(speeds, law, scatter=0.015, generator=generator, mass_ratio=0.9, duration=0.03)
    time = np.arange(0, 0.8, STEP)
    runs = [case.run(time, 0.4, 2e-5, generator) for case in cases]
    checks = [Check("rubber", 0.5, 0.4 + case.met, case.closing_speed, case.restitution) for case in cases]
    return runs, checks, cases


def fitted(law, seed: int, *, weighed: float = 0.5) -> tuple[pl.DataFrame, list]:
    """Metrics as columns, of a series with weights in its table that are wrong."""
    runs, checks, cases = simulated(law, seed)
    checks = [check._replace(mass_ratio=weighed) for check in checks]
    rows, _ = run_series("rubber", runs, checks, seed + 6, illustrated=True, masked=MASKED)
    return wide(pl.from_dicts(rows, infer_schema_length=None)), cases


def one(found: pl.DataFrame, model: str, metric: str) -> float:
    (value,) = found.filter(pl.col("run").is_null(), model=model)[metric].drop_nulls()
    return value


@pytest.mark.campaign
def test_a_falling_law_is_found_and_predicts_runs_left_out():
    found, cases = fitted(lambda u: 0.62 - 0.17 * np.log(u), 1)
    assert one(found, LAW, "speed_law") == 1
    error = one(found, LAW, "velocity_rmse")
    assert error < 0.25 * one(found, CONSTANT, "velocity_rmse")
    # Half the scatter of e times the speed, root mean square, for riders of nearly one mass.
    speeds = np.array([case.closing_speed for case in cases])[left_out(20)]
    assert error < 3 * 0.5 * 0.015 * np.sqrt(np.mean(speeds**2))
    assert abs(one(found, LAW, "mass") - 0.9) < 4 * one(found, LAW, "mass_error")
    assert one(found, LAW, "runs_with_one_impact") == one(found, LAW, "fitted_runs") == 16
    runs = found.filter(pl.col("model").is_null()).sort("run")
    assert runs["late_by"].abs().max() < 0.003
    np.testing.assert_allclose(runs["closing_speed"], [case.closing_speed for case in cases], rtol=5e-3)
    np.testing.assert_allclose(runs["restitution"], [case.restitution for case in cases], atol=5e-3)
    # The weights in the table of checks, wrong as they are, change nothing.
    again, _ = fitted(lambda u: 0.62 - 0.17 * np.log(u), 1, weighed=2.0)
    assert one(again, LAW, "velocity_rmse") == error


@pytest.mark.campaign
def test_one_e_for_all_speeds_is_a_constant():
    found, _ = fitted(lambda u: 0.7, 2)
    assert one(found, LAW, "speed_law") == 0
    assert one(found, LAW, "velocity_rmse") < 1.1 * one(found, CONSTANT, "velocity_rmse")
    np.testing.assert_allclose(one(found, CONSTANT, "restitution"), 0.7, atol=0.02)


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
