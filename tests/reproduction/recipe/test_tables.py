"""The tables of the recipe `carom`, against numbers worked out by hand."""

import math
from typing import Any

import polars as pl
import pytest

from carom.evaluation.results import tidy_rows
from carom.reproduction.recipe.tables import (
    bent_table,
    errors_table,
    held_out_table,
    restitution_table,
)
from tests.reproduction.cells import as_read, cells

BALL = "Ball, e = 1 given, floor learned"
BENT = "Ball in a bent potential, e = 0.8 unknown"


def fit(name: str, seed: int, error: float, *, start: str = "known", velocities: str = "recorded", **others):
    keys = {"experiment": name, "model": "carom", "truth": "exact", "touch": "inferred", "start": start}
    metrics = {"impacts": 4, "mistimed": seed, "missed": 1, "spurious": 0, "paper_rmse": error}
    metrics |= {"held_out_median": 0.25 * (seed + 1), "held_out_wrong": 10 * seed}
    return tidy_rows(keys | {"velocities": velocities, "seed": seed}, metrics | others)


def oracle(name: str, seed: int, model: str = "oracle", **metrics: float):
    return tidy_rows({"experiment": name, "truth": "exact", "model": model, "seed": seed}, metrics)


def restitution(value: float, low: float, high: float) -> dict[str, float]:
    return {"restitution": value, "restitution_error": 0.002} | {
        "restitution_low": low, "restitution_high": high, "surface": 9.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    found: list[dict[str, Any]] = []
    for seed, error in enumerate((1.0, 2.0, 6.0)):
        found += fit("positions.exact", seed, error, velocities="none") + fit(
            "ball.exact.inferred", seed, error
        )
        found += fit("pendulum.exact", seed, 0.1, impacts=0, mistimed=0, missed=0)
        for name in ("positions.exact", "ball.exact.inferred", "pendulum.exact"):
            found += oracle(name, seed, paper_rmse=0.5, held_out_median=0.125)
        found += oracle("ball.exact.inferred", seed, "oracle, floor estimated", held_out_median=0.25)
        shares = {"slope_95_share": 0.05 * (seed + 1), "slope_rmse_share": 0.01}
        # What the data do not determine is not there.
        known = restitution(0.815, 0.79, 0.82) if seed < 2 else {}
        found += fit("bent", seed, 1.0, start="estimated", **shares, **known)
    for seed, value in enumerate((0.951, 0.953, 0.967)):
        error = 1.0 if seed < 2 else math.nan
        known = restitution(value, value - 0.0028, value + 0.0028)
        found += fit("unknown-e-0.95", seed, error, start="estimated", **known)
    return as_read(found, tmp_path_factory.mktemp("results"))


def test_errors(rows):
    table = errors_table(rows)
    # (1 + 2 + 6)/3 = 3; the deviations −2, −1, 3 give √(14/2)/√3 = 1.53.
    ours, impacts = ["3.0 ± 1.5", "2.00"], "3 / 3 / 0 of 12"
    known = ["exact", "inferred", "known"]
    assert cells(table, BALL)[1:] == [*known, "recorded", *ours, "0.500", impacts, "1.9 ± 1.0"]
    assert cells(table, "Ball, positions only")[4] == "none"
    # A seed without a finite error is not left out of the mean.
    row = cells(table, "Ball, e = 0.95 unknown")
    assert row[3:8] == ["estimated", "recorded", "1 of 3 diverged", "1.00", "–"]
    assert cells(table, "Pendulum")[8] == "0 spurious"
    assert [row[0] for row in table.rows][0::3] == [BALL, BENT]


def test_restitution(rows):
    table = restitution_table(rows)
    # Errors 0.001, 0.003 and 0.017; the deviations from their mean 0.957 are −0.006, −0.004 and 0.01.
    expected = ["0.95", "0.0170", "1 of 3", "0.00200", "0.00872", "+0.00700"]
    assert cells(table, "Ball, e = 0.95 unknown")[1:] == expected
    assert cells(table, BENT)[1:] == ["0.8", "0.0150", "2 of 3", "0.00200", "0", "+0.0150"]
    assert len(table.rows) == 2


def test_held_out(rows):
    table = held_out_table(rows)
    assert cells(table, BALL)[4:] == ["0.500", "0.125", "4.0×", "0.250", "2.0×", "10.0"]
    assert cells(table, "Pendulum")[7:9] == ["–", "–"]
    assert BENT not in [row[0] for row in table.rows]


def test_bent(rows):
    table = bent_table(rows)
    assert cells(table, "95th percentile")[1:] == ["10.0 %", "5.0 %", "15.0 %"]
    assert cells(table, "root mean square")[1:] == ["1.0 %", "1.0 %", "1.0 %"]
