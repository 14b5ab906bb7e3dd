"""A run folder in the making: for one command at a time, and whole or not there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from carom.errors import InputError
from carom.fits.fit_directory import MODEL, OTHERS, UNFINISHED
from carom.storage.atomic import folder_made, make_folder
from carom.storage.lock import locked

CHECKPOINTS, FILES, WHOLE = "checkpoints", "files", "whole"
FINISHED = ".carom-finished"
"""What the folder of unfinished work is called while it is being removed."""


class NewRun(NamedTuple):
    """Where a fit puts what it makes.

    Arguments:
        files: an empty folder to save the run into.
        checkpoints: for what is done so far; it outlives the process.
    """

    files: Path
    checkpoints: Path

    def give_up(self) -> None:
        """Forget what was done: the same fit would fail again."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


@contextmanager
def new_run_folder(folder: Path, *, overwrite: bool) -> Iterator[NewRun]:
    """Give places to work in inside `folder`, and move the files of the run into it at the end.

    A folder with a run in it is refused unless `overwrite` is set, and so is one that another command is at
    work in. An error inside, Ctrl-C included, leaves an older run as it was, and of this one the checkpoints,
    if it got that far: the same fit continues from there, as it does when the process was killed.
    """
    target = folder.resolve()
    unfinished = target / UNFINISHED
    files, whole = unfinished / FILES, unfinished / WHOLE
    with folder_made(target), locked(target):
        shutil.rmtree(target / FINISHED, ignore_errors=True)
        if is_finished(target) and not overwrite:
            raise InputError(f"{folder}: there is a run in this folder; choose another or pass --overwrite.")
        shutil.rmtree(files, ignore_errors=True)  # half-saved by a killed command
        try:
            make_folder(files)
            yield NewRun(files, unfinished / CHECKPOINTS)
            _put_in_place(folder, target, files, whole)
        except BaseException:
            shutil.rmtree(files, ignore_errors=True)
            for place in (unfinished / CHECKPOINTS, unfinished):
                with suppress(OSError):  # what is done stays
                    place.rmdir()
            raise


def is_finished(folder: Path) -> bool:
    """Whether there is a run in a folder, with nothing left to do by the command that makes it."""
    # With all files ready but some not yet in place, a killed command was about to finish.
    return (folder / MODEL).exists() and not (folder / UNFINISHED / WHOLE).exists()


def _put_in_place(folder: Path, target: Path, files: Path, whole: Path) -> None:
    try:
        shutil.rmtree(whole, ignore_errors=True)
        files.rename(whole)
        # The model goes first and comes last: a folder with a model is whole.
        (target / MODEL).unlink(missing_ok=True)
        for name in (*OTHERS, MODEL):
            if (whole / name).exists():
                (whole / name).replace(target / name)
            else:
                (target / name).unlink(missing_ok=True)
        whole.parent.rename(target / FINISHED)
        shutil.rmtree(target / FINISHED)
    except OSError as error:
        reason = f"the files of the run cannot be put in place ({error.strerror})"
        raise InputError(f"{folder}: {reason}; the same command tries again.") from error
