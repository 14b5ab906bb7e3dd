"""Tables of `results/paper.json` inside Markdown pages; `make tables` refreshes them.

A page marks the place with `<!-- begin: NAME -->` and `<!-- end: NAME -->`, where NAME is `summary` or the
name of an experiment.
"""

import json
import re
from pathlib import Path
from typing import Any

from carom.atomic import atomic_write
from carom.experiments.tables import experiment_markdown, replace_between, summary_markdown

RESULTS = Path("results/paper.json")
PAGES = (Path("README.md"), Path("docs/reproduction.md"))
_MARKER = re.compile(r"<!-- begin: (?P<name>[\w.-]+) -->")


def refreshed(text: str, document: dict[str, Any]) -> str:
    """A page with every marked table made anew."""
    for name in _MARKER.findall(text):
        table = summary_markdown(document) if name == "summary" else experiment_markdown(document, name)
        text = replace_between(text, name, table)
    return text


def main() -> None:
    """Refresh the tables of all pages, from the root of the repository."""
    document = json.loads(RESULTS.read_text())
    for page in PAGES:
        text = refreshed(page.read_text(), document)
        with atomic_write(page) as temporary:
            temporary.write_text(text)


if __name__ == "__main__":
    main()
