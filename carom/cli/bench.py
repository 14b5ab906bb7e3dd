"""`carom bench`: how fast Carom is on this machine."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import tyro

from carom.bench.cases import NAMES
from carom.bench.run import compare, fit_table, model_table, read_bench, run_bench
from carom.cli.arguments import require_output
from carom.cli.output import print_json, print_table, progress
from carom.errors import find_names, require_seed
from carom.storage.atomic import write_whole


def bench(
    *,
    out: Path | None = None,
    against: Path | None = None,
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME …")] = (),
    quick: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure training, forecasts and whole fits: the same work for every model and both recipes.

    Example: carom bench --only ball fit-carom --out speed.json

    Every case runs in fresh processes, first with an empty cache of compiled programs and then with a warm
    one. All of it takes about ten minutes.

    Args:
        out: The numbers as JSON.
        against: A stored run to compare with, as ratios; greater than 1 is better than it was.
        only: Cases, by how their names begin.
        quick: Do much less work, to see that everything runs; the numbers mean little.
        overwrite: Replace the JSON file if it exists.
        seed: Unused; every command takes it.
        json: Print one JSON object instead of tables.
    """
    require_seed(seed)
    # Before minutes of measuring, not after.
    find_names(only, NAMES, kind="case")
    stored = None if against is None else read_bench(against)
    if out is not None:
        require_output(out, overwrite=overwrite)
    with progress("measuring") as report:
        document = run_bench(only, quick=quick, progress=report)
    if stored is not None:
        document["against"] = {"file": str(against), **compare(document, stored)}
    if out is not None:
        write_whole(out, json_format.dumps(document, indent=1) + "\n")
    if json:
        print_json(document)
        return
    _print_tables(document)
    if out is not None:
        print(f"Every number is in {out}.")


def _print_tables(document: dict[str, Any]) -> None:
    for title, table in (
        ("Models: training by the paper's recipe and forecasts", model_table(document)),
        ("Fits of the ball from the start of a process, cache warm", fit_table(document)),
    ):
        if table.rows:
            print_table(title, table.header, table.rows)
    if "against" in document:
        against = document["against"]
        rows = [
            (case, name, ratio)
            for case, ratios in against["ratios"].items()
            for name, ratio in ratios.items()
        ]
        print_table(f"Times better than {against['file']}", ("case", "figure", "ratio"), rows)
        if against["differences"]:
            print(f"The two runs differ in more than time: {'; '.join(against['differences'])}.")
