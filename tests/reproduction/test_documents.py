"""README and the pages of results show the numbers of the committed results, and no others."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from carom.errors import InputError
from carom.reproduction.demo import CAROM, demo_table
from carom.reproduction.demo import PAPER as PAPER_RECIPE
from docs.prose import PaperNumbers
from docs.tables import PAGES, PAPER, SOURCES, make_tables, origin, refreshed, replace_between

ROOT = Path(__file__).parents[2]


def test_tables_are_made_from_the_results():
    tables = make_tables(ROOT)
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert "<!-- begin: " in text
        assert refreshed(text, tables) == text, page


def test_every_table_says_which_version_and_commit_it_is_from():
    tables = make_tables(ROOT)
    for path, names in SOURCES.items():
        document = json.loads((ROOT / path).read_text())
        for name in names:
            *_, last = tables[name].splitlines()
            assert last == origin(path, document)
            assert document["versions"]["carom"] in last
            assert document.get("commit", document.get("source_sha256", ""))[:10] in last


def test_a_marker_without_a_table_is_refused():
    with pytest.raises(InputError, match="no table weather"):
        refreshed("<!-- begin: weather -->\n<!-- end: weather -->\n", {"climate": ""})


def test_gpu_and_processor_agree_within_what_is_allowed():
    agreement = json.loads((ROOT / "benchmarks/results/gpu.json").read_text())["agreement"]
    for part in ("forecast", "training", "parameters"):
        assert agreement[part]["difference"] <= agreement[part]["tolerance"]


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


def test_sentences_have_the_numbers_of_the_results_and_their_origin():
    tables = make_tables(ROOT)
    document = json.loads((ROOT / PAPER[0]).read_text())
    errors = np.array(
        [
            row["value"]
            for row in document["rows"]
            if (row["experiment"], row["model"], row["protocol"], row["metric"])
            == ("ball-table", "ResNet", "text", "paper_rmse")
        ]
    )
    mean, error = errors.mean(), errors.std(ddof=1) / np.sqrt(len(errors))
    assert f"{mean:.0f} ± {error:.0f}" in tables["reading"]
    for name in ("reading", "order", "disagreement", "energy", "l2", "damping", "claims", "in_short"):
        for path in PAPER:
            assert origin(path, json.loads((ROOT / path).read_text())) in tables[name]


def test_a_sentence_about_results_that_do_not_exist_is_refused():
    empty = pl.DataFrame(
        schema={"experiment": pl.String, "model": pl.String, "protocol": pl.String, "seed": int}
    )
    with pytest.raises(InputError, match="no results of ResNet in ball, text"):
        PaperNumbers(empty).mean("ball", "ResNet", "text")


def test_the_demonstration_is_tabulated_with_the_oracle_last():
    bounces = {"on_time": 3, "bounces": 4}
    rows = [
        {"experiment": "demo", "model": model, "seed": 0, "metric": metric, "value": float(value)}
        for model, metrics in (
            ("oracle: true equations, g fitted", {"error": 0.01}),
            (PAPER_RECIPE, {"error": 3.0, **bounces}),
            (CAROM, {"error": 0.02, **bounces}),
        )
        for metric, value in metrics.items()
    ]
    table = demo_table(pl.DataFrame(rows))
    assert [row[0] for row in table.rows] == [CAROM, PAPER_RECIPE, "oracle: true equations, g fitted"]
    assert [row[2] for row in table.rows] == ["3 of 4", "3 of 4", "–"]
