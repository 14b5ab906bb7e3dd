"""The tables of measured recordings, against numbers computed by hand."""

from typing import Any

import pytest

from carom.reproduction.measured.tables import (
    errors_markdown,
    masses_markdown,
    misfit_markdown,
    parameters_markdown,
    pendulum_markdown,
)
from tests.reproduction.test_tables import cells


def line(speed: float, ratio: float, *, out: bool = False, found: bool = True) -> dict[str, Any]:
    known = {"left_out": out, "found": found, "check": {"mass_ratio": 0.5}}
    return known | ({"closing_speed": speed, "mass_ratio": ratio, "late_by": -0.002} if found else {})


def parameter(name: str, value: float | None, error: float | None) -> dict[str, Any]:
    return {"name": name, "value": value, "standard_error": error}


def unit(title: str, law: float, constant: float, **others: Any) -> dict[str, Any]:
    quality = {"residual": 2e-4, "excess": 10.0, "near_impacts": 1.0, "impacts": [1, 2, 1]}
    known = {
        "title": title,
        "bound": 0.5,
        "kind": "speed",
        "errors": {"law": law, "constant": constant, "constant_restitution": 0.6, "hindsight": 2 * law},
        "weighed": [0.5],
        "fit": quality,
        "fit_without_blind": quality | {"residual": 1e-3, "excess": 50.0, "near_impacts": 4.0},
        "law_at": {"speed": [0.3, 1.0], "value": [0.8, 0.6], "error": [0.02, 0.01]},
        "parameters": [
            parameter("restitution between bodies 1 and 2, at 1 unit of speed", 0.6, 0.01),
            parameter("restitution between bodies 1 and 2, scatter from run to run", 0.03, 0.005),
            parameter("mass of body 2 over that of body 1", 0.52, 0.01),
        ],
        # Halves by speed: 0.51 and 0.53 over 0.5, then 0.55 and 0.61.
        "runs": [
            line(0.2, 0.51),
            line(0.9, 0.61),
            line(0.5, 0.55),
            line(0.4, 0.53, out=True),
            line(0, 0, found=False),
        ],
    }
    return known | others


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    bands = [unit("Bands", 0.010, 0.030), unit("Bands", 0.011, 0.040)]
    other = [parameter("restitution between bodies 1 and 2, scatter from run to run", None, None)]
    pucks = [
        unit("Pucks", 0.03, 0.02, kind="constant", weighed=[0.5, 2.0], parameters=other),
        unit("Pucks", 0.03, 0.02),
    ]
    rows = [{"energy_mse": 0.001}, {"energy_mse": 0.003}]
    pendulum = {
        "published": {"plain network": [0.386, 0.069]},
        "validation": {"no damping": [0.2, 0.4], "damping": [0.002, 0.002]},
        "variant": "damping",
        "rows": rows,
    }
    return {"seeds": [0, 1], "air_track": {"bands": bands, "pucks": pucks}, "pendulum": pendulum}


def test_errors(document):
    table = errors_markdown(document)
    # Ratios 1/3 and 11/40, mean 0.304; the law's errors differ by 0.001 of 0.0105.
    expected = ["3", "1", "e(u)", "0.0105", "0.600", "0.0350", "0.30", "0.5", "yes", "0.50"]
    assert cells(table, "Bands")[1:] == expected
    assert cells(table, "Pucks")[3] == "constant / e(u)"
    assert cells(table, "Pucks")[7:10] == ["1.50", "0.5", "no"]
    assert "differ by at most 9.5 %" in table


def test_parameters(document):
    table = parameters_markdown(document)
    # No run that was learned from was as fast as 1 m/s.
    assert cells(table, "Bands")[1:] == ["0.800 ± 0.020", "–", "0.0300 ± 0.0050", "2 of 3", "2.00"]
    assert cells(table, "Pucks")[3] == "–"


def test_masses(document):
    table = masses_markdown(document)
    halves = ["1.040 ± 0.020", "1.160 ± 0.060"]
    assert cells(table, "Bands")[1:] == ["0.500", "0.520 ± 0.010", "1.040 ± 0.020", *halves]
    assert cells(table, "Pucks")[1:4] == ["run by run", "run by run", "–"]


def test_misfit(document):
    expected = ["0.200", "10.0×", "1.00", "50.0×", "4.0×"]
    assert cells(misfit_markdown(document), "Bands")[1:] == expected


def test_pendulum(document):
    table = pendulum_markdown(document)
    assert cells(table, "plain network (published)")[1:] == ["0.386 ± 0.069", "–"]
    assert cells(table, "recipe carom, no damping")[1:] == ["–", "0.30 ± 0.10"]
    assert cells(table, "recipe carom, damping")[1:] == ["0.0020 ± 0.0010", "0.00200"]
