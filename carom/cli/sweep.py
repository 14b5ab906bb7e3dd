"""`carom sweep`: many fits, here or on a cluster."""

from pathlib import Path
from typing import Annotated, Any

import tyro

from carom.cli.console import Common, print_json, print_table, progress
from carom.errors import InputError, require_range
from carom.execution.cluster import MAXIMUM_WORKERS, DaskExecutor
from carom.execution.executor import LocalExecutor, available_cores
from carom.sweeps.run import TABLE, SweepResult, run_sweep
from carom.sweeps.sweep_file import read_sweep_file

SHOWN = 10


def sweep(
    file: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    serial: bool = False,
    workers: int | None = None,
    again: bool = False,
    common: Common,
) -> None:
    """Make many fits side by side, a grid of options, and write their table.

    Example: carom sweep sweep.toml --out fits/sweep

    The sweep file states which recordings are fitted, which options of `carom fit` are fixed and which vary,
    the seeds, to which --seed is added, and where the fits are made: by processes on this machine, by the
    workers of a scheduler of dask.distributed, or by SLURM. Fits are scored by their forecasts of held-out
    data.

    Finished fits are stored: a worker that is lost is replaced and costs only the iteration it was at, and
    the same command continues after it was killed. The table does not depend on which worker made which fit,
    nor on which fit ended first.

    Args:
        file: The sweep file: .toml.
        out: The directory of the sweep: table.csv, results.json, and a fit directory for every fit. Workers
            on other machines must see it too.
        serial: Make the fits one after the other on this machine.
        workers: Worker processes, instead of the number in the sweep file.
        again: Repeat fits that failed; those whose forecast diverged are scored again.
    """
    content = read_sweep_file(file).reseeded(common.seed)
    cluster = content.cluster
    if workers is not None:
        require_range("--workers", workers, 1, MAXIMUM_WORKERS)
        # Silently ignoring an option is worse than a sentence.
        if serial or cluster.scheduler is not None:
            reason = "--serial has one worker" if serial else "the scheduler in the sweep file has its own"
            raise InputError(f"--workers: {reason}; leave this out.")
        cluster = cluster.model_copy(update={"workers": workers})
    # One thread per process even when serial: sums over threads differ in their last bits.
    if serial or (cluster.scheduler is None and cluster.slurm is None):
        count = 1 if serial else cluster.workers or len(available_cores())
        executor = LocalExecutor(count, single_threaded=True)
    else:
        executor = DaskExecutor(cluster)
    with executor, progress("sweep") as report:
        result = run_sweep(content, out.resolve(), executor, again=again, progress=report)
    _show(result, out.resolve(), file, json=common.json)


def _show(result: SweepResult, out: Path, file: Path, *, json: bool) -> None:
    best, count = result.best, len(result.fits)
    if json:
        found: dict[str, Any] = {"fits": count, "made": result.made, "without_score": count - len(best)}
        found["best"] = {"run": best[0]["run"], "error": best[0]["error"]} if best else None
        return print_json({"out": str(out), "table": str(out / TABLE), **found})
    if best:
        names = list(dict.fromkeys(name for fit in best for name in fit["varied"]))
        title = f"{file}: {count} fits, {count - result.made} of them stored before; least held-out errors"
        rows = [(*(fit["varied"].get(name, "") for name in names), fit["error"]) for fit in best[:SHOWN]]
        print_table(title, (*names, "error"), rows)
    if result.failed:
        print(f"{result.failed} of {count} fits failed; the table states the reasons.")
    look = f" Look at the best with: carom report {out / best[0]['run']}" if best else ""
    print(f"Written to {out / TABLE}.{look}")
