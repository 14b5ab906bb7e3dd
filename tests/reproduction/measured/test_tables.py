"""The tables and figures of measured recordings, against numbers worked out by hand."""

import numpy as np
import polars as pl
import pytest

from carom.evaluation.results import tidy_rows
from carom.reproduction.measured import figures
from carom.reproduction.measured.run import CONSTANT, HINDSIGHT, INCLUDED, LAW
from carom.reproduction.measured.tables import (
    errors_table,
    masses_table,
    parameters_table,
    pendulum_table,
    residuals_table,
)
from tests.reproduction.cells import as_read, cells

RUBBER, PUCKS = "Rubber bands", "Pucks, series “energy”"


def series(name: str, seed: int, errors: tuple[float, float], *, speed_law: bool, shared_masses: bool):
    keys = {"experiment": name, "seed": seed}
    quality = {"position_noise": 2e-4, "excess": 10.0, "near_impacts": 1.0}
    quality |= {"fitted_runs": 3, "runs_with_one_impact": 2, "scatter from run to run": 0.03}
    quality |= {"scatter from run to run_error": 0.005, "speed_law": speed_law}
    if shared_masses:
        quality |= {"mass": 0.52, "mass_error": 0.01, "mass_low": 0.5, "mass_high": 0.54}
    law, constant = errors
    rows = tidy_rows(keys | {"model": LAW}, quality | {"velocity_rmse": law})
    rows += tidy_rows(keys | {"model": CONSTANT}, {"velocity_rmse": constant, "restitution": 0.6})
    rows += tidy_rows(keys | {"model": HINDSIGHT}, {"velocity_rmse": 2 * law, "restitution": 0.6})
    if seed:
        return rows
    included = {"position_noise": 1e-3, "excess": 50.0, "near_impacts": 4.0}
    rows += tidy_rows(keys | {"model": INCLUDED}, included)
    for speed, e, error in ((0.2, 0.85, 0.03), (0.3, 0.8, 0.02), (1.0, 0.6, 0.01)):
        rows += tidy_rows(keys | {"model": LAW, "speed": speed}, {"e": e, "e_error": error})
    # Halves by speed: 0.51 and 0.53 over 0.5, then 0.55 and 0.61; no collision in the last run.
    runs = [(0.2, 0.51, 0), (0.9, 0.61, 0), (0.5, 0.55, 0), (0.4, 0.53, 1), (None, None, 0)]
    for run, (speed, ratio, out) in enumerate(runs):
        weighed = 0.5 if shared_masses or run else 2.0
        metrics = {"left_out": out, "checked_mass_ratio": weighed, "checked_restitution": 0.7}
        metrics["checked_closing_speed"] = speed or 0.3
        if speed is not None:
            metrics |= {"closing_speed": speed, "mass_ratio": ratio, "late_by": -0.002}
        rows += tidy_rows(keys | {"run": run}, metrics)
    return rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    found = []
    for seed in (0, 1):
        errors = ((0.010, 0.030), (0.011, 0.040))[seed]
        for name in ("rubber", "metal", "pucks_momentum"):
            found += series(name, seed, errors, speed_law=True, shared_masses=True)
        found += series("pucks_energy", seed, (0.03, 0.02), speed_law=bool(seed), shared_masses=False)
        keys = {"experiment": "pendulum", "seed": seed}
        found += tidy_rows(keys | {"model": "no damping"}, {"validation_error": (0.2, 0.4)[seed]})
        damped = {"validation_error": 0.002, "energy_error": (0.001, 0.003)[seed]}
        found += tidy_rows(keys | {"model": "damping"}, damped)
    return as_read(found, tmp_path_factory.mktemp("results"))


def test_errors(rows):
    table = errors_table(rows)
    # Ratios 1/3 and 11/40, mean 0.304; the law's errors differ by 0.001 of 0.0105.
    expected = ["3", "1", "e(u)", "0.0105", "0.600", "0.0350", "0.30", "0.50"]
    assert cells(table, RUBBER)[1:] == expected
    assert cells(table, PUCKS)[3:] == ["constant / e(u)", "0.0300", "0.600", "0.0200", "1.50", "0.50"]
    assert "differ by at most 9.5 %" in table.caption


def test_parameters(rows):
    # No run that was learned from was as fast as 1 m/s.
    expected = ["0.800 ± 0.020", "–", "–", "0.0300 ± 0.0050", "2 of 3", "2.00"]
    assert cells(parameters_table(rows), RUBBER)[1:] == expected


def test_masses(rows):
    table = masses_table(rows)
    halves = ["1.040 ± 0.020", "1.160 ± 0.060"]
    assert cells(table, RUBBER)[1:] == ["0.500", "0.520 ± 0.010", "1.040 ± 0.020", *halves]
    assert cells(table, PUCKS)[1:4] == ["run by run", "run by run", "–"]


def test_residuals(rows):
    expected = ["0.200", "10.0×", "1.00", "50.0×", "4.0×"]
    assert cells(residuals_table(rows), RUBBER)[1:] == expected


def test_pendulum(rows):
    table = pendulum_table(rows)
    assert cells(table, "plain network (published)")[1:] == ["0.386 ± 0.069", "–"]
    assert cells(table, "recipe carom, no damping")[1:] == ["–", "0.30 ± 0.10"]
    assert cells(table, "recipe carom, damping")[1:] == ["0.0020 ± 0.0010", "0.00200"]


def test_figures(rows, tmp_path, monkeypatch):
    path = np.stack([np.abs(np.linspace(-0.1, 0.1, 50)), np.zeros(50)], axis=1)
    collision = {}
    for name in ("slow", "medium", "fast"):
        collision |= {f"{name}_time": np.linspace(-0.1, 0.1, 50), f"{name}_speed": np.asarray(0.5)}
        collision |= {f"{name}_measured": path, f"{name}_model": path + 1e-4}
    swing = dict.fromkeys(("training", "test", "rollout"), np.ones((4, 9)))
    arrays = dict.fromkeys(("rubber", "metal", "pucks_momentum", "pucks_energy"), collision)
    arrays["pendulum"] = swing | {"slope": np.ones((2, 5))}
    monkeypatch.setattr(figures, "load_arrays", lambda folder, seed: arrays)
    written = figures.write_measured_figures(rows, tmp_path, tmp_path)
    assert [png.stem for png in written] == ["collisions", "restitution", "pendulum"]
    for png in written:
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "</svg>" in png.with_suffix(".svg").read_text()
