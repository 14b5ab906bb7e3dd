"""`carom bench`: how fast Carom is on this machine."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.bench.cases import NAMES
from carom.bench.run import compare, fit_table, model_table, read_bench, run_bench
from carom.cli.console import WriterCommon, print_json, print_table, progress, require_output
from carom.errors import find_names


def bench(
    *,
    out: Path | None = None,
    against: Path | None = None,
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME …")] = (),
    quick: bool = False,
    common: WriterCommon,
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
    """
    # Before minutes of measuring, not after.
    find_names(only, NAMES, kind="case")
    stored = None if against is None else read_bench(against)
    if out is not None:
        require_output(out, overwrite=common.overwrite)
    with progress("measuring") as report:
        results = run_bench(only, out=out, quick=quick, progress=report)
    ratios, differences = (None, []) if stored is None else compare(results, stored)
    if common.json:
        document = results.header | {"rows": results.rows.select("experiment", "metric", "value").to_dicts()}
        if ratios is not None:
            compared = {"file": str(against), "ratios": ratios.to_dicts(), "differences": differences}
            document["against"] = compared
        print_json(document)
        return
    for title, table in (
        ("Models: training by the paper's recipe and forecasts", model_table(results.rows)),
        ("Fits of the ball from the start of a process, cache warm", fit_table(results.rows)),
    ):
        if table.rows:
            print_table(title, table.header, table.rows)
    if ratios is not None:
        print_table(f"Times better than {against}", ("case", "figure", "ratio"), ratios.rows())
    if differences:
        print(f"The two runs differ in more than time: {'; '.join(differences)}.")
    if out is not None:
        print(f"Every number is in {out}.")
