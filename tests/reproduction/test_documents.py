"""README and the pages of results show the numbers of the committed results, and no others."""

import json
from pathlib import Path

import pytest

from carom.reproduction.documents import PAGES, read_documents, refreshed

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_tables_are_made_from_the_results(page):
    text = (ROOT / page).read_text()
    assert "<!-- begin: " in text
    assert refreshed(text, read_documents(ROOT)) == text


def test_gpu_and_processor_agree_within_what_is_allowed():
    agreement = json.loads((ROOT / "benchmarks/results/gpu.json").read_text())["agreement"]
    for part in ("forecast", "training", "parameters"):
        assert agreement[part]["difference"] <= agreement[part]["tolerance"]
