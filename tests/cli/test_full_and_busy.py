"""What the machine refuses while commands work: a full disk, a folder in use or read-only, Ctrl-C."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carom.cli import main
from carom.errors import InputError
from carom.fits import load_fitted_model, save_fit
from carom.fits.fit_directory import MODEL, UNFINISHED
from carom.reproduction.subjects import output_folder
from carom.storage.atomic import locked
from tests.data.test_bad_files import contents

ROOT = Path(__file__).parents[2]
QUICK = ["--recipe", "paper", "--epochs", "4", "--hidden", "64"]


def refused(capsys, arguments: list[str]) -> str:
    """The one sentence with which a command ends; progress may come before it."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if not line.startswith("training")]
    assert len(lines) == 1
    return lines[0]


@pytest.fixture
def small_disk():
    """No file may grow beyond so many bytes; the system then refuses as it does when a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [600, 3000, 8000])
def test_a_full_disk_leaves_nothing_behind(size, ball, small_disk, capsys):
    before = contents(ball.parent)
    small_disk(size)
    for command in (
        ["fit", str(ball), *QUICK, "--out", str(ball.parent / "run")],
        ["simulate", "ball", "--steps", "9000", "--out", str(ball.parent / "long.csv")],
    ):
        error = refused(capsys, command)
        assert error.startswith("carom: ")
        assert "cannot be written (File too large" in error
    assert contents(ball.parent) == before


def test_a_disk_that_is_full_at_the_end_keeps_the_work(ball, small_disk, capsys, monkeypatch):
    run, command = ball.parent / "run", ["fit", str(ball), *QUICK, "--out", str(ball.parent / "run")]

    def save_on_small_disk(*arguments, **options):
        small_disk(1000)
        save_fit(*arguments, **options)

    with monkeypatch.context() as context:
        context.setattr("carom.fits.plan.save_fit", save_on_small_disk)
        error = refused(capsys, command)
    assert "cannot be written" in error
    assert [path.name for path in run.iterdir()] == [UNFINISHED]
    small_disk(2**30)
    monkeypatch.setattr("carom.training.recipe.train_epochs", lambda *_: pytest.fail("trained again"))
    main(command)
    assert load_fitted_model(run)[1]["settings"]["epochs"] == 4


def test_a_folder_in_use_is_told(ball, capsys):
    run, reproduction = ball.parent / "run", ball.parent / "reproduction"
    run.mkdir()
    reproduction.mkdir()
    with locked(run):
        error = refused(capsys, ["fit", str(ball), *QUICK, "--out", str(run), "--overwrite"])
    assert (
        error == f"carom: {run}: another command is working in this directory; wait for it or choose another."
    )
    with locked(reproduction):
        error = refused(capsys, ["reproduce", "ball", "--quick", "--out", str(reproduction)])
    assert "another command is working" in error
    main(["fit", str(ball), *QUICK, "--out", str(run)])
    assert (run / MODEL).exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_is_read_only_is_told(ball, capsys):
    run = ball.parent / "run"
    run.mkdir(mode=0o555)
    assert "cannot be written to (Permission denied)" in refused(
        capsys, ["fit", str(ball), *QUICK, "--out", str(run)]
    )
    assert list(run.iterdir()) == []


def test_what_a_killed_reproduction_was_drawing_is_removed(tmp_path):
    left = [tmp_path / place / ".carom-0123456789abcdef.tmp" for place in (".", "recipe", "figures")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with output_folder(tmp_path, "recipe"):
        assert not any(path.exists() for path in left)
        with pytest.raises(InputError, match="another command is working"), output_folder(tmp_path, "grid"):
            pass


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to see what is loaded")
@pytest.mark.parametrize("library", ["_multiarray_umath", "_polars_runtime"])
def test_an_interruption_while_loading_is_a_word(library, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "carom", "demo", "--out", str(tmp_path / "demo")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and library not in maps.read_text():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate()
    assert (process.returncode, printed, error) == (130, "", "carom: stopped.\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_does_not_wait_for_what_is_compiled(ball):
    """A first fit traces and compiles in threads for many seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "carom", "fit", str(ball), "--out", str(ball.parent / "run")],
        env=os.environ | {"PYTHONPATH": str(ROOT), "CAROM_CACHE": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not (ball.parent / "run").exists():
        time.sleep(0.05)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, error = process.communicate()
    assert process.returncode == 130
    assert error.removeprefix("fitting: 0 % after 0 s\n") == "carom: stopped. The same command continues.\n"
    assert time.monotonic() - began < 5
