"""Tables of committed results inside Markdown pages; `make tables` refreshes them.

A page marks the place with `<!-- begin: NAME -->` and `<!-- end: NAME -->`, where NAME is `summary`, the name
of an experiment, `speed` for the benchmark, or for the recipe `carom` a name in `LEARNING_TABLES` or in
`MEASURED_TABLES`.
"""

import json
import re
from pathlib import Path
from typing import Any

from carom.atomic import atomic_write
from carom.experiments.learning_tables import LEARNING_TABLES
from carom.experiments.measured_tables import MEASURED_TABLES
from carom.experiments.tables import experiment_markdown, replace_between, summary_markdown

RESULTS = Path("results/paper.json")
SPEED = Path("benchmarks/results/speed.json")
LEARNING = Path("results/learning.json")
MEASURED = Path("results/measured.json")
DOCUMENTS = (RESULTS, SPEED, LEARNING, MEASURED)
PAGES = (
    Path("README.md"),
    Path("docs/reproduction.md"),
    Path("docs/learning.md"),
    Path("docs/measured.md"),
)
_MARKER = re.compile(r"<!-- begin: (?P<name>[\w.-]+) -->")


def refreshed(
    text: str,
    paper: dict[str, Any],
    speed: dict[str, Any],
    learning: dict[str, Any],
    measured: dict[str, Any],
) -> str:
    """A page with every marked table made anew."""
    for name in _MARKER.findall(text):
        if name == "speed":
            table = speed_markdown(speed)
        elif name in LEARNING_TABLES:
            table = LEARNING_TABLES[name](learning)
        elif name in MEASURED_TABLES:
            table = MEASURED_TABLES[name](measured)
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
