"""Tasks side by side: what runs them, in this process or in worker processes, and their stored results.

A small training keeps one core busy and a second one hardly at all, so two processes on a core each do nearly
twice the work of one on both; on a GPU several processes fill the gaps between each other's kernels.

`concurrent.futures` and loky are not used: there the death of one worker breaks the whole pool, and the tasks
of all others with it.
"""

import hashlib
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax

import carom
from carom.errors import InputError
from carom.storage.atomic import make_folder, write_whole
from carom.storage.input_file import complaint, require_file, shown
from carom.storage.program_cache import cache_folder, configure

ProgressCallback = Callable[[float], None]
"""Called with the fraction of the work done."""
Function = Callable[[ProgressCallback], Any]
Report = Callable[[int, float], None]
"""Called with the index of a function and the fraction of its work done."""
Results = Iterator[tuple[int, Any]]
"""The index and the result of every function."""

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
    def run(self, functions: Sequence[Function], report: Report) -> Results:
        """Yield the index and the result of every function as it ends, the first functions started first.

        An exception of a function is raised here. Closing the iterator cancels what is still running. A
        function whose worker dies is run again by another worker.

        Arguments:
            functions: what to run.
            report: called where the workers can tell how far they are.
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

    def run(self, functions: Sequence[Function], report: Report) -> Results:
        for index, function in enumerate(functions):
            yield index, function(lambda fraction, index=index: report(index, fraction))

    def close(self) -> None:
        pass


def available_cores() -> list[int]:
    """The processor cores that this process may use."""
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


MAXIMUM_LOSSES = 3
"""Workers that may die over one function. More are no accident: it needs more memory than there is."""


class _Worker(NamedTuple):
    slot: int
    process: Any
    connection: Connection


class LocalExecutor(AbstractExecutor):
    """Worker processes on this machine.

    Arguments:
        workers: how many.
        single_threaded: compute by one thread in each process, so that results do not depend on the number of
            cores and workers.

    Example:
        >>> with LocalExecutor(2) as executor:  # doctest: +SKIP
        ...     for index, result in executor.run(functions, report=lambda index, fraction: None):
        ...         print(index, result)
    """

    def __init__(self, workers: int, *, single_threaded: bool = False):
        self._single_threaded = single_threaded
        self._free = list(range(workers))
        self._workers = workers
        self._idle: list[_Worker] = []
        self._alive: dict[int, _Worker] = {}

    def run(self, functions: Sequence[Function], report: Report) -> Results:
        # The first functions first: `run_tasks` puts the heaviest there.
        waiting = deque(range(len(functions)))
        busy: dict[Connection, tuple[_Worker, int]] = {}
        losses: Counter[int] = Counter()
        try:
            while waiting or busy:
                while waiting and (self._idle or self._free):
                    worker = self._idle.pop() if self._idle else self._start(self._free.pop())
                    index = waiting.popleft()
                    busy[worker.connection] = worker, index
                    with suppress(ConnectionError):  # dead: found out below, as for any other
                        worker.connection.send(functions[index])
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    worker, index = busy[connection]
                    content: Any = None
                    try:
                        kind, content = connection.recv()
                    except (EOFError, ConnectionError):
                        kind = "lost"
                    if kind == "progress":
                        report(index, content)
                        continue
                    del busy[connection]
                    if kind == "lost":
                        self._end(worker)
                        losses[index] += 1
                        if losses[index] > MAXIMUM_LOSSES:
                            problem = "worker processes were killed over the same task, probably for lack"
                            remedy = "the same command continues, with fewer --workers if necessary"
                            raise InputError(f"{losses[index]} {problem} of memory; {remedy}.")
                        waiting.appendleft(index)
                        continue
                    self._idle.append(worker)
                    if kind == "error":
                        raise content
                    yield index, content
        finally:
            for worker, _ in busy.values():
                self._end(worker)

    def close(self) -> None:
        self._idle.clear()
        for worker in list(self._alive.values()):
            self._end(worker)

    def _start(self, slot: int) -> _Worker:
        # A fork would copy JAX's threads in an unknown state.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        cores = available_cores()[slot :: self._workers] or available_cores()
        process = context.Process(target=_work, args=(theirs, cores, cache_folder()), daemon=True)
        variables = SHARED_GPU | (SINGLE_THREAD if self._single_threaded else {})
        # By inheritance: a worker reads them while it imports, before it could be told anything.
        with patch.dict(os.environ, variables), _without_interruption():
            process.start()
        theirs.close()
        self._alive[slot] = _Worker(slot, process, ours)
        return self._alive[slot]

    def _end(self, worker: _Worker) -> None:
        # An interrupted iterator may be closed after the executor, and end its workers a second time.
        if self._alive.get(worker.slot) is worker:
            del self._alive[worker.slot]
            worker.process.terminate()
            worker.process.join()
            worker.connection.close()
            self._free.append(worker.slot)


@contextmanager
def _without_interruption() -> Iterator[None]:
    """Have processes started inside the block ignore Ctrl-C, which the one that started them handles."""
    if sys.platform == "win32":
        yield
        return
    # The mask is inherited, so that not even Python's start can be interrupted.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, cores: Sequence[int], cache: Path | None) -> None:
    """The main function of a worker process, which ends when the connection does."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if sys.platform == "linux":
        # Before JAX counts the cores, so that it starts no more threads than can run.
        os.sched_setaffinity(0, cores)
    configure(cache=cache or False)
    try:
        while True:
            function = connection.recv()
            try:
                result = function(lambda fraction: connection.send(("progress", fraction)))
                connection.send(("result", result))
            except ConnectionError:
                raise
            except Exception as error:  # that a result cannot be pickled is one, too
                connection.send(("error", _picklable(error)))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


def _exit_with_parent() -> None:
    # A task whose result nobody awaits must not continue beside the command that repeats it.
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _picklable(error: Exception) -> Exception:
    """The error itself if it can be sent to another process, else one with its traceback as text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("A worker failed:\n" + "".join(traceback.format_exception(error)))
    return error


Result = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A function call whose result may be stored.

    Arguments:
        function: called with `arguments` and a `ProgressCallback`; a module's function, so that other
            processes find it.
        arguments: its positional arguments.
        weight: amount of work relative to the other tasks.
        path: the file that stores the result, a JSON object; None to store nothing.
        fingerprint: changes with everything that the result depends on.
        others: further files that the function writes; where one is missing the result is made again.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    weight: int | float = 1
    path: Path | None = None
    fingerprint: str = ""
    others: tuple[Path, ...] = ()


def run_tasks(
    tasks: Sequence[Task],
    *,
    executor: AbstractExecutor | None = None,
    progress: ProgressCallback = lambda fraction: None,
) -> list[Any]:
    """Return the results of all tasks in their order; stored results are not computed again.

    Arguments:
        tasks: the heaviest are started first.
        executor: what runs them, by default this process; it is not closed.
        progress: called with the fraction of all work that is done, of what was not stored.
    """
    results = [stored_result(task) for task in tasks]
    missing = [index for index, result in enumerate(results) if result is None]
    # Else a heavy task that starts last would keep one worker busy alone.
    missing.sort(key=lambda index: -tasks[index].weight)
    total = sum(tasks[index].weight for index in missing)
    fractions = dict.fromkeys(missing, 0.0)

    def report(number: int, fraction: float) -> None:
        fractions[missing[number]] = fraction
        progress(sum(done * tasks[index].weight for index, done in fractions.items()) / total)

    functions = [partial(_execute, tasks[index]) for index in missing]
    for number, result in (executor or SerialExecutor()).run(functions, report):
        results[missing[number]] = result
        report(number, 1.0)
    return results


def local_executor(workers: int, tasks: int) -> AbstractExecutor:
    """Processes of this machine, no more than there are tasks; with one worker, this process."""
    # A process of its own would only have to import and compile everything again.
    return SerialExecutor() if workers == 1 else LocalExecutor(max(1, min(workers, tasks)))


def stored_result(task: Task) -> Result | None:
    """The result of an earlier run, if there is one and nothing that it depends on has changed."""
    if task.path is None or not all(path.exists() for path in (task.path, *task.others)):
        return None
    result = read_result(task.path)
    return result if result.get("fingerprint") == task.fingerprint else None


def checkpoint_directory(path: Path) -> Path:
    """Where a task whose result belongs to `path` may keep checkpoints; removed with the result's arrival."""
    return path.with_suffix(".unfinished")


def _execute(task: Task, progress: ProgressCallback) -> Any:
    if task.path is None:
        return task.function(*task.arguments, progress)
    # A worker that was given up for lost may have finished the task all the same.
    if (stored := stored_result(task)) is not None:
        return stored
    versions, device = {"carom": carom.__version__, "jax": jax.__version__}, jax.devices()[0].device_kind
    result = {"versions": versions, "device": device, "fingerprint": task.fingerprint}
    result |= task.function(*task.arguments, progress)
    # Before the checkpoints go: a process killed in between repeats nothing.
    write_result(task.path, result)
    shutil.rmtree(checkpoint_directory(task.path), ignore_errors=True)
    return result


MAXIMUM_BYTES = 2**25
"""The largest file of results."""
_CHECK = "sha256"


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON with its own hash; missing folders are created."""
    make_folder(path.parent)
    write_whole(path, json.dumps(dict(result) | {_CHECK: _hash(result)}, indent=1) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """What `write_result` wrote."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="result")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(result, dict) or result.pop(_CHECK, None) != _hash(result):
            raise ValueError("its contents have changed since it was written")
        return result
    except (OSError, ValueError, RecursionError) as error:
        problem = f"the file cannot be read ({shown(error)}); delete it and run the same command again"
        raise complaint(path, problem) from error


def _hash(result: Mapping[str, Any]) -> str:
    # Keys and numbers as JSON has them, so that the hash after reading equals that before writing.
    return hashlib.sha256(json.dumps(json.loads(json.dumps(result)), sort_keys=True).encode()).hexdigest()
