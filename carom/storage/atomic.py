"""Writing safely: files whole or not at all, and a directory by one command at a time."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from carom.errors import InputError
from carom.storage.input_file import complaint

_PREFIX, _SUFFIX = ".carom-", ".tmp"


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and move it to `path` when the block ends without an error.

    An error inside, Ctrl-C included, removes the temporary file and leaves an older file at `path` as it was.
    A write that the system refuses, for example to a full disk, raises `InputError`.

    Arguments:
        path: the final file; symbolic links are followed.

    Example:
        >>> with atomic_write("numbers.txt") as temporary:  # doctest: +SKIP
        ...     temporary.write_text("1 2 3")
    """
    # Not derived from the target's name, which may already be as long as the system allows.
    name = f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
    temporary: Path | None = None
    try:
        target = Path(path).resolve()
        temporary = target.with_name(name)
        mode = _mode_of_regular_file(target)
        with temporary.open("xb"):
            pass
        # A replaced file keeps its permissions, as an edited one would.
        if mode is not None:
            temporary.chmod(mode)
        yield temporary
        # Before the name changes, or a power cut could leave an empty file under it.
        _flush_to_disk(temporary)
        temporary.replace(target)
        with suppress(OSError):  # some file systems cannot flush folders, and the file is in place
            _flush_to_disk(target.parent)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()
        # pathlib reports a loop of links as RuntimeError and a null character as ValueError.
        if isinstance(error, OSError) or (temporary is None and isinstance(error, RuntimeError | ValueError)):
            reason = getattr(error, "strerror", None) or str(error)
            problem = f"the file cannot be written ({reason}); choose another folder or free some space"
            raise complaint(Path(path), problem) from error
        raise


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file by `atomic_write`; text is written as UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents; raises `InputError` where the system refuses."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"the folder cannot be created ({error.strerror}); choose another"
        raise InputError(f"{folder}: {reason}.") from error


@contextmanager
def folder_made(folder: Path) -> Iterator[None]:
    """`make_folder` for a block: an error inside removes the folders that were created and are empty."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        make_folder(folder)
        yield
    except BaseException:
        for parent in missing:
            with suppress(OSError):  # not created yet, or not empty
                parent.rmdir()
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes from a folder in which no other process is writing."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(OSError):
            path.unlink()


def _mode_of_regular_file(target: Path) -> int | None:
    """The permissions to keep, None for a new file; a folder or a device such as /dev/null is refused."""
    if not target.exists():
        return None
    mode = target.stat().st_mode
    if not stat.S_ISREG(mode):
        raise OSError(f"a {'folder' if stat.S_ISDIR(mode) else 'special file'} is there")
    return stat.S_IMODE(mode)


def _flush_to_disk(path: Path) -> None:
    """Make a file, or the list of names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
