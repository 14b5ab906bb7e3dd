"""A directory for one command at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from carom.errors import InputError

LOCK = ".carom.lock"


class FolderBusyError(InputError):
    """Another command is working in the directory; it may finish a little later."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other commands out of a directory, which must exist, for the length of a block.

    The lock is the operating system's and ends with the process, however that ends: a file left behind by a
    killed command blocks nothing.

    Arguments:
        folder: the directory; `FolderBusyError` is raised where another command has locked it.

    Example:
        >>> with locked(Path("fits/ball")):  # doctest: +SKIP
        ...     ...
    """
    lock = FileLock(folder / LOCK, blocking=False)
    try:
        folder.stat()  # filelock would create a missing directory
        lock.acquire()
    except Timeout:
        raise FolderBusyError(
            f"{folder}: another command is working in this directory; wait for it or choose another."
        ) from None
    except OSError as error:
        reason = f"the directory cannot be written to ({error.strerror})"
        raise InputError(f"{folder}: {reason}; choose another.") from error
    try:
        yield
    finally:
        # Removed while it is held: whoever opened it in between finds that it has no name, and tries again.
        with suppress(OSError):
            (folder / LOCK).unlink()
        lock.release()
