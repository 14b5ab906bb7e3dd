"""A folder for one command at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from carom.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks on Windows: there, two commands on one folder are the user's to avoid
    fcntl = None

LOCK = ".carom.storage.lock"


class FolderBusyError(InputError):
    """Another command is at work in a folder: it may have ended a little later."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other commands out of a folder, which must exist, for the length of a block.

    The lock is the operating system's and ends with the process, however that ends: a file left behind by a
    killed command blocks nothing.

    Arguments:
        folder: what to keep for this command; another one that has it is a `FolderBusyError`.

    Example:
        >>> with locked(Path("runs/ball")):  # doctest: +SKIP
        ...     ...
    """
    path = folder / LOCK
    descriptor = _hold(folder, path)
    try:
        yield
    finally:
        try:
            path.unlink()
        except OSError:
            pass  # a file without a process blocks nobody
        finally:
            os.close(descriptor)


def _hold(folder: Path, path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            reason = f"the folder cannot be written to ({error.strerror})"
            raise InputError(f"{folder}: {reason}; choose another.") from error
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise FolderBusyError(
                f"{folder}: another command is at work in this folder; wait for it or choose another."
            ) from None
        except OSError:  # a file system without locks
            return descriptor
        # Whoever held it before may have removed the file after it was opened here.
        with suppress(OSError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)
