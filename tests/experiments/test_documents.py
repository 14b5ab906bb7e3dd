"""README and the reproduction page show the numbers of results/paper.json, and no others."""

import json
from pathlib import Path

import pytest

from carom.experiments.documents import PAGES, RESULTS, refreshed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_tables_are_made_from_the_results(page):
    text = (ROOT / page).read_text()
    assert "<!-- begin: " in text
    assert refreshed(text, json.loads((ROOT / RESULTS).read_text())) == text
