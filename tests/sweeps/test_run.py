"""Sweeps that stop and start again: nothing is lost, nothing is made twice, the table is the same."""

import json
import threading
import time

import pytest

from carom.errors import InputError
from carom.fits import load_fit_directory
from carom.fits.plan import FitPlan
from carom.storage.fingerprint import source_hash
from carom.storage.lock import locked
from carom.sweeps.cells import Cells
from carom.sweeps.one_fit import ChangedError, make_row, row_path
from carom.sweeps.run import swept
from carom.sweeps.sweep_file import read_sweep_file
from carom.sweeps.table import RESULTS, TABLE
from tests.sweeps.conftest import SWEEP, Here, run


def tables(out) -> tuple[bytes, bytes]:
    return (out / TABLE).read_bytes(), (out / RESULTS).read_bytes()


def test_the_table_does_not_depend_on_who_ends_first(file, tmp_path):
    outcome = run(file, tmp_path / "forth", Here())
    run(file, tmp_path / "back", Here(backwards=True))
    assert tables(tmp_path / "forth") == tables(tmp_path / "back")
    header, *lines = (tmp_path / "forth" / TABLE).read_text().splitlines()
    assert header == "run,recording,seed,error,loss: state,loss: contact,loss: penalty,reason"
    assert len(lines) == 4
    for line, document in zip(outcome.lines, json.loads(tables(tmp_path / "forth")[1])["fits"], strict=True):
        assert document["error"] == line.row["error"] > 0
        kept = load_fit_directory(tmp_path / "forth" / line.row["run"])
        assert kept.notes["hold_out"] == 0.2
        assert kept.notes["seed"] == document["seed"]
        assert line.row["numbers"]["loss: state"] == kept.history[-1]["state"]


def test_a_sweep_that_was_stopped_makes_the_rest(file, tmp_path):
    run(file, tmp_path / "whole", Here())
    crew = Here(stop_after=3, backwards=True)
    with pytest.raises(KeyboardInterrupt):
        run(file, tmp_path / "out", crew)
    assert not (tmp_path / "out" / TABLE).exists()
    left = tmp_path / "out" / ".carom-0123456789abcdef.tmp"
    left.touch()  # by a command that was killed while it wrote the table
    rest = Here()
    assert run(file, tmp_path / "out", rest).made == 1
    assert len({*crew.made, *rest.made}) == 4
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")
    assert not left.exists()
    idle = Here(stop_after=0)
    assert run(file, tmp_path / "out", idle).made == 0


def test_more_values_make_only_the_new_fits(file, tmp_path):
    run(file, tmp_path / "out", Here())
    file.write_text(SWEEP.replace("seeds = 2", "seeds = [1, 7, 0]"))
    crew = Here()
    outcome = run(file, tmp_path / "out", crew)
    assert len(crew.made) == 2
    assert [line.cell.options.seed for line in outcome.lines] == [1, 7, 0, 1, 7, 0]


def test_a_fit_without_its_row_is_not_made_again(file, tmp_path, monkeypatch):
    """A worker that is killed between the two leaves this."""
    run(file, tmp_path / "out", Here())
    before = tables(tmp_path / "out")
    for path in (tmp_path / "out" / "rows").glob("*seed=1*"):
        path.unlink()
    monkeypatch.setattr(FitPlan, "make", lambda *_, **__: pytest.fail("made again"))
    assert run(file, tmp_path / "out", Here()).made == 2
    assert tables(tmp_path / "out") == before


def test_a_fit_that_fails_lands_with_its_reason(file, tmp_path):
    file.write_text(SWEEP + "learning_rate = 1e30\n")
    outcome = run(file, tmp_path / "out", Here())
    assert all(line.row["error"] is None for line in outcome.lines)
    assert "choose a smaller --learning-rate" in (tmp_path / "out" / TABLE).read_text()
    assert outcome.failed == 4
    assert run(file, tmp_path / "out", Here(stop_after=0)).made == 0
    assert run(file, tmp_path / "out", Here(), again=True).made == 4


def test_only_what_the_file_names_is_made_again(file, tmp_path):
    good = file.read_text()
    file.write_text(SWEEP + "learning_rate = 1e30\n")
    run(file, tmp_path / "out", Here())
    file.write_text(good)
    assert run(file, tmp_path / "out", Here(), again=True).made == 4
    file.write_text(SWEEP + "learning_rate = 1e30\n")
    assert run(file, tmp_path / "out", Here(stop_after=0)).failed == 4


def test_a_cluster_that_cannot_be_had_leaves_nothing(file, tmp_path):
    def refuse():
        raise InputError("tcp://nowhere: there is no scheduler.")

    out = tmp_path / "new" / "out"
    with (
        pytest.raises(InputError, match="no scheduler"),
        swept(read_sweep_file(file), out, refuse, again=False, tell=lambda done, total: None),
    ):
        pass
    assert not out.parent.exists()


def test_an_error_of_the_program_lands_too(file, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("nobody knows why")

    monkeypatch.setattr(FitPlan, "make", fail)
    outcome = run(file, tmp_path / "out", Here())
    assert {line.row["reason"] for line in outcome.lines} == {"ZeroDivisionError: nobody knows why"}


def test_what_only_this_machine_refuses_is_no_result(file, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise InputError("there: the file cannot be written (disk full).") from OSError(28, "disk full")

    with monkeypatch.context() as context:
        context.setattr(FitPlan, "make", fail)
        with pytest.raises(InputError, match="disk full"):
            run(file, tmp_path / "out", Here())
    assert run(file, tmp_path / "out", Here()).made == 4


def test_a_recording_that_changes_meanwhile_is_no_result(file, tmp_path):
    cell = Cells(read_sweep_file(file)).grid()[0]
    cell.recording.write_text(cell.recording.read_text().replace("1.", "1.0", 1))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ChangedError, match="has changed since the sweep began"):
        make_row(cell, out, source_hash())
    assert not row_path(out, cell.name).exists()


def test_workers_must_have_the_same_code_and_see_the_same_files(file, tmp_path):
    cell = Cells(read_sweep_file(file)).grid()[0]
    with pytest.raises(InputError, match="another version of Carom"):
        make_row(cell, tmp_path, "another")
    with pytest.raises(InputError, match="a worker does not see this"):
        make_row(cell, tmp_path / "elsewhere", source_hash())


def test_a_fit_that_another_process_is_at_is_waited_for(file, tmp_path):
    cell = Cells(read_sweep_file(file)).grid()[0]
    folder = tmp_path / cell.name
    folder.mkdir()
    began, freed = threading.Event(), []

    def hold():
        with locked(folder):
            began.set()
            time.sleep(1)
            freed.append(time.monotonic())

    other = threading.Thread(target=hold)
    other.start()
    began.wait()
    make_row(cell, tmp_path, source_hash())
    assert freed
    other.join()
    assert json.loads(row_path(tmp_path, cell.name).read_text())["reason"] == ""


def test_a_sweep_has_its_folder_for_itself(file, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"), pytest.raises(InputError, match="another command is working"):
        run(file, tmp_path / "out", Here())
