"""Who makes the fits of a sweep: here a process that makes one after the other."""

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from carom.errors import InputError
from carom.execution.workers import end_with_parent
from carom.storage.compilation_cache import cache_folder, configure
from carom.storage.fingerprint import source_hash
from carom.sweeps.cells import Cell
from carom.sweeps.one_fit import make_row

ONE_THREAD = {
    "NPROC": "1",  # how many threads XLA takes
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # Otherwise the first process would take most of a GPU's memory for itself.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
"""The environment of a process that makes fits: sums over several threads may round otherwise, so that all
processes have one, whoever makes the fit."""


class AbstractCrew(ABC):
    """Makes fits."""

    @abstractmethod
    def make(self, cells: Sequence[Cell], out: Path) -> Iterator[str]:
        """Make fits, and give the name of each as soon as its row is on disk, in whatever order."""


class Alone(AbstractCrew):
    """One process that makes one fit after the other; `working_alone` starts it."""

    def __init__(self, pool: ProcessPoolExecutor):
        self._pool = pool

    def make(self, cells: Sequence[Cell], out: Path) -> Iterator[str]:
        waiting = [self._pool.submit(make_row, cell, out, source_hash()) for cell in cells]
        try:
            for future in as_completed(waiting):
                yield future.result()
        except BrokenProcessPool:
            raise InputError(
                "The process that makes the fits was ended from outside, perhaps for want of memory; the "
                "same command continues what is left."
            ) from None


@contextmanager
def working_alone() -> Iterator[Alone]:
    """A process for a serial sweep."""
    # A fork would copy JAX's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(cache_folder(),))
    with one_thread_each():
        try:
            yield Alone(pool)
        except BaseException:
            # The fit under way is not waited for: it ends with this process, or in peace.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Have processes that start inside begin with one thread for computations."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin(cache: Path | None) -> None:
    configure(cache=cache or False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process ends it
    threading.Thread(target=end_with_parent, daemon=True).start()
