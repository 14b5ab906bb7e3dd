"""README and the pages of results show the numbers of the committed results, and no others."""

import json
from pathlib import Path

import pytest

from carom.errors import InputError
from docs.tables import PAGES, SOURCES, make_tables, origin, refreshed, replace_between

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
