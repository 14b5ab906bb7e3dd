"""Tasks with weights, progress and stored results, so that an interrupted run continues."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

import carom
from carom.execution.executor import AbstractExecutor, LocalExecutor, ProgressCallback, SerialExecutor
from carom.storage.result_file import read_result, write_result

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
    result = {
        "versions": {"carom": carom.__version__, "jax": jax.__version__},
        "device": jax.devices()[0].device_kind,
        "fingerprint": task.fingerprint,
        **task.function(*task.arguments, progress),
    }
    # Before the checkpoints go: a process killed in between repeats nothing.
    write_result(task.path, result)
    shutil.rmtree(checkpoint_directory(task.path), ignore_errors=True)
    return result
