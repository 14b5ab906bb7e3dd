"""Tasks over processes: their results in order, their errors, and a worker that dies."""

import os
import signal
from functools import partial

import pytest

from carom.errors import InputError
from carom.experiments.workers import Task, run_tasks


def square(number: int, tell) -> tuple[int, int]:
    tell(0.5)
    return number * number, os.getpid()


def refuse(tell) -> None:
    raise InputError("It cannot be done.")


def die(tell) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_whatever_the_costs(workers):
    shares = []
    tasks = [Task(partial(square, number), cost) for number, cost in ((1, 2.0), (2, 5.0), (3, 3.0))]
    results = run_tasks(tasks, workers=workers, progress=shares.append)
    assert [value for value, _ in results] == [1, 4, 9]
    assert (os.getpid() in {process for _, process in results}) == (workers == 1)
    assert shares[-1] == pytest.approx(1.0)
    assert shares == sorted(shares)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_reaches_the_caller(workers):
    with pytest.raises(InputError, match="cannot be done"):
        run_tasks([Task(refuse, 1.0), Task(partial(square, 2), 1.0)], workers=workers)


def test_a_killed_worker_is_told_in_a_sentence():
    with pytest.raises(InputError, match="ended from outside"):
        run_tasks([Task(die, 1.0), Task(partial(square, 2), 1.0)], workers=2)


def test_nothing_to_do_is_no_error():
    assert run_tasks([], workers=2) == []
