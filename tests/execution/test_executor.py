"""Tasks on processes: results in order, errors, workers that die, and stored results."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carom.errors import InputError
from carom.execution.executor import (
    LocalExecutor,
    Task,
    available_cores,
    checkpoint_directory,
    local_executor,
    run_tasks,
    write_result,
)

ROOT = Path(__file__).parents[2]


def square(number: int, progress) -> tuple[int, int]:
    progress(0.5)
    return number * number, os.getpid()


def refuse(progress) -> None:
    raise InputError("It cannot be done.")


class UnpicklableError(Exception):
    """An error that cannot be rebuilt from its pickle."""

    def __init__(self, one: int, two: int):
        super().__init__(f"{one} and {two}")


def raise_unpicklable(progress) -> None:
    raise UnpicklableError(1, 2)


def return_unpicklable(progress):
    return lambda: None


def sleep(path: str, progress) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def die_once(path: str, progress) -> str:
    """Kill the process that runs this, unless another has died here before."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def die(progress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cores(progress) -> list[int]:
    time.sleep(0.5)  # so that one worker cannot take both tasks
    return sorted(os.sched_getaffinity(0))


def run_in(workers: int, tasks: list[Task], **options):
    with local_executor(workers, len(tasks)) as executor:
        return run_tasks(tasks, executor=executor, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_tasks(workers):
    reported = []
    tasks = [Task(square, (number,), weight) for number, weight in ((1, 2.0), (2, 5.0), (3, 3.0))]
    results = run_in(workers, tasks, progress=reported.append)
    assert [value for value, _ in results] == [1, 4, 9]
    assert (os.getpid() in {process for _, process in results}) == (workers == 1)
    assert reported[-1] == pytest.approx(1.0)
    assert reported == sorted(reported)
    assert run_in(workers, []) == []


@pytest.fixture(scope="module")
def two_workers():
    """Shared by tests after which workers go on: each takes a second to start."""
    with LocalExecutor(2) as executor:
        yield executor


def test_errors_reach_the_caller(two_workers):
    with pytest.raises(InputError, match="cannot be done"):
        run_in(1, [Task(refuse), Task(square, (2,))])
    with pytest.raises(InputError, match="cannot be done"):
        run_tasks([Task(refuse), Task(square, (2,))], executor=two_workers)


def test_unpicklable_errors_and_results_reach_the_caller(two_workers):
    with pytest.raises(RuntimeError, match="UnpicklableError: 1 and 2"):
        run_tasks([Task(raise_unpicklable), Task(square, (2,))], executor=two_workers)
    with pytest.raises((RuntimeError, AttributeError, pickle.PicklingError), match="lambda"):
        run_tasks([Task(return_unpicklable), Task(square, (2,))], executor=two_workers)


@pytest.mark.skipif(sys.platform != "linux" or len(available_cores()) < 2, reason="needs two cores and Linux")
def test_workers_have_cores_of_their_own(two_workers):
    first, second = run_tasks([Task(cores), Task(cores)], executor=two_workers)
    assert first
    assert not {*first} & {*second}


def test_a_worker_that_dies_is_replaced_and_its_task_repeated(two_workers, tmp_path):
    tasks = [Task(die_once, (str(tmp_path / "died"),)), *(Task(square, (number,)) for number in range(4))]
    first, *rest = run_tasks(tasks, executor=two_workers)
    assert first == "done"
    assert [value for value, _ in rest] == [0, 1, 4, 9]


def test_a_task_that_kills_every_worker_is_reported(two_workers):
    with pytest.raises(InputError, match="4 worker processes were killed over the same task"):
        run_tasks([Task(die), Task(square, (2,))], executor=two_workers)


def test_workers_stay_for_the_next_tasks_and_end_with_the_executor(tmp_path):
    with LocalExecutor(2) as executor:
        batches = [run_tasks([Task(square, (n,)) for n in range(3)], executor=executor) for _ in range(2)]
        processes = {process for results in batches for _, process in results}
        assert len(processes) <= 2
        os.kill(min(processes), signal.SIGKILL)  # while it is idle
        assert [value for value, _ in run_tasks([Task(square, (5,))] * 3, executor=executor)] == [25] * 3
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_workers_end_with_the_process_that_started_them(tmp_path):
    task = f"t.Task(t.sleep, ({str(tmp_path / 'pid')!r},))"
    program = f"import tests.execution.test_executor as t; t.run_in(2, [{task}, {task}])"
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    deadline = time.monotonic() + 200
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
            return  # ended, and not yet waited for
        time.sleep(0.05)
    pytest.fail("the worker outlived its parent")


def compute(path: Path, progress) -> dict[str, bool]:
    checkpoint_directory(path).mkdir()
    (checkpoint_directory(path) / "checkpoint").write_text("so far")
    return {"computed": True}


def test_stored_results_are_not_computed_again(tmp_path):
    path = tmp_path / "result.json"
    write_result(path, {"fingerprint": "of earlier inputs", "computed": False})
    (result,) = run_tasks([Task(compute, (path,), path=path, fingerprint="a")])
    assert result["computed"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]
    again = Task(lambda progress: pytest.fail("computed again"), path=path, fingerprint="a")
    assert run_tasks([again]) == [result]
    changed = Task(lambda progress: {"computed": "anew"}, path=path, fingerprint="b")
    assert run_tasks([changed])[0]["computed"] == "anew"
