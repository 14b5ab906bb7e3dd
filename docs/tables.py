"""Tables of committed results inside the Markdown pages of the repository; `make tables` refreshes them.

A page marks the position of a table with `<!-- begin: NAME -->` and `<!-- end: NAME -->`. Below every table
stand the file that it is made from, and the version and commit of Carom that made this file.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import event_gradients
from benchmarks.bodies_tables import MECHANICS_TABLES, SPEED_TABLES
from benchmarks.tables import GPU_TABLES, GROWTH_TABLES
from carom.bench.run import BENCH_TABLES
from carom.errors import InputError
from carom.evaluation.results import read_results
from carom.evaluation.tables import Table, markdown
from carom.reproduction.bodies.tables import BODIES_TABLES
from carom.reproduction.demo import demo_table
from carom.reproduction.measured.tables import MEASURED_TABLES
from carom.reproduction.paper.tables import PAPER_TABLES, fits_of
from carom.reproduction.recipe.tables import LEARNING_TABLES, grid_table
from carom.storage.atomic import atomic_write
from docs.prose import paper_prose

PAGES = tuple(
    Path(name)
    for name in (
        "README.md",
        "docs/reproduction.md",
        "docs/learning.md",
        "docs/measured.md",
        "docs/bodies.md",
        "docs/growth.md",
        "docs/benchmarks.md",
    )
)
PAPER = ("results/paper.json", "results/paper-resnet.json")
"""The results of the paper's experiments, and of ablations that were run later."""
LATER = ("ablation-resnet", "ablation-tanh-cradle", "ablation-tanh-pendulum")
SOURCES: dict[str, Mapping[str, Callable[[Any], Table | list[Table] | str]]] = {
    "results/paper.json": {name: make for name, make in PAPER_TABLES.items() if name not in LATER},
    "results/paper-resnet.json": {name: PAPER_TABLES[name] for name in LATER},
    "results/demo.json": {"demo": demo_table},
    "results/learning.json": LEARNING_TABLES,
    "results/grid.json": {"grid-summary": grid_table},
    "results/measured.json": MEASURED_TABLES,
    "results/bodies.json": BODIES_TABLES,
    "benchmarks/results/mechanics.json": MECHANICS_TABLES,
    "benchmarks/results/bodies.json": SPEED_TABLES,
    "benchmarks/results/speed.json": BENCH_TABLES,
    "benchmarks/results/event_gradients.json": {
        "speed-torchdiffeq": lambda document: event_gradients.table(document["figures"])
    },
    "benchmarks/results/gpu.json": GPU_TABLES,
    "benchmarks/results/growth.json": GROWTH_TABLES,
}
"""Tables by name, by the file that they are made from: functions of its tidy rows, or of the JSON document
where a benchmark has a form of its own."""
_MARKER = re.compile(r"<!-- begin: (?P<name>[\w.-]+) -->")


def make_tables(root: Path) -> dict[str, str]:
    """All tables from the committed files of a repository, in Markdown, by name, each with its origin."""
    documents = {path: json.loads((root / path).read_text(encoding="utf-8")) for path in SOURCES}
    sources = {path: _source(root / path, document) for path, document in documents.items()}
    made = {
        name: f"{_markdown(make(sources[path]))}\n\n{origin(path, documents[path])}"
        for path, tables in SOURCES.items()
        for name, make in tables.items()
    }
    # Sentences may quote either file.
    fits = fits_of(pl.concat([sources[path] for path in PAPER], how="diagonal"))
    marks = "\n".join(origin(path, documents[path]) for path in PAPER)
    return made | {name: f"{block}\n\n{marks}" for name, block in paper_prose(fits)}


def origin(path: str, document: Mapping[str, Any]) -> str:
    """Where the numbers of a file come from: the version and commit of Carom.

    Example:
        >>> origin("results/grid.json", {"versions": {"carom": "0.5.0"}, "commit": "0123456789abcdef"})
        '<sub>results/grid.json: Carom 0.5.0, commit 0123456789</sub>'
        >>> origin("results/grid.json", {"versions": {"carom": "0.5.0"}, "source_sha256": "0123456789abcdef"})
        '<sub>results/grid.json: Carom 0.5.0, source 0123456789</sub>'
    """
    # Files of older versions have a hash of the source instead of a commit, or neither.
    marks = {"commit": "commit", "source_sha256": "source", "source": "source"}
    found = [f"{word} {document[key][:10]}" for key, word in marks.items() if key in document]
    version = document.get("versions", {}).get("carom", "of unknown version")
    return f"<sub>{path}: Carom {version}, {found[0] if found else 'commit not recorded'}</sub>"


def refreshed(text: str, tables: Mapping[str, str]) -> str:
    """A page with every marked table made anew."""
    for name in _MARKER.findall(text):
        if name not in tables:
            raise InputError(f"There is no table {name}; the tables are {', '.join(tables)}.")
        text = replace_between(text, name, tables[name])
    return text


def replace_between(text: str, marker: str, table: str) -> str:
    """The text with `table` between the lines `<!-- begin: marker -->` and `<!-- end: marker -->`.

    Example:
        >>> replace_between("a\\n<!-- begin: t -->\\nold\\n<!-- end: t -->\\nb\\n", "t", "new")
        'a\\n<!-- begin: t -->\\n\\nnew\\n\\n<!-- end: t -->\\nb\\n'
    """
    begin, end = f"<!-- begin: {marker} -->", f"<!-- end: {marker} -->"
    pattern = re.compile(rf"^{re.escape(begin)}$.*?^{re.escape(end)}$", re.MULTILINE | re.DOTALL)
    found = len(pattern.findall(text))
    if found != 1:
        raise InputError(
            f"A text needs one line “{begin}” and below it one line “{end}”; {found} such pairs were found."
        )
    # A function, because backslashes in a replacement text would be interpreted.
    return pattern.sub(lambda _: f"{begin}\n\n{table.strip()}\n\n{end}", text)


def _source(path: Path, document: dict[str, Any]) -> Any:
    """The tidy rows of a file of results, or the document where a benchmark has a form of its own."""
    rows = document.get("rows")
    return read_results(path).rows if isinstance(rows, list) and "metric" in rows[0] else document


def _markdown(made: Table | list[Table] | str) -> str:
    if isinstance(made, str):
        return made
    return "\n\n".join(markdown(table) for table in ([made] if isinstance(made, Table) else made))


def main() -> None:
    """Refresh the tables of all pages, from the root of the repository."""
    tables = make_tables(Path())
    for page in PAGES:
        text = refreshed(page.read_text(encoding="utf-8"), tables)
        with atomic_write(page) as temporary:
            temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
