"""Tables of committed results inside Markdown pages; `make tables` refreshes them.

A page marks the place with `<!-- begin: NAME -->` and `<!-- end: NAME -->`, where NAME is `summary`, the name
of an experiment, `speed` for the benchmark, a name in `LEARNING_TABLES` for the recipe `carom`, or
`classifier`.
"""

import json
import re
from pathlib import Path
from typing import Any

from carom.atomic import atomic_write
from carom.experiments.classifier_tables import classifier_markdown
from carom.experiments.learning_tables import LEARNING_TABLES
from carom.experiments.tables import experiment_markdown, replace_between, summary_markdown

RESULTS = Path("results/paper.json")
SPEED = Path("benchmarks/results/speed.json")
LEARNING = Path("results/learning.json")
CLASSIFIER = Path("results/classifier.json")
DOCUMENTS = (RESULTS, SPEED, LEARNING, CLASSIFIER)
PAGES = (Path("README.md"), Path("docs/reproduction.md"), Path("docs/learning.md"))
_MARKER = re.compile(r"<!-- begin: (?P<name>[\w.-]+) -->")


def refreshed(
    text: str,
    paper: dict[str, Any],
    speed: dict[str, Any],
    learning: dict[str, Any],
    classifier: dict[str, Any],
) -> str:
    """A page with every marked table made anew, from the content of `DOCUMENTS`."""
    for name in _MARKER.findall(text):
        if name == "speed":
            table = speed_markdown(speed)
        elif name == "classifier":
            table = classifier_markdown(classifier)
        elif name in LEARNING_TABLES:
            table = LEARNING_TABLES[name](learning)
        else:
            table = summary_markdown(paper) if name == "summary" else experiment_markdown(paper, name)
        text = replace_between(text, name, table)
    return text


def speed_markdown(speed: dict[str, Any]) -> str:
    """Training steps per CPU-second beside those of the published code."""
    lines = [
        "| case | steps per CPU-second | published code | ratio to its highest |",
        "|:---|---:|---:|---:|",
    ]
    for row in speed["training"]:
        lowest, highest = row["reference"]
        reference = "" if lowest is None else str(lowest) if lowest == highest else f"{lowest}–{highest}"
        ratio = "" if lowest is None else f"{row['ratio_to_highest']:.1f}×"
        lines.append(f"| {row['case']} | {row['steps_per_cpu_second']:.0f} | {reference} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    """Refresh the tables of all pages, from the root of the repository."""
    documents = [json.loads(path.read_text()) for path in DOCUMENTS]
    for page in PAGES:
        text = refreshed(page.read_text(), *documents)
        with atomic_write(page) as temporary:
            temporary.write_text(text)


if __name__ == "__main__":
    main()
