"""Independent tasks shared out over processes, each on processor cores of its own.

One small training keeps one core busy and a second one hardly at all, so two processes on a core each do
nearly twice the work of one on both; on a GPU several processes fill the gaps between each other's kernels.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from carom.errors import InputError
from carom.storage.compilation_cache import cache_folder, configure

Tell = Callable[[float], None]


class Task(NamedTuple):
    """A function that takes a progress callback, and how much work it is beside the others."""

    function: Callable[[Tell], Any]
    cost: float


class _Worker(NamedTuple):
    process: Any
    connection: Connection


def available_cores() -> int:
    """Processor cores that this process may use."""
    return len(_cores())


def run_tasks(tasks: Sequence[Task], *, workers: int, progress: Tell | None = None) -> list[Any]:
    """The results of all tasks in their order, the costly ones begun first.

    Arguments:
        tasks: their functions and results must be picklable where there is more than one worker.
        workers: processes; with one, the tasks run in this process.
        progress: called with the share of all work that is done.
    """
    total = sum(task.cost for task in tasks) or 1.0
    shares = [0.0] * len(tasks)

    def tell(index: int, share: float) -> None:
        shares[index] = share
        if progress is not None:
            progress(sum(share * task.cost for share, task in zip(shares, tasks, strict=True)) / total)

    order = sorted(range(len(tasks)), key=lambda index: -tasks[index].cost)
    results: list[Any] = [None] * len(tasks)
    finished = _in_this_process if workers == 1 else _in_processes
    for index, result in finished(tasks, order, max(1, min(workers, len(tasks))), tell):
        results[index] = result
        tell(index, 1.0)
    return results


def _in_this_process(
    tasks: Sequence[Task], order: Sequence[int], workers: int, tell: Callable[[int, float], None]
) -> Iterator[tuple[int, Any]]:
    for index in order:
        yield index, tasks[index].function(lambda share, index=index: tell(index, share))


def _in_processes(
    tasks: Sequence[Task], order: Sequence[int], workers: int, tell: Callable[[int, float], None]
) -> Iterator[tuple[int, Any]]:
    # Otherwise the first process would take most of a GPU's memory for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # A fork would copy JAX's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    waiting = list(order)
    busy: dict[Connection, tuple[_Worker, int]] = {}
    started: list[_Worker] = []

    def give(worker: _Worker) -> None:
        if waiting:
            index = waiting.pop(0)
            worker.connection.send(tasks[index].function)
            busy[worker.connection] = worker, index
        else:
            worker.connection.send(None)

    try:
        for number in range(workers):
            ours, theirs = context.Pipe()
            cores = _cores()[number::workers] or _cores()
            process = context.Process(target=_work, args=(theirs, cores, cache_folder()), daemon=True)
            with _deaf_to_interruption():
                process.start()
            theirs.close()
            started.append(_Worker(process, ours))
            give(started[-1])
        while busy:
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker, index = busy[connection]
                try:
                    kind, content = connection.recv()
                except (EOFError, ConnectionError):
                    raise InputError(
                        "A worker process was ended from outside, perhaps for want of memory; the same "
                        "command continues what is left, with fewer --workers if need be."
                    ) from None
                if kind == "share":
                    tell(index, content)
                    continue
                del busy[connection]
                if kind == "error":
                    raise content
                yield index, content
                give(worker)
    finally:
        for worker in started:
            worker.process.terminate()
            worker.process.join()


@contextmanager
def _deaf_to_interruption() -> Iterator[None]:
    """Have processes that start inside never hear of Ctrl-C: who started them ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, cores: Sequence[int], cache: Path | None) -> None:
    """The life of a worker: until it is told to stop, or whoever started it is gone."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        # Before JAX counts the cores, so that it starts no more threads than can run.
        os.sched_setaffinity(0, cores)
    configure(cache=cache or False)
    try:
        while (function := connection.recv()) is not None:
            try:
                answer = "result", function(lambda share: connection.send(("share", share)))
            except ConnectionError:
                raise
            except Exception as error:
                answer = "error", _sendable(error)
            try:
                connection.send(answer)
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                connection.send(("error", _sendable(error)))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return


def end_with_parent() -> None:
    """A task whose result nobody waits for must not go on beside the command that does it again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The error itself where it survives the way to another process, else one that tells of it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("A worker failed:\n" + "".join(traceback.format_exception(error)))
    return error


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
