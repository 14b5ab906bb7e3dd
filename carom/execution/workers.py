"""Former names, until every caller is on `carom.execution.tasks`."""

from collections.abc import Callable
from typing import Any

from carom.execution.executor import ProgressCallback, available_cores
from carom.execution.tasks import Task as _Task
from carom.execution.tasks import run_tasks

Tell = ProgressCallback


def Task(function: Callable[[Tell], Any], cost: float) -> _Task:  # noqa: N802
    """A task with its former arguments."""
    return _Task(function, weight=cost)


__all__ = ["Task", "Tell", "available_cores", "run_tasks"]
