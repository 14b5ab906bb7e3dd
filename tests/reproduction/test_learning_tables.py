"""The document of the recipe `carom` and its tables, against numbers computed by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from carom.reproduction.recipe.rows_tables import (
    LEARNING_TABLES,
    bent_markdown,
    held_out_markdown,
    main_markdown,
    parameters_markdown,
    write_learning,
)

from carom.errors import InputError
from tests.reproduction.test_tables import cells

COMMAND = "carom reproduce --recipe carom --runs 3"
BALL = "Ball, e = 1 given, floor learned"


def line(seed: int, error: float, **others: Any) -> dict[str, Any]:
    impacts = {"impacts": 4, "mistimed": seed, "missed": 1, "spurious": 0}
    known = {"held_out_median": 0.25 * (seed + 1), "held_out_mistimed": 10 * seed, "parameters": []}
    return {"seed": seed, "paper_rmse": error, "noise": [0.2, math.nan]} | impacts | known | others


def result(title: str, lines: list[dict[str, Any]], **others: Any) -> dict[str, Any]:
    known = {"title": title, "truth": "exact", "touch": "inferred", "start_given": True, "velocities": True}
    known |= {"bound": None, "paper": "", "device": "cpu", "fingerprint": "f"}
    return known | others | {"rows": lines}


def restitution(value: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    surface = {"name": "surface of body 1 at the wall", "value": 9.0, "error": 9.0, "low": 9.0, "high": 9.0}
    error = None if value is None else 0.002
    name = "restitution of body 1 at the wall"
    return {"parameters": [surface, {"name": name, "value": value, "error": error, "low": low, "high": high}]}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    oracle = {"oracle": 0.5, "oracle_held_out_median": 0.125}
    blind = oracle | {"oracle_without_floor_held_out_median": 0.25}
    ball = [line(0, 1.0, **blind), line(1, 2.0, **blind), line(2, 6.0, **blind)]
    unknown = [
        line(0, 1.0, **restitution(0.951, 0.9482, 0.9538)),
        line(1, 1.0, **restitution(0.953, 0.9502, 0.9558)),
        line(2, math.nan, **restitution(0.967, 0.9642, 0.9698)),
    ]
    bent = [
        line(
            seed,
            1.0,
            slope_95_share=0.05 * (seed + 1),
            slope_rmse_share=0.01,
            **restitution(0.815, 0.79, 0.82),
        )
        for seed in range(3)
    ]
    bent[2] |= restitution(None, None, None)
    free = [
        line(seed, 0.1, impacts=0, mistimed=0, missed=0, held_out_mistimed=0, **oracle) for seed in range(3)
    ]
    results = {
        "bent": result("Ball in a bent potential, e = 0.8 unknown", bent),
        "pendulum.exact": result("Pendulum", free, bound=0.1, paper="0.538"),
        "ball.exact.inferred": result(BALL, ball, bound=3.0, paper="1.9 ± 1.0"),
        "positions.exact": result("Ball, positions only", ball, bound=2.9, velocities=False),
        "unknown-e-0.95": result("Ball, e unknown", unknown, start_given=False, bound=3.0),
    }
    path: Path = tmp_path_factory.mktemp("results") / "new" / "learning.json"
    write_learning(results, path, command=COMMAND)
    return json.loads(path.read_text())


def test_the_document_holds_every_seed_rounded_and_in_the_order_of_the_rows(document):
    assert document["command"] == COMMAND
    assert document["seeds"] == [0, 1, 2]
    assert document["devices"] == ["cpu"]
    assert len(document["source_sha256"]) == 64
    assert list(document["rows"]) == [
        "ball.exact.inferred",
        "pendulum.exact",
        "unknown-e-0.95",
        "bent",
        "positions.exact",
    ]
    unknown = document["rows"]["unknown-e-0.95"]
    assert unknown["true_restitution"] == 0.95
    assert unknown["rows"][2]["paper_rmse"] is None
    assert unknown["rows"][0]["noise"] == [0.2, None]
    assert "fingerprint" not in unknown


def test_five_digits_all_the_way_down(tmp_path):
    row = line(0, 1.23456789, **restitution(0.70123456, 0.6, 0.8))
    write_learning({"unknown-e-0.7": result("e", [row])}, tmp_path / "a.json", command="")
    kept = json.loads((tmp_path / "a.json").read_text())["rows"]["unknown-e-0.7"]["rows"][0]
    assert kept["paper_rmse"] == 1.2346
    assert kept["parameters"][1]["value"] == 0.70123


def test_unknown_and_missing_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match="no finished rows"):
        write_learning({}, tmp_path / "a.json", command="")
    with pytest.raises(InputError, match="nothing"):
        write_learning({"nothing": result("", [line(0, 1.0)])}, tmp_path / "a.json", command="")
    assert not (tmp_path / "a.json").exists()


def test_main_table(document):
    table = main_markdown(document)
    # (1 + 2 + 6)/3 = 3; the deviations −2, −1, 3 give √(14/2)/√3 = 1.53.
    ours = ["3.0 ± 1.5", "2.00"]
    known = ["exact", "inferred", "given"]
    impacts = "3 / 3 / 0 of 12"
    row = cells(table, BALL)
    assert row[1:] == [*known, "recorded", *ours, "3", "yes", "0.500", impacts, "1.9 ± 1.0"]
    assert cells(table, "Ball, positions only")[4:9] == ["none", *ours, "2.9", "no"]
    # A seed without a finite error is not left out of the mean.
    row = cells(table, "Ball, e unknown (true 0.95)")
    assert row[3:10] == ["unknown", "recorded", "1 of 3 diverged", "1.00", "3", "no", "–"]
    row = cells(table, "Ball in a bent potential, e = 0.8 unknown")
    assert row[7:] == ["–", "–", "–", impacts, "–"]
    assert cells(table, "Pendulum")[10] == "0 spurious"


def test_restitution_table(document):
    table = parameters_markdown(document)
    # Off by 0.001, 0.003 and 0.017; the mean is 0.957, the deviations −0.006, −0.004 and 0.01: √(152/2)/1000.
    row = cells(table, "Ball, e unknown")
    assert row[1:] == ["0.95", "0.01", "2 of 3", "1 of 3", "0.00200", "0.00872", "+0.00700"]
    # Off by 0.015, which the bent potential allows; what was not determined is neither near nor covered.
    row = cells(table, "Ball in a bent potential, e = 0.8 unknown")
    assert row[1:] == ["0.8", "0.02", "2 of 3", "2 of 3", "0.00200", "0", "+0.0150"]
    assert BALL not in table


def test_held_out_table(document):
    table = held_out_markdown(document)
    assert cells(table, BALL)[4:] == ["0.500", "0.125", "4.0×", "0.250", "2.0×", "10.0"]
    assert "bent" not in table


def test_bent_table(document):
    table = bent_markdown(document)
    assert cells(table, "95th percentile")[1:] == ["10.0 %", "5.0 %", "15.0 %"]
    assert cells(table, "root mean square")[1:] == ["1.0 %", "1.0 %", "1.0 %"]


def test_every_table_has_its_own_marker():
    assert list(LEARNING_TABLES) == [
        "learning-main",
        "learning-parameters",
        "learning-held-out",
        "learning-bent",
    ]
