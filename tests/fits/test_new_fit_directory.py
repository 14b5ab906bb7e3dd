"""A run folder in the making: whenever the process ends, what is there is whole, and work is kept."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from carom.errors import InputError
from carom.fits import new_run_folder
from carom.fits.fit_directory import HISTORY, MODEL, MOTIONS, OTHERS
from carom.fits.new_fit_directory import CHECKPOINTS, UNFINISHED
from carom.storage.lock import LOCK, locked

OPERATIONS = ("mkdir", "rmdir", "unlink", "rename", "replace", "open", "fsync", "scandir", "remove")
"""How Python changes a file system."""


class Killed(BaseException):
    """What stands for the end of the process."""


class Dying:
    """Makes the operations on files fail from the n-th on, as they do for a process that is gone."""

    def __init__(self, monkeypatch, last: int):
        self.count, self.last = 0, last
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, operation):
        def attempt(*arguments, **options):
            self.count += 1
            if self.count > self.last:
                raise Killed
            return operation(*arguments, **options)

        return attempt


def save(folder: Path, text: str, names=(*OTHERS, MODEL)) -> None:
    for name in names:
        (folder / name).write_text(text)


def make(folder: Path, text: str, *, overwrite: bool) -> bool:
    """A run that finds its own checkpoint, or makes one; whether it did."""
    with new_run_folder(folder, overwrite=overwrite) as new:
        assert list(new.files.iterdir()) == []
        kept = new.checkpoints / "work"
        found = kept.exists() and kept.read_text() == text
        if not found:
            new.checkpoints.mkdir(parents=True, exist_ok=True)
            (new.checkpoints / "half").write_text(text)
            (new.checkpoints / "half").replace(kept)
        save(new.files, text)
    return found


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file() and path.name != LOCK}


@pytest.mark.parametrize("overwrite", [False, True])
def test_every_moment_of_ending(overwrite, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    whole = dict.fromkeys((*OTHERS, MODEL), "new")
    for last in range(10_000):
        shutil.rmtree(folder, ignore_errors=True)
        if overwrite:
            make(folder, "old", overwrite=False)
        with monkeypatch.context() as context:
            dying = Dying(context, last)
            with suppress(Killed):
                make(folder, "new", overwrite=overwrite)
            ended = dying.count <= last
        if ended:
            break
        if folder.exists():
            there = texts(folder)
            if MODEL in there:  # a folder with a model is a run, the old one or the new one
                assert len(set(there.values())) == 1
                assert there.keys() == whole.keys()
        worked = (folder / UNFINISHED / CHECKPOINTS / "work").exists()
        try:
            assert make(folder, "new", overwrite=overwrite) or not worked
        except InputError:  # the process ended after its last act
            assert not (folder / UNFINISHED).exists()
            assert not overwrite
        assert {path.name for path in folder.iterdir()} == whole.keys()
        assert texts(folder) == whole
    assert last > 20


def stop(folder: Path) -> None:
    with new_run_folder(folder, overwrite=True) as new:
        save(new.files, "new")
        raise KeyboardInterrupt


def fail(folder: Path, *, give_up: bool) -> None:
    with new_run_folder(folder, overwrite=False) as new:
        new.checkpoints.mkdir(parents=True, exist_ok=True)
        (new.checkpoints / "work").write_text("so far")
        if give_up:
            new.give_up()
        raise InputError("The disk is full.")


def test_an_error_keeps_an_older_run_and_leaves_nothing(tmp_path):
    folder = tmp_path / "deep" / "run"
    with pytest.raises(ZeroDivisionError), new_run_folder(folder, overwrite=False) as new:
        save(new.files, str(1 / 0), [HISTORY])
    assert list(tmp_path.iterdir()) == []
    make(folder, "old", overwrite=False)
    with pytest.raises(KeyboardInterrupt):
        stop(folder)
    assert {path.name for path in folder.iterdir()} == {*OTHERS, MODEL}
    assert set(texts(folder).values()) == {"old"}
    # A file that the new run does not have goes with the old run.
    with new_run_folder(folder, overwrite=True) as new:
        save(new.files, "new", [name for name in (*OTHERS, MODEL) if name != MOTIONS])
    assert set(texts(folder).values()) == {"new"}
    assert MOTIONS not in texts(folder)


def test_checkpoints_stay_unless_given_up(tmp_path):
    for give_up in (False, True):
        with pytest.raises(InputError):
            fail(tmp_path, give_up=give_up)
        assert (tmp_path / UNFINISHED / CHECKPOINTS / "work").exists() == (not give_up)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_there_or_in_use_is_refused(tmp_path):
    make(tmp_path, "old", overwrite=False)
    before = texts(tmp_path)
    with pytest.raises(InputError, match="--overwrite"):
        make(tmp_path, "new", overwrite=False)
    with locked(tmp_path), pytest.raises(InputError, match="another command"):
        make(tmp_path, "new", overwrite=True)
    assert texts(tmp_path) == before
