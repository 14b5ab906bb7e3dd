"""The paper's tables against numbers worked out by hand."""

from pathlib import Path

import polars as pl
import pytest

from carom.digits import number
from carom.errors import InputError
from carom.evaluation.tables import markdown, mean_text, summarize
from carom.reproduction.paper.tables import experiment_table, findings, fits_of, summary_tables
from tests.reproduction.synthetic_trials import ERRORS, ORACLES, write_trials


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    folder: Path = tmp_path_factory.mktemp("trials")
    return fits_of(write_trials(folder).rows)


def cells(markdown: str, *beginning: str) -> list[str]:
    """The row that begins with these cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()]
    (found,) = [row for row in rows if row[: len(beginning)] == list(beginning)]
    return found


def test_experiment_rows_equal_the_statistics(fits: pl.DataFrame):
    table = markdown(experiment_table(fits, "ball"))
    found = summarize(ERRORS["ball", "CD-Lagrange"])
    row = cells(table, "CD-Lagrange", "text")
    assert row[2:7] == [
        "3",
        "0.067",
        mean_text(ERRORS["ball", "CD-Lagrange"]),
        number(found.median),
        "2 of 3 at or below",
    ]
    assert row[7:] == ["3 / 3 / 0 of 6", number(2 * 0.05), "0.200"]
    assert cells(table, "ResNetContact")[4] == "1 of 3 diverged"
    assert cells(table, "oracle")[4] == mean_text(ORACLES)


def test_damping_and_ablations_have_their_columns(fits: pl.DataFrame):
    assert "learned damping (true 0.8)" in experiment_table(fits, "damped-pendulum").header
    assert "paper" not in experiment_table(fits, "ablation-l2").header


def test_summary_says_what_is_reproduced_and_what_is_not(fits: pl.DataFrame):
    table = "\n".join(map(markdown, summary_tables(fits)))
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


def test_unknown_experiment_is_refused(fits: pl.DataFrame):
    with pytest.raises(InputError, match="no results of billiards"):
        experiment_table(fits, "billiards")


def test_findings_count_rows_seeds_and_comparisons(fits: pl.DataFrame):
    rows, figures, orders, without = findings(fits)
    assert "Of 2 rows of the printed tables, 0" in rows
    # The ball's CD-Lagrange 2 of 3, ResNet 1, ResNetContact 2; the cradle's 2 and 3.
    assert "; 10 of 15 of ours" in figures
    # On the cradle CD-Lagrange is below ResNet in one of three seeds only.
    assert "In 3 of 4 comparisons" in orders
    assert "in 3 of 3 runs" in without
