"""Tasks on the workers of a scheduler, some of which die."""

import pytest

from carom.errors import InputError
from carom.execution.cluster import ClusterSettings, DaskExecutor
from carom.execution.executor import Task, run_tasks
from tests.execution.test_executor import die_once, refuse, square

dask = pytest.importorskip("dask", reason="distributed is not installed (extra cluster)")
distributed = pytest.importorskip("distributed", reason="distributed is not installed (extra cluster)")


def test_a_worker_that_dies_is_replaced_and_its_task_repeated(tmp_path):
    """The scheduler gives a task up as soon as its worker is lost, as an existing one may."""
    timeouts = {"distributed.comm.timeouts.connect": "60s"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0, **timeouts}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0, silence_logs=50
        ) as cluster,
        DaskExecutor(ClusterSettings(scheduler=cluster.scheduler_address)) as executor,
    ):
        tasks = [Task(die_once, (str(tmp_path / "died"),)), *(Task(square, (n,)) for n in range(4))]
        first, *rest = run_tasks(tasks, executor=executor)
        assert first == "done"
        assert [value for value, _ in rest] == [0, 1, 4, 9]
        with pytest.raises(InputError, match="cannot be done"):
            run_tasks([Task(refuse), Task(square, (2,))], executor=executor)
