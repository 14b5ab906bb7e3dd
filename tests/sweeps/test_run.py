"""Sweeps that stop and start again: nothing is lost, nothing is made twice, the table is the same."""

import json
import threading
import time

import pytest

from carom.errors import InputError
from carom.fits import load_fit_directory
from carom.fits.plan import FitPlan
from carom.storage.atomic import locked
from carom.sweeps.run import TABLE, DataChangedError, fit_task, make_row, plan_sweep
from carom.sweeps.sweep_file import read_sweep_file
from tests.sweeps.conftest import SWEEP, Here, run, tables


def ignore(fraction: float) -> None:
    """No progress is shown."""


def test_the_table_does_not_depend_on_which_fit_ends_first(file, tmp_path):
    result = run(file, tmp_path / "forth")
    run(file, tmp_path / "back", Here(backwards=True))
    assert tables(tmp_path / "forth") == tables(tmp_path / "back")
    header, *lines = (tmp_path / "forth" / TABLE).read_text().splitlines()
    assert header == "run,recording,seed,error,loss: state,loss: contact,loss: penalty,reason"
    assert len(lines) == 4
    for fit, document in zip(result.fits, json.loads(tables(tmp_path / "forth")[1])["fits"], strict=True):
        assert document["error"] == fit["error"] > 0
        kept = load_fit_directory(tmp_path / "forth" / fit["run"])
        assert kept.notes["hold_out"] == 0.2
        assert kept.notes["seed"] == document["seed"]
        assert fit["numbers"]["loss: state"] == kept.history[-1]["state"]


def test_an_interrupted_sweep_makes_the_rest(file, tmp_path):
    run(file, tmp_path / "whole")
    executor = Here(stop_after=3, backwards=True)
    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "out", executor)
    assert not (tmp_path / "out" / TABLE).exists()
    leftover = tmp_path / "out" / ".carom-0123456789abcdef.tmp"
    leftover.touch()  # by a command that was killed while it wrote the table
    rest = Here()
    assert run(file, tmp_path / "out", rest).made == 1
    assert len({*executor.made, *rest.made}) == 4
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")
    assert not leftover.exists()
    assert run(file, tmp_path / "out", Here(stop_after=0)).made == 0


def test_more_values_make_only_the_new_fits(file, tmp_path):
    run(file, tmp_path / "out")
    file.write_text(SWEEP.replace("seeds = 2", "seeds = [1, 7, 0]"))
    executor = Here()
    result = run(file, tmp_path / "out", executor)
    assert len(executor.made) == 2
    assert [fit["seed"] for fit in result.fits] == [1, 7, 0, 1, 7, 0]
    # One recording less: names are shorter, and the fits are found all the same.
    file.write_text(SWEEP.replace('["ball.csv", "low.csv"]', '"low.csv"'))
    assert run(file, tmp_path / "out", Here(stop_after=0)).made == 0


def test_a_fit_without_its_row_is_not_made_again(file, tmp_path, monkeypatch):
    """A worker that is killed between the two leaves this."""
    run(file, tmp_path / "out")
    before = tables(tmp_path / "out")
    for path in sorted((tmp_path / "out" / "rows").iterdir())[:2]:
        path.unlink()
    monkeypatch.setattr(FitPlan, "run", lambda *_, **__: pytest.fail("made again"))
    assert run(file, tmp_path / "out").made == 2
    assert tables(tmp_path / "out") == before


def test_fits_that_fail_have_a_reason_and_are_repeated_on_request(file, tmp_path):
    file.write_text(SWEEP + "learning_rate = 1e30\n")
    result = run(file, tmp_path / "out")
    assert all(fit["error"] is None for fit in result.fits)
    assert "choose a smaller `learning_rate`" in (tmp_path / "out" / TABLE).read_text()
    assert result.failed == 4
    assert run(file, tmp_path / "out", Here(stop_after=0)).made == 0
    # Those that the file no longer names are left alone.
    file.write_text(SWEEP)
    assert run(file, tmp_path / "out", again=True).made == 4
    file.write_text(SWEEP + "learning_rate = 1e30\n")
    assert run(file, tmp_path / "out", Here(stop_after=0)).failed == 4
    assert run(file, tmp_path / "out", again=True).made == 4


def test_an_executor_that_cannot_start_leaves_nothing(file, tmp_path):
    class Unavailable(Here):
        def run(self, functions, report):
            raise InputError("tcp://nowhere: there is no scheduler.")

    out = tmp_path / "new" / "out"
    with pytest.raises(InputError, match="no scheduler"):
        run(file, out, Unavailable())
    assert not out.parent.exists()


def test_unexpected_errors_are_reasons_too(file, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("nobody knows why")

    monkeypatch.setattr(FitPlan, "run", fail)
    result = run(file, tmp_path / "out")
    assert {fit["reason"] for fit in result.fits} == {"ZeroDivisionError: nobody knows why"}


def test_what_only_this_machine_refuses_is_no_result(file, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise InputError("there: the file cannot be written (disk full).") from OSError(28, "disk full")

    with monkeypatch.context() as context:
        context.setattr(FitPlan, "run", fail)
        with pytest.raises(InputError, match="disk full"):
            run(file, tmp_path / "out")
    assert run(file, tmp_path / "out").made == 4


def test_data_that_change_or_cannot_be_seen_are_no_result(file, tmp_path):
    fit = plan_sweep(read_sweep_file(file))[0]
    with pytest.raises(InputError, match="a worker cannot see this path"):
        make_row(fit, tmp_path / "elsewhere", ignore)
    fit.recording.write_text(fit.recording.read_text().replace("1.", "1.0", 1))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(DataChangedError, match="has changed since the sweep began"):
        make_row(fit, out, ignore)
    assert not fit_task(fit, out).path.exists()


def test_a_fit_that_another_process_is_making_is_awaited(file, tmp_path):
    fit = plan_sweep(read_sweep_file(file))[0]
    directory = tmp_path / fit.name
    directory.mkdir()
    began, released = threading.Event(), []

    def hold():
        with locked(directory):
            began.set()
            time.sleep(1)
            released.append(time.monotonic())

    other = threading.Thread(target=hold)
    other.start()
    began.wait()
    row = make_row(fit, tmp_path, ignore)
    assert released
    other.join()
    assert row["reason"] == ""


def test_a_sweep_has_its_directory_for_itself(file, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"), pytest.raises(InputError, match="another command is working in"):
        run(file, tmp_path / "out")
