"""README and the pages of results show the numbers of the committed results, and no others."""

import json
from pathlib import Path

import pytest

from carom.experiments.documents import DOCUMENTS, PAGES, refreshed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_tables_are_made_from_the_results(page):
    text = (ROOT / page).read_text()
    assert "<!-- begin: " in text
    documents = [json.loads((ROOT / path).read_text()) for path in DOCUMENTS]
    assert refreshed(text, *documents) == text
