"""Tables of committed results inside Markdown pages; `make tables` refreshes them.

A page marks the place with `<!-- begin: NAME -->` and `<!-- end: NAME -->`, where NAME is `summary`, the name
of an experiment of the paper, or a name in `TABLES`.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from carom.bench.tables import BENCH_TABLES
from carom.reproduction.bodies.learning_tables import BODIES_LEARNING_TABLES
from carom.reproduction.bodies.tables import BODIES_SPEED_TABLES, BODIES_TABLES
from carom.reproduction.gpu_tables import GPU_TABLES
from carom.reproduction.growth_tables import GROWTH_TABLES
from carom.reproduction.measured.tables import MEASURED_TABLES
from carom.reproduction.recipe.classifier_tables import classifier_markdown
from carom.reproduction.recipe.grid_tables import GRID_TABLES
from carom.reproduction.recipe.rows_tables import LEARNING_TABLES
from carom.reproduction.tables import experiment_markdown, replace_between, summary_markdown
from carom.storage.atomic import atomic_write

Document = dict[str, Any]
PAPER = Path("results/paper.json")
SPEED = Path("benchmarks/results/speed.json")
LEARNING = Path("results/learning.json")
GRID = Path("results/grid.json")
CLASSIFIER = Path("results/classifier.json")
MEASURED = Path("results/measured.json")
BODIES = Path("results/bodies.json")
BODIES_SPEED = Path("benchmarks/results/bodies.json")
GPU = Path("benchmarks/results/gpu.json")
GROWTH = Path("benchmarks/results/growth.json")
PAGES = (
    Path("README.md"),
    Path("docs/reproduction.md"),
    Path("docs/learning.md"),
    Path("docs/measured.md"),
    Path("docs/bodies.md"),
    Path("docs/growth.md"),
    Path("docs/benchmarks.md"),
)
_MARKER = re.compile(r"<!-- begin: (?P<name>[\w.-]+) -->")


def refreshed(text: str, documents: Mapping[Path, Document]) -> str:
    """A page with every marked table made anew."""
    for name in _MARKER.findall(text):
        if name in TABLES:
            source, make = TABLES[name]
            table = make(documents[source])
        elif name == "summary":
            table = summary_markdown(documents[PAPER])
        else:
            table = experiment_markdown(documents[PAPER], name)
        text = replace_between(text, name, table)
    return text


TABLES: dict[str, tuple[Path, Callable[[Document], str]]] = {
    "classifier": (CLASSIFIER, classifier_markdown),
    **{name: (LEARNING, make) for name, make in LEARNING_TABLES.items()},
    **{name: (GRID, make) for name, make in GRID_TABLES.items()},
    **{name: (MEASURED, make) for name, make in MEASURED_TABLES.items()},
    **{name: (BODIES, make) for name, make in BODIES_TABLES.items()},
    **{name: (BODIES, make) for name, make in BODIES_LEARNING_TABLES.items()},
    **{name: (BODIES_SPEED, make) for name, make in BODIES_SPEED_TABLES.items()},
    **{name: (GROWTH, make) for name, make in GROWTH_TABLES.items()},
    **{name: (GPU, make) for name, make in GPU_TABLES.items()},
    **{name: (SPEED, make) for name, make in BENCH_TABLES.items()},
}
"""Tables by the name of their marker: the document they are made from, and how."""


def read_documents(root: Path) -> dict[Path, Document]:
    """All committed results of a repository."""
    paths = {PAPER, *(source for source, _ in TABLES.values())}
    return {path: json.loads((root / path).read_text()) for path in paths}


def main() -> None:
    """Refresh the tables of all pages, from the root of the repository."""
    documents = read_documents(Path())
    for page in PAGES:
        text = refreshed(page.read_text(), documents)
        with atomic_write(page) as temporary:
            temporary.write_text(text)


if __name__ == "__main__":
    main()
