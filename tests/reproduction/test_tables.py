"""Markdown tables from a document, and their place in a text."""

import json
from pathlib import Path

import pytest

from carom.digits import number
from carom.errors import InputError
from carom.reproduction.formatting import spread_mean
from carom.reproduction.paper.statistics import spread
from carom.reproduction.paper.trials import load_oracle, load_units
from carom.reproduction.tables import experiment_markdown, replace_between, summary_markdown
from tests.reproduction.synthetic_trials import ERRORS, write_units


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder: Path = tmp_path_factory.mktemp("units")
    write_units(folder)
    units = []
    for unit in load_units(folder):
        rows = [
            {key: value for key, value in row.items() if key != "held_out_paper_rmse"}
            | {"held_out_median": sorted(row["held_out_paper_rmse"])[1]}
            for row in unit.summary["rows"]
        ]
        units.append(unit.summary | {"rows": rows})
    return json.loads(
        json.dumps({"command": "carom reproduce", "units": units, "oracle": load_oracle(folder)})
    )


def cells(markdown: str, *beginning: str) -> list[str]:
    """The row that begins with these cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]
    (found,) = [row for row in rows if row[: len(beginning)] == list(beginning)]
    return found


def test_experiment_rows_equal_the_statistics(document: dict):
    table = experiment_markdown(document, "ball")
    found = spread(ERRORS["ball", "CD-Lagrange"])
    row = cells(table, "CD-Lagrange", "text")
    assert row[2:7] == ["3", "0.067", spread_mean(found), number(found.median), "2 of 3 at or below"]
    assert row[7:] == ["3 / 3 / 0 of 6", number(2 * 0.05), "0.200"]
    assert cells(table, "ResNetContact")[4] == "1 of 3 diverged"
    assert cells(table, "oracle")[4] == spread_mean(spread(document["oracle"]["ball.text"]))


def test_damping_and_ablations_have_their_columns(document: dict):
    assert "learned damping (true 0.8)" in experiment_markdown(document, "damped-pendulum")
    assert "paper" not in experiment_markdown(document, "ablation-l2")


def test_summary_says_what_comes_out_and_what_does_not(document: dict):
    table = summary_markdown(document)
    # (1 + 2 + 6)/3 = 3 against 1.9 + 1.0, and 10 against 6.6 + 1.2.
    assert cells(table, "Bouncing ball (Table 1)", "CD-Lagrange")[-1] == "no"
    assert cells(table, "Bouncing ball (Table 1)", "ResNet", "below")[-1] == "3 of 3"
    assert cells(table, "Newton's cradle (Figures 7 and 9)", "CD-Lagrange")[3] == "2 of 3"
    assert cells(table, "Bouncing ball (Figure 5)", "text")[2:5] == [
        "0.067 / 7.578",
        "0.0500 / 8.00",
        "3 of 3",
    ]
    assert "ℓ²" not in table


def test_unknown_experiment_is_refused(document: dict):
    with pytest.raises(InputError, match="no results of billiards"):
        experiment_markdown(document, "billiards")


def test_replace_between_round_trip():
    text = "before\n<!-- begin: a -->\nold\n<!-- end: a -->\n<!-- begin: b -->\n<!-- end: b -->\nafter\n"
    once = replace_between(text, "a", "| \\1 | new |\n")
    assert "old" not in once
    assert "| \\1 | new |" in once
    assert replace_between(once, "a", "| \\1 | new |") == once
    assert replace_between(once, "a", "old").replace("\n\n", "\n") == text
    assert once.startswith("before\n<!-- begin: a -->\n")
    assert once.endswith("<!-- begin: b -->\n<!-- end: b -->\nafter\n")


@pytest.mark.parametrize("text", ["", "<!-- begin: a -->\n", "<!-- end: a -->\n<!-- begin: a -->\n"])
def test_missing_marks_are_refused(text: str):
    with pytest.raises(InputError, match="begin: a"):
        replace_between(text, "a", "table")
