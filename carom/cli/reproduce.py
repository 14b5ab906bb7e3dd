"""`carom reproduce`: every figure and table of the paper and of the documentation."""

import time
from pathlib import Path
from typing import Annotated, Literal

import tyro

from carom.cli.console import Common, print_json, print_table, progress
from carom.errors import require_range, require_seed
from carom.execution.executor import available_cores
from carom.reproduction.paper.experiments import Protocol
from carom.reproduction.subjects import SUBJECTS, Request
from carom.reproduction.subjects import reproduce as run


def reproduce(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    *,
    out: Path = Path("reproduction"),
    data: Path | None = None,
    runs: int = 5,
    first_seed: int | None = None,
    workers: int | None = None,
    protocol: Protocol | Literal["all"] = "all",
    ablations: bool = False,
    quick: bool = False,
    common: Common,
) -> None:
    """Run the paper's experiments or ours again: results, tables and figures.

    Example: carom reproduce paper ball cradle --runs 5 --protocol published

    The first name is the subject: paper (the default: all its figures and tables, beside its numbers), recipe
    (states, contacts and parameters of the same systems estimated together, without touch too), grid (the
    ball over noise, bounces and touch, with the paper's models and the oracle), bodies (many bodies in one to
    three dimensions) or measured (measured recordings). Further names restrict paper, recipe and grid. The
    same command continues a killed run. --seed is added to the first seed.

    Args:
        names: A subject, then experiments by the beginning of their names (pendulum, ball, cradle, …), or
            models of the grid (carom, cd-lagrange, resnet, oracle); all by default. Ablations and what the
            paper claims without numbers have names too: ablation-l2, ablation-damping, claim-inertia, …
        out: Folder for finished work, figures, the page, and the results (paper.json, learning.json, …).
        data: Folder of measured recordings, by default that of the environment variable CAROM_DATA.
        runs: Seeds per model, trained together; of measured recordings, random crops.
        first_seed: The first of them. Reported numbers use 300 (paper) or 0 (others), the defaults; tuning
            uses 100.
        workers: Processes to share the work; as many as there are cores, but at most 16, by default.
        protocol: What the paper's text says, the same on pieces of one run, what the authors' code does, or
            all three.
        ablations: Also run ablations and claims (most under the published protocol alone).
        quick: Two per cent of the training, and few trials of the grid, to see that everything works.
    """
    require_range("--runs", runs, 1, 1000)
    workers = min(16, len(available_cores())) if workers is None else workers
    require_range("--workers", workers, 1, 64)
    name, names = (names[0], names[1:]) if names and names[0] in SUBJECTS else ("paper", names)
    first = SUBJECTS[name].first_seed if first_seed is None else first_seed
    require_seed(first, "--first-seed")
    # Every run has the next seed; the last must still be one.
    require_seed(first + common.seed + runs - 1, "The last seed")
    seeds = range(first + common.seed, first + common.seed + runs)
    request = Request(names, seeds, protocol, ablations, quick, data, workers)
    started = time.monotonic()
    with progress("reproducing") as report:
        results = run(name, request, out, progress=report)
    file = out / SUBJECTS[name].file
    if common.json:
        seconds = time.monotonic() - started
        print_json({"results": str(file), "rows": results.rows.height, "seconds": seconds})
        return
    table = SUBJECTS[name].table(results.rows)
    print_table(table.caption, table.header, table.rows)
    pictures = ", the folder figures the pictures" if SUBJECTS[name].draw is not None else ""
    print(f"Written to {out}: {file.name} has every number{pictures}.")
