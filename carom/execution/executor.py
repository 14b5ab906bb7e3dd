"""What runs functions side by side: the interface, and the simplest case, this process."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

ProgressCallback = Callable[[float], None]
"""Called with the fraction of the work done."""
Function = Callable[[ProgressCallback], Any]

SINGLE_THREAD = {
    "NPROC": "1",  # number of threads of XLA
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Environment in which results do not depend on the number of cores: a sum over several threads is rounded in
another order."""
SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Otherwise the first of several processes would reserve most of a GPU's memory for itself."""


class AbstractExecutor(ABC):
    """Runs functions, by workers that start with the first of them and end with the `with` block.

    A function is called with a `ProgressCallback`. Unless it runs in this process, it must be picklable, and
    so must its result.
    """

    @abstractmethod
    def run(
        self, functions: Sequence[Function], report: Callable[[int, float], None]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the index and the result of every function as it ends, the first functions started first.

        An exception of a function is raised here. Closing the iterator cancels what is still running. A
        function whose worker dies is run again by another worker.

        Arguments:
            functions: what to run.
            report: called with the index of a function and the fraction of its work done, where the workers
                can tell.
        """

    @abstractmethod
    def close(self) -> None:
        """End the workers."""

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SerialExecutor(AbstractExecutor):
    """Runs one function after the other in this process."""

    def run(
        self, functions: Sequence[Function], report: Callable[[int, float], None]
    ) -> Iterator[tuple[int, Any]]:
        for index, function in enumerate(functions):
            yield index, function(lambda fraction, index=index: report(index, fraction))

    def close(self) -> None:
        pass


def core_numbers() -> list[int]:
    """The processor cores that this process may use."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def available_cores() -> int:
    """How many processor cores this process may use."""
    return len(core_numbers())


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables, for processes started inside the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
