"""`carom sweep` as a command: by several processes, by one, interrupted, and with workers that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.sweep import FITS, KILLS, WORKERS, measure, workers_of
from carom.cli import main
from tests.sweeps.conftest import file, recordings, tables  # noqa: F401

ROOT = Path(__file__).parents[2]


def test_a_sweep_by_command(file, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "out"
    main(["sweep", str(file), "--out", str(out), "--workers", "2", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert (printed["fits"], printed["made"], printed["without_score"]) == (4, 4, 0)
    before = tables(out)
    main(["sweep", str(file), "--out", str(out), "--serial"])  # nothing is left to make
    assert "4 fits, 4 of them stored before" in " ".join(capsys.readouterr().out.split())
    assert tables(out) == before
    main(["report", str(out / printed["best"]["run"])])
    for options, fragment in (
        (["--serial", "--workers", "2"], "--workers: --serial has one worker"),
        (["--workers", "0"], "--workers must lie between 1"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["sweep", str(file), "--out", str(out), *options])
        assert stop.value.code == 2
        assert fragment in capsys.readouterr().err


@pytest.mark.campaign
def test_ctrl_c_ends_the_command_and_its_workers(file, tmp_path):  # noqa: F811
    out = tmp_path / "out"
    file.write_text(file.read_text().replace("epochs = 2", "epochs = 100000"))
    process = subprocess.Popen(
        [sys.executable, "-m", "carom", "sweep", str(file), "--out", str(out), "--workers", "2"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and not list(out.glob("*/.carom-unfinished/checkpoints/*")):
        time.sleep(0.1)
    workers = workers_of(process)
    assert len(workers) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (130, "carom: stopped. The same command continues.\n")
    began = time.monotonic()
    while any(worker.is_running() and worker.status() != "zombie" for worker in workers):
        assert time.monotonic() - began < 20
        time.sleep(0.1)
    assert not list((out / "rows").glob("*"))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_sweep_whose_workers_are_killed(tmp_path, record_property):
    found = measure(tmp_path, fits=FITS, workers=WORKERS, kills=KILLS, epochs=200)
    record_property("found", found)
    assert found["workers_killed"] == KILLS
    assert found["fits"] == found["rows"] == found["models"] == FITS
    assert found["made_twice"] == found["left_unfinished"] == found["without_score"] == 0
    assert all(found["same_bytes"].values())
