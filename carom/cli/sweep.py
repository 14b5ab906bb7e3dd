"""`carom sweep`: many fits, here or on a cluster."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.output import print_json, print_table, progress
from carom.errors import InputError, require_range, require_seed
from carom.sweeps.cluster import working_together
from carom.sweeps.cluster_options import MOST_WORKERS
from carom.sweeps.crew import working_alone
from carom.sweeps.run import Outcome, swept
from carom.sweeps.sweep_file import read_sweep_file
from carom.sweeps.table import TABLE, columns, write_tables

SHOWN = 10


def sweep(
    file: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    serial: bool = False,
    workers: int | None = None,
    again: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Make many fits, a grid or a study by Optuna, on a cluster, and write their table.

    Example: carom sweep sweep.toml --out runs/sweep

    The sweep file says which recordings are fitted, which options of `carom fit` are fixed and which vary,
    from which seeds, and where: by workers on this machine, of an existing scheduler of dask.distributed, or
    by SLURM. Fits are scored by their forecasts of what was held out.

    What is done is kept as it goes: a worker that is lost costs the round that it was at, and the same
    command continues a killed one. The table does not depend on who made which fit, nor on which ended first.

    Args:
        file: The sweep file: .toml.
        out: The folder of the sweep: table.csv, results.json, and a run folder for every fit. Where workers
            are on other machines, these must see it too.
        serial: Make the fits one by one, without a cluster.
        workers: Worker processes, instead of those that the sweep file asks for.
        again: Make those fits again that failed; those whose forecast left all bounds are scored again.
        seed: Added to the seeds of the sweep file, those of fits and that of a study's sampler.
        json: Print one JSON object instead of a table.
    """
    require_seed(seed)
    told = read_sweep_file(file).reseeded(seed)
    if workers is not None:
        require_range("--workers", workers, 1, MOST_WORKERS)
        if serial or told.cluster.scheduler is not None:
            why = "--serial has one" if serial else "the scheduler that the sweep file names has its own"
            raise InputError(f"--workers: {why}; leave this out.")
    cluster = replace(told.cluster, workers=workers or told.cluster.workers)
    out = out.resolve()
    with progress("sweep") as tell:
        hire = working_alone if serial else lambda: working_together(cluster)
        with swept(told, out, hire, again=again, tell=_counted(tell)) as outcome:
            write_tables(outcome, out)
    _show(outcome, out, file, json=json)


def _counted(tell: Callable[[float], None]) -> Callable[[int, int], None]:
    """Progress in fits; how many were there already is said once."""
    begun = False

    def told(done: int, total: int) -> None:
        nonlocal begun
        if not begun and done:
            print(f"sweep: {done} of {total} fits are there already", file=sys.stderr)
        begun = True
        tell(done / total)

    return told


def _show(outcome: Outcome, out: Path, file: Path, *, json: bool) -> None:
    best = outcome.best
    if json:
        first = None if not best else {"run": best[0].row["run"], "error": best[0].row["error"]}
        fits = len(outcome.lines)
        counts = {"fits": fits, "made": outcome.made, "without_score": fits - len(best)}
        trial = outcome.best_trial
        found = {"best": first, "best_trial": None if trial is None else vars(trial)}
        print_json({"out": str(out), "table": str(out / TABLE), **counts, **found})
        return
    if best:
        names = list(dict.fromkeys(name for line in best for name in columns(line)))
        print_table(
            f"{file}: {len(outcome.lines)} fits, the best by what was held out",
            (*names, "error"),
            [(*(columns(line).get(name, "") for name in names), line.row["error"]) for line in best[:SHOWN]],
        )
    if outcome.failed:
        print(f"{outcome.failed} of {len(outcome.lines)} fits failed; the table says why.")
    trial = outcome.best_trial
    if trial is not None:
        chosen = ", ".join(f"{name} {value}" for name, value in trial.varied.items())
        print(f"The best trial, by the mean of its fits, is {trial.number}: {chosen}.")
    look = f" Look at the best with: carom report {out / best[0].row['run']}" if best else ""
    print(f"Written to {out / TABLE}.{look}")
