"""Tables from tidy rows, and statistics over seeds against numbers worked out by hand."""

import math

import polars as pl
import pytest

from carom.evaluation.tables import (
    Table,
    arrange,
    cell,
    markdown,
    mean_text,
    median_text,
    share_text,
    summarize,
    tabulate,
)

FITS = pl.DataFrame(
    {
        "model": ["b", "b", "a", "a", "a"],
        "protocol": ["text", "published", "text", "text", "published"],
        "error": [1.0, 2.0, 3.0, 5.0, math.inf],
        "impacts": [None, None, 2.0, 4.0, 0.0],
    }
)


def test_summary_of_four_numbers():
    # Squares about the mean 4: 9 + 4 + 1 + 16 = 30, variance 10, standard error √(10/4).
    found = summarize([1.0, 2.0, 5.0, 8.0])
    assert (found.count, found.mean, found.median, found.diverged) == (4, 4.0, 3.5, 0)
    assert found.standard_error == pytest.approx(math.sqrt(2.5))
    assert summarize([3.0]).standard_error is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf, None])
def test_a_diverged_seed_counts_as_infinite(wrong: float | None):
    found = summarize([1.0, wrong, 2.0])
    assert (found.mean, found.standard_error, found.median, found.diverged) == (math.inf, None, 2.0, 1)
    assert summarize([1.0, wrong, wrong, wrong]).median == math.inf


def test_groups_are_lines_and_braces_are_columns():
    table = tabulate(
        arrange(FITS, model=("a",)),
        {"model": "model"},
        {
            "seeds": lambda group: str(group.height),
            "mean, {protocol}": cell("error", mean_text),
            "median, {protocol}": cell("error", median_text),
            "hit": cell("impacts", lambda values: share_text(values > 0)),
            "absent": cell("absent", mean_text),
        },
        caption="Errors.",
        labels={"model": {"a": "model A"}},
    )
    pivoted = ("mean, text", "median, text", "mean, published", "median, published")
    assert table.header == ("model", "seeds", *pivoted, "hit", "absent")
    assert table.rows == (
        ("model A", "3", "4.0 ± 1.0", "4.00", "1 of 1 diverged", "diverged", "2 of 3", "–"),
        ("b", "2", "1.00", "1.00", "2.00", "2.00", "–", "–"),
    )
    assert table.without_empty_columns().header == table.header[:-1]


def test_markdown_escapes_bars_and_sets_numbers_flush_right():
    table = Table("", ("a|b", "n"), (("x", "1.0"), ("y", "–")))
    assert markdown(table).splitlines() == ["| a\\|b | n |", "|:---|---:|", "| x | 1.0 |", "| y | – |"]
