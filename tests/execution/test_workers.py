"""Tasks over processes: their results in order, their errors, and a worker that dies."""

import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from carom.errors import InputError
from carom.execution.workers import Task, run_tasks


def square(number: int, tell) -> tuple[int, int]:
    tell(0.5)
    return number * number, os.getpid()


def refuse(tell) -> None:
    raise InputError("It cannot be done.")


class StubbornError(Exception):
    """An error that cannot be made from what it is pickled as."""

    def __init__(self, one: int, two: int):
        super().__init__(f"{one} and {two}")


def fail_stubbornly(tell) -> None:
    raise StubbornError(1, 2)


def give_what_cannot_be_sent(tell):
    return lambda: None


def wait_for_ever(path: str, tell) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


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


def test_an_error_that_cannot_be_sent_is_told_all_the_same():
    with pytest.raises(RuntimeError, match="StubbornError: 1 and 2"):
        run_tasks([Task(fail_stubbornly, 1.0), Task(partial(square, 2), 1.0)], workers=2)
    with pytest.raises((RuntimeError, AttributeError, pickle.PicklingError), match="lambda"):
        run_tasks([Task(give_what_cannot_be_sent, 1.0), Task(partial(square, 2), 1.0)], workers=2)


def test_workers_end_with_whoever_started_them(tmp_path):
    task = f"partial(w.wait_for_ever, {str(tmp_path / 'pid')!r})"
    program = (
        "from functools import partial; import tests.execution.test_workers as w; "
        f"w.run_tasks([w.Task({task}, 1.0), w.Task({task}, 1.0)], workers=2)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{worker}/stat").read_text().split(")")[1].split()[0] == "Z":
            return  # ended, and nobody has asked
        time.sleep(0.05)
    pytest.fail("the worker outlived its parent")


def test_nothing_to_do_is_no_error():
    assert run_tasks([], workers=2) == []
