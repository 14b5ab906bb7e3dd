"""The paper's tables against numbers worked out by hand."""

from pathlib import Path

import polars as pl
import pytest

from carom.digits import number
from carom.evaluation.tables import markdown, mean_text, summarize, welch
from carom.reproduction.paper.experiments import ALL, PROTOCOLS
from carom.reproduction.paper.tables import (
    experiment_table,
    findings,
    fits_of,
    hyperparameter_tables,
    summary_tables,
)
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
    # Two of three seeds are below 0.067, so that it has rank 3 of 4 from below and 2 from above.
    assert row[2:7] == [
        "3",
        "0.067",
        mean_text(ERRORS["ball", "CD-Lagrange"]),
        number(found.median),
        "above 2 of 3, p = 1.00",
    ]
    assert row[7:] == ["3 / 3 / 0 of 6", number(2 * 0.05), "0.200", "−10.0 % [−20.0 %, +0 %]"]
    assert cells(table, "ResNetContact")[4] == "1 of 3 diverged"
    assert cells(table, "oracle")[4] == mean_text(ORACLES)


def test_damping_and_ablations_have_their_columns(fits: pl.DataFrame):
    assert "learned damping (true 0.8)" in experiment_table(fits, "damped-pendulum").header
    assert "paper" not in experiment_table(fits, "ablation-l2").header


def test_summary_compares_on_both_sides(fits: pl.DataFrame):
    tables = summary_tables(fits)
    # (1 + 2 + 6)/3 = 3 against 1.9 ± 1.0 agrees, and 10.0 ± 0.6 against 6.6 ± 1.2 does not.
    ours = welch(summarize([1.0, 2.0, 6.0]), 1.9, 1.0, 5)
    assert ours is not None
    assert ours.p > 0.05
    assert cells(markdown(tables[0]), "Bouncing ball (Table 1)", "CD-Lagrange")[-1] == (
        f"agrees: {ours}, p = {ours.p:.2g}"
    )
    assert cells(markdown(tables[0]), "Bouncing ball (Table 1)", "ResNet")[-1].startswith("higher: +3.40")
    figures, order, bimodal, without, energy = map(markdown, tables[1:])
    assert cells(figures, "Newton's cradle (Figures 7 and 9)", "CD-Lagrange")[3:] == [
        "0.400",
        "above 2 of 3, p = 1.00",
    ]
    # On the cradle CD-Lagrange differs from ResNet by −0.1, 0.1 and 0.3.
    row = cells(order, "Newton's cradle (Figures 7 and 9)", "ResNet")
    assert row[2:] == ["below", "+0.100 [−0.397, +0.597]", "1 of 3 [1, 91 %]"]
    assert cells(bimodal, "Bouncing ball (Table 1)", "CD-Lagrange")[2:] == ["0 of 3 [0, 71 %]", "–", "2.00"]
    assert cells(without, "Bouncing ball (Figure 5)")[2:4] == ["0.067 / 7.578", "0.0500 / 8.00"]
    assert cells(energy, "Bouncing ball (Table 1)", "ResNet")[2:] == ["−10.0 % [−20.0 %, +0 %]"]
    assert not any("ℓ²" in markdown(table) for table in tables)


def test_findings_count_rows_and_comparisons(fits: pl.DataFrame):
    rows, without = findings(fits)
    assert "of 2 rows of the printed tables 1 agree" in rows
    assert "0 of ours are lower, 1 higher" in rows
    # Both baselines of the ball diverged. Of its table, 3.0 and 10.0, the difference is clear.
    assert "Of 2 paired comparisons with baselines 1 favour CD-Lagrange and 0 the baseline" in rows
    assert "in 3 of 3 runs" in without


def test_every_setting_is_in_the_tables():
    protocols, models, experiments = hyperparameter_tables()
    assert [row[0] for row in protocols.rows] == list(PROTOCOLS)
    assert {row[0] for row in models.rows} == {t.kind for one in ALL.values() for t in one.trained.values()}
    assert len(experiments.rows) == len(ALL)
