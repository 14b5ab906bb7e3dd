"""Clusters: an existing scheduler whose workers are killed, SLURM jobs, and none at all."""

import os
import stat
import sys
import threading
import time

import pytest

from carom.errors import InputError
from carom.execution import cluster as cluster_module
from carom.execution.cluster import ClusterSettings, DaskExecutor, Slurm, run_on_worker, slurm_cluster
from carom.execution.executor import LocalExecutor
from tests.sweeps.conftest import SWEEP, run, tables

dask = pytest.importorskip("dask", reason="distributed is not installed (extra cluster)")
distributed = pytest.importorskip("distributed", reason="distributed is not installed (extra cluster)")


def by_one_process(file, out) -> None:
    run(file, out, LocalExecutor(1, single_threaded=True))


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_workers_of_an_existing_scheduler_may_be_killed(file, tmp_path):
    """The scheduler gives a fit up as soon as its worker is lost, as an existing one may."""
    file.write_text(SWEEP.replace("seeds = 2", "seeds = 4"))
    by_one_process(file, tmp_path / "serial")
    settings = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit=0, silence_logs=50
        ) as cluster,
    ):
        killed = []

        def kill_one(fraction: float) -> None:
            if len(killed) < 2 and fraction >= (2, 5)[len(killed)] / 8:
                process = cluster.workers[len(killed)].process.process
                killed.append(process.pid)
                process._process.kill()

        settings = ClusterSettings(scheduler=cluster.scheduler_address)
        result = run(file, tmp_path / "out", DaskExecutor(settings), progress=kill_one)
    assert len(killed) == 2
    assert result.made == 8
    assert tables(tmp_path / "out") == tables(tmp_path / "serial")


def test_workers_with_several_threads_are_refused(file, tmp_path):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp://"
    ) as cluster:
        settings = ClusterSettings(scheduler=cluster.scheduler_address)
        with pytest.raises(InputError, match=r"has 2 threads.*--nthreads 1"):
            run(file, tmp_path / "out", DaskExecutor(settings))


def test_workers_must_have_the_same_code(monkeypatch):
    class Worker:
        class state:  # noqa: N801
            nthreads = 1

    monkeypatch.setattr(distributed, "get_worker", Worker)
    with pytest.raises(InputError, match="another version of Carom"):
        run_on_worker(print, "another")


def test_a_scheduler_that_does_not_answer_is_named(file, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 1)
    settings = ClusterSettings(scheduler="tcp://127.0.0.1:9")
    with pytest.raises(InputError, match=r"tcp://127\.0\.0\.1:9: no scheduler answers there"):
        run(file, tmp_path / "out", DaskExecutor(settings))


def test_missing_packages_are_named(monkeypatch):
    for name in ("distributed", "dask_jobqueue.slurm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"distributed; install .*carom\[cluster\]"):
        next(DaskExecutor(ClusterSettings(scheduler="tcp://node1:1")).run([print], lambda *_: None))
    with pytest.raises(InputError, match=r"dask-jobqueue; install .*carom\[slurm\]"):
        slurm_cluster(Slurm())


def test_jobs_are_as_in_the_sweep_file():
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed (extra slurm)")
    slurm = Slurm(
        queue="short",
        account="mechanics",
        memory="3GB",
        walltime="02:00:00",
        per_job=4,
        directives=("--constraint=avx512",),
        prologue=("module load python",),
    )
    with slurm_cluster(slurm) as cluster:
        script = cluster.job_script()
    for line in (
        "#SBATCH -p short",
        "#SBATCH -A mechanics",
        "#SBATCH --cpus-per-task=4",
        "#SBATCH --mem=12G",
        "#SBATCH -t 02:00:00",
        "#SBATCH --constraint=avx512",
        "module load python",
        "export NPROC=1",
    ):
        assert line in script.splitlines()
    assert "--nthreads 1 " in script
    assert "--nworkers 4 " in script
    with pytest.raises(InputError, match="memory: write a size such as 2GB, not much"):
        slurm_cluster(Slurm(memory="much"))


SBATCH = """#!/bin/sh
# As SLURM does, the script is copied: who submits it removes it.
for script; do :; done
copy=$(mktemp {folder}/script-XXXXXX)
cp "$script" "$copy"
setsid sh "$copy" > "$copy.log" 2>&1 &
echo $! >> {folder}/jobs
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
for job; do kill -9 -- "-$job"; done 2> /dev/null
exit 0
"""


@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_jobs_that_end_are_submitted_again(file, tmp_path, monkeypatch):
    """By a stand-in for SLURM that starts job scripts on this machine."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed (extra slurm)")
    commands, jobs = tmp_path / "bin", tmp_path / "jobs"
    commands.mkdir()
    for name, text in (("sbatch", SBATCH.replace("{folder}", str(tmp_path))), ("scancel", SCANCEL)):
        (commands / name).write_text(text)
        (commands / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    file.write_text(SWEEP.replace("seeds = 2", "seeds = 4"))
    by_one_process(file, tmp_path / "serial")

    ended = []

    def end_first_job(fraction: float) -> None:
        if fraction >= 2 / 8 and not ended:
            ended.append(int(jobs.read_text().split()[0]))
            threading.Thread(target=lambda: (time.sleep(0.2), os.killpg(ended[0], 9))).start()

    settings = ClusterSettings(workers=1, slurm=Slurm())
    run(file, tmp_path / "out", DaskExecutor(settings), progress=end_first_job)
    assert len(jobs.read_text().split()) >= 2
    assert tables(tmp_path / "out") == tables(tmp_path / "serial")
