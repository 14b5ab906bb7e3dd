"""A dask.distributed cluster as executor: that of an existing scheduler, or jobs of SLURM."""

import logging
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Annotated, Any
from unittest.mock import patch

from pydantic import AfterValidator, Field, model_validator

from carom.data.io.toml_file import Name, Names, TomlTable, Whole
from carom.errors import InputError
from carom.execution.executor import SHARED_GPU, SINGLE_THREAD, AbstractExecutor, Function, Report, Results
from carom.storage.fingerprint import source_hash

MAXIMUM_WORKERS = 10_000
MAXIMUM_LOSSES = 100
"""Workers that may be lost over one function. Jobs end at their walltime, so that many losses are normal."""
CONNECT_SECONDS = 15
ENVIRONMENT = SHARED_GPU | SINGLE_THREAD


def _address(value: str) -> str:
    # Dask would try any text as a host name, and wait.
    if "://" not in value:
        raise ValueError(f'write an address such as "tcp://node1:8786", not "{value}"')
    return value


class Slurm(TomlTable):
    """`[cluster.slurm]`: the jobs to submit."""

    queue: Name | None = None
    """as for sbatch; left out: the site's default"""
    account: Name | None = None
    """as for sbatch; left out: the site's default"""
    memory: Name = "2GB"
    """of one worker"""
    walltime: Name = "01:00:00"
    """of a job; the next one continues"""
    per_job: Whole = Field(default=1, ge=1, le=1000)
    """workers in one job, each on one core"""
    directives: Names = ()
    """more lines for the head of the job script"""
    prologue: Names = ()
    """shell commands before the workers start"""


class ClusterSettings(TomlTable):
    """`[cluster]`: where tasks run; by default on processes of this machine."""

    workers: Whole | None = Field(default=None, ge=1, le=MAXIMUM_WORKERS)
    """processes; left out: one on every core"""
    scheduler: Annotated[Name, AfterValidator(_address)] | None = None
    """address of a running scheduler"""
    slurm: Slurm | None = None

    @model_validator(mode="after")
    def _require_consistent(self):
        if self.scheduler is not None and (self.workers is not None or self.slurm is not None):
            raise ValueError("an existing scheduler has workers of its own; leave out the rest")
        if self.slurm is not None and self.workers is None:
            raise ValueError("the key workers is missing; state how many workers SLURM is to start")
        return self


class DaskExecutor(AbstractExecutor):
    """The workers of an existing scheduler or of SLURM jobs; connects with the first function.

    Arguments:
        settings: which cluster.
    """

    def __init__(self, settings: ClusterSettings):
        self._settings = settings
        self._stack = ExitStack()
        self._client: Any = None

    def run(self, functions: Sequence[Function], report: Report) -> Results:
        if self._client is None:
            self._client = self._connect()
        from distributed import KilledWorker, as_completed

        # Counted by us as well: the scheduler forgets a task that is submitted anew.
        losses: Counter[int] = Counter()

        def submit(index: int) -> Any:
            # Never pure: the scheduler would remember how the same call has ended before.
            return self._client.submit(run_on_worker, functions[index], source_hash(), pure=False)

        running = {submit(index): index for index in range(len(functions))}
        completed = as_completed(list(running))
        try:
            for future in completed:
                index = running.pop(future)
                try:
                    yield index, future.result()
                except KilledWorker:
                    # A scheduler gives a task up after some of its workers were lost, for whatever reason.
                    losses[index] += 1
                    if losses[index] > MAXIMUM_LOSSES:
                        raise InputError(
                            f"{losses[index]} workers were killed over the same task, probably for lack of "
                            "memory; run the same command on a larger machine."
                        ) from None
                    again = submit(index)
                    running[again] = index
                    completed.add(again)
        finally:
            self._client.cancel(list(running))

    def close(self) -> None:
        self._stack.close()
        self._client = None

    def _connect(self) -> Any:
        distributed = optional_module("distributed", purpose="A cluster", extra="cluster")
        dask = import_module("dask")  # which distributed brings
        settings = {
            "distributed.scheduler.allowed-failures": MAXIMUM_LOSSES,
            # A lost worker loses one task, not several that wait for it.
            "distributed.scheduler.worker-saturation": 1.0,
            "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
        }
        enter = self._stack.enter_context
        enter(dask.config.set(settings))
        enter(patch.dict(os.environ, ENVIRONMENT))
        # Lost workers are expected here, and no reason for pages of tracebacks.
        logger = logging.getLogger("distributed")
        self._stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        address: Any = self._settings.scheduler
        if self._settings.slurm is not None:
            address = enter(slurm_cluster(self._settings.slurm))
            # Jobs that end, by their walltime or with their machine, are submitted anew.
            address.adapt(minimum=self._settings.workers, maximum=self._settings.workers)
        try:
            return enter(distributed.Client(address, timeout=CONNECT_SECONDS))
        except (OSError, ValueError, ImportError) as error:
            raise InputError(
                f"{address}: no scheduler answers there ({type(error).__name__}); start one with `dask "
                "scheduler`, or check the address."
            ) from None


def run_on_worker(function: Function, source: str) -> Any:
    """Run a function in a worker of a cluster, which must be as ours are: one thread, the same code."""
    from distributed import get_worker

    threads = get_worker().state.nthreads
    if threads != 1:
        raise InputError(
            f"A worker of the cluster has {threads} threads, but a task needs a process of its own; start "
            "workers with --nthreads 1."
        )
    if source != source_hash():
        raise InputError("A worker has another version of Carom; install the same one on all machines.")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # has an effect where JAX has not started yet
    return function(lambda fraction: None)


def slurm_cluster(slurm: Slurm) -> Any:
    """The cluster of SLURM jobs, none submitted yet."""
    jobqueue = optional_module("dask_jobqueue.slurm", purpose="SLURM", extra="slurm")
    try:
        memory = f"{slurm.per_job * import_module('dask.utils').parse_bytes(slurm.memory)}B"
    except ValueError:
        raise InputError(f"[cluster.slurm], memory: write a size such as 2GB, not {slurm.memory}.") from None
    return jobqueue.SLURMCluster(
        queue=slurm.queue,
        account=slurm.account,
        cores=slurm.per_job,
        processes=slurm.per_job,
        memory=memory,
        walltime=slurm.walltime,
        job_extra_directives=list(slurm.directives),
        job_script_prologue=[*(f"export {n}={v}" for n, v in ENVIRONMENT.items()), *slurm.prologue],
        # Any free port: two sweeps on one login node must not compete for one.
        scheduler_options={"dashboard_address": ":0"},
    )


def optional_module(name: str, *, purpose: str, extra: str) -> Any:
    """A module of a package that not everybody has installed.

    Arguments:
        name: of the module.
        purpose: what needs it, at the beginning of a sentence.
        extra: the extra of Carom that installs it.
    """
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0].replace("_", "-")
        raise InputError(
            f"{purpose} needs the package {package}; install it with: pip install 'carom[{extra}]'."
        ) from None
