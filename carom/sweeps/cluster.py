"""The workers of a dask.distributed cluster: local, of an existing scheduler, or jobs of SLURM."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from carom.errors import InputError
from carom.execution.workers import available_cores
from carom.storage.compilation_cache import configure
from carom.storage.fingerprint import source_hash
from carom.sweeps.cells import Cell
from carom.sweeps.cluster_options import ClusterOptions, Slurm
from carom.sweeps.crew import ONE_THREAD, AbstractCrew, one_thread_each
from carom.sweeps.one_fit import make_row

MOST_LOST = 100
"""Workers that may be lost over one fit: that many are not bad luck, it takes more memory than there is."""
CONNECT_SECONDS = 15


class Cluster(AbstractCrew):
    """The workers that a client reaches; `working_together` connects it."""

    def __init__(self, client: Any):
        self._client = client

    def make(self, cells: Sequence[Cell], out: Path) -> Iterator[str]:
        from distributed import KilledWorker, as_completed

        source = source_hash()
        lost = dict.fromkeys((cell.name for cell in cells), 0)

        def submit(cell: Cell) -> Any:
            # A key of its own for every turn: the scheduler remembers how an earlier one has ended.
            key = f"carom-{cell.fingerprint}-{lost[cell.name]}"
            return self._client.submit(make_on_worker, cell, out, source, key=key, pure=False)

        waiting = {future: cell for cell in cells for future in [submit(cell)]}
        landed = as_completed(list(waiting))
        for future in landed:
            cell = waiting.pop(future)
            try:
                yield future.result()
            except KilledWorker:
                # A scheduler gives a fit up after some workers were lost that had it, whatever they died of.
                lost[cell.name] += 1
                if lost[cell.name] > MOST_LOST:
                    raise InputError(
                        f"{cell.name}: every worker that made this fit was ended from outside, perhaps for "
                        "want of memory; run the same command on a larger machine."
                    ) from None
                again = submit(cell)
                waiting[again] = cell
                landed.add(again)


def make_on_worker(cell: Cell, out: Path, source: str) -> str:
    """What a worker of a cluster does: one fit at a time, in one thread."""
    from distributed import get_worker

    threads = get_worker().state.nthreads
    if threads != 1:
        raise InputError(
            f"A worker of the cluster has {threads} threads, but a fit needs a process of its own; start "
            "workers with --nthreads 1."
        )
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)  # heeded where JAX has not begun yet
    configure()
    return make_row(cell, out, source)


@contextmanager
def working_together(options: ClusterOptions) -> Iterator[Cluster]:
    """Connect to a cluster, and start it where it is not there yet."""
    dask, distributed = _libraries()
    settings = {
        "distributed.scheduler.allowed-failures": MOST_LOST,
        "distributed.scheduler.worker-saturation": 1.0,  # a lost worker takes one fit along, not several
        "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        stack.enter_context(one_thread_each())
        stack.enter_context(_quiet())
        if options.scheduler is not None:
            address: Any = options.scheduler
        elif options.slurm is not None:
            address = stack.enter_context(slurm_cluster(options.slurm))
            # Jobs that end, by their walltime or with their machine, are asked for anew.
            address.adapt(minimum=options.workers, maximum=options.workers)
        else:
            address = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=options.workers or available_cores(),
                    threads_per_worker=1,
                    memory_limit=0,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )
        try:
            client = stack.enter_context(distributed.Client(address, timeout=CONNECT_SECONDS))
        except (OSError, ValueError, ImportError) as error:
            raise InputError(
                f"{options.scheduler}: no scheduler answers there ({type(error).__name__}); start one with "
                "`dask scheduler`, or check the address."
            ) from None
        yield Cluster(client)


def slurm_cluster(slurm: Slurm) -> Any:
    """Jobs of SLURM, none asked for yet."""
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError:
        raise InputError(
            "SLURM needs the package dask-jobqueue; install it with: pip install 'carom[slurm]'."
        ) from None
    exports = [f"export {name}={value}" for name, value in ONE_THREAD.items()]
    return SLURMCluster(
        queue=slurm.queue,
        account=slurm.account,
        cores=slurm.per_job,
        processes=slurm.per_job,
        memory=_times(slurm.memory, slurm.per_job),
        walltime=slurm.walltime,
        job_extra_directives=list(slurm.directives),
        job_script_prologue=[*exports, *slurm.prologue],
        scheduler_options={"dashboard_address": ":0"},
    )


def _times(memory: str, count: int) -> str:
    from dask.utils import parse_bytes

    try:
        return f"{count * parse_bytes(memory)}B"
    except ValueError:
        raise InputError(f"[cluster.slurm], memory: write a size such as 2GB, not {memory}.") from None


def _libraries() -> tuple[Any, Any]:
    try:
        import dask
        import distributed
    except ImportError:
        raise InputError(
            "A cluster needs the package distributed; install it with: pip install 'carom[cluster]', or make "
            "the fits one by one with --serial."
        ) from None
    return dask, distributed


@contextmanager
def _quiet() -> Iterator[None]:
    """Lost workers are the sweep's business, and no page of tracebacks."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
