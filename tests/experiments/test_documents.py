"""README and the pages of results show the numbers of the committed results, and no others."""

from pathlib import Path

import pytest

from carom.experiments.documents import PAGES, read_documents, refreshed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_tables_are_made_from_the_results(page):
    text = (ROOT / page).read_text()
    assert "<!-- begin: " in text
    assert refreshed(text, read_documents(ROOT)) == text
