"""Fit directories: complete or not there whenever the process ends; only of files that belong together."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import jax
import pytest

from carom.cli import main
from carom.errors import InputError
from carom.fits import load_fit_directory, load_fitted_model, new_fit_directory, save_model
from carom.fits.fit_directory import (
    FILES,
    HISTORY,
    MANIFEST,
    MODEL,
    RECORDING,
    TRAJECTORIES,
    UNFINISHED,
)
from carom.models import ResNet
from carom.storage.atomic import LOCK, locked
from tests.models.conftest import BALL

OPERATIONS = ("mkdir", "rmdir", "unlink", "rename", "replace", "open", "fsync", "scandir", "remove")
"""The operations by which Python changes a file system."""


class Killed(BaseException):
    """Stands for the end of the process."""


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


def save(folder: Path, text: str, names=(*FILES, MANIFEST)) -> None:
    for name in names:
        (folder / name).write_text(text)


def make(folder: Path, text: str, *, overwrite: bool) -> bool:
    """A fit that finds its own checkpoint, or makes one; whether it found one."""
    with new_fit_directory(folder, overwrite=overwrite) as new:
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
    whole = dict.fromkeys((*FILES, MANIFEST), "new")
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
            if MANIFEST in there:  # complete: the old fit or the new one
                assert len(set(there.values())) == 1
                assert there.keys() == whole.keys()
        worked = (folder / UNFINISHED / "checkpoints" / "work").exists()
        try:
            assert make(folder, "new", overwrite=overwrite) or not worked
        except InputError:  # the process ended after its last act
            assert not (folder / UNFINISHED).exists()
            assert not overwrite
        assert {path.name for path in folder.iterdir()} == whole.keys()
        assert texts(folder) == whole
    assert last > 20


def stop(folder: Path) -> None:
    with new_fit_directory(folder, overwrite=True) as new:
        save(new.files, "new")
        raise KeyboardInterrupt


def fail(folder: Path, *, discard: bool) -> None:
    with new_fit_directory(folder, overwrite=False) as new:
        new.checkpoints.mkdir(parents=True, exist_ok=True)
        (new.checkpoints / "work").write_text("so far")
        if discard:
            new.discard_checkpoints()
        raise InputError("The disk is full.")


def test_an_error_keeps_an_older_fit_and_leaves_nothing(tmp_path):
    folder = tmp_path / "deep" / "run"
    with pytest.raises(ZeroDivisionError), new_fit_directory(folder, overwrite=False) as new:
        save(new.files, str(1 / 0), [HISTORY])
    assert list(tmp_path.iterdir()) == []
    make(folder, "old", overwrite=False)
    with pytest.raises(KeyboardInterrupt):
        stop(folder)
    assert {path.name for path in folder.iterdir()} == {*FILES, MANIFEST}
    assert set(texts(folder).values()) == {"old"}
    # A file that the new fit does not have is removed with the old one.
    with new_fit_directory(folder, overwrite=True) as new:
        save(new.files, "new", [name for name in (*FILES, MANIFEST) if name != TRAJECTORIES])
    assert set(texts(folder).values()) == {"new"}
    assert TRAJECTORIES not in texts(folder)


def test_checkpoints_stay_unless_discarded(tmp_path):
    for discard in (False, True):
        with pytest.raises(InputError):
            fail(tmp_path, discard=discard)
        assert (tmp_path / UNFINISHED / "checkpoints" / "work").exists() == (not discard)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_fit_or_in_use_is_refused(tmp_path):
    make(tmp_path, "old", overwrite=False)
    before = texts(tmp_path)
    with pytest.raises(InputError, match="--overwrite"):
        make(tmp_path, "new", overwrite=False)
    with locked(tmp_path), pytest.raises(InputError, match="another command"):
        make(tmp_path, "new", overwrite=True)
    assert texts(tmp_path) == before


@pytest.fixture(scope="module")
def two_fits(tmp_path_factory):
    """Two fits of one recording that differ by their seeds."""
    folder = tmp_path_factory.mktemp("fits")
    recording = folder / "ball $(x).csv"
    main(["simulate", "ball", "--steps", "40", "--out", str(recording)])
    for seed in ("0", "1"):
        options = ["--recipe", "paper", "--epochs", "2", "--hidden", "4", "--ensemble", "2", "--seed", seed]
        main(["fit", str(recording), *options, "--out", str(folder / seed)])
    return folder


def test_files_of_another_fit_are_named(two_fits, tmp_path):
    assert load_fit_directory(two_fits / "0").posterior is not None
    for name in (*FILES, MANIFEST):
        if name in (TRAJECTORIES, RECORDING):  # the first is of the other recipe, the second is the same file
            continue
        folder = tmp_path / name
        shutil.copytree(two_fits / "0", folder)
        shutil.copy(two_fits / "1" / name, folder / name)
        for load in (load_fit_directory, load_fitted_model):
            with pytest.raises(InputError, match=f"{name} does not belong to this fit") as error:
                load(folder)
            assert str(error.value).count(".") == str(folder).count(".") + name.count(".") + 1
        (folder / name).unlink()
        with pytest.raises(InputError, match="not a whole one" if name == MANIFEST else f"{name} is missing"):
            load_fit_directory(folder)
    extra = tmp_path / "extra"
    shutil.copytree(two_fits / "0", extra)
    shutil.copy(extra / MODEL, extra / TRAJECTORIES)
    with pytest.raises(InputError, match=f"{TRAJECTORIES} does not belong"):
        load_fit_directory(extra)


def test_a_model_file_alone_needs_no_manifest(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(ResNet(BALL, 0.02, hidden=3, key=jax.random.key(0)), path, notes={"seed": 1})
    assert load_fitted_model(path)[1] == {"seed": 1}
