"""Input files: checks before any content is read, and the form of all messages about files."""

import difflib
import stat
from collections.abc import Iterable
from pathlib import Path

from carom.errors import InputError


def shown(text: object, *, length: int = 60) -> str:
    """Text from a file as part of a message: on one line, printable, and no longer than `length`."""
    printable = "".join(c if c.isprintable() else "�" for c in str(text))
    return printable if len(printable) <= length else printable[: length - 1] + "…"


def complaint(path: Path, problem: str, *places: str) -> InputError:
    """The error `file, place, place: problem.`

    Arguments:
        path: the file, as the user named it.
        problem: what is wrong and what to do; a full stop is added unless it is a question.
        places: where in the file, for example "row 12" and "column q1".
    """
    where = ", ".join([shown(path, length=1000), *(shown(place, length=200) for place in places)])
    return InputError(f"{where}: {problem}{'' if problem.endswith('?') else '.'}")


def suggestion(name: str, choices: Iterable[str]) -> str:
    """`did you mean …?` where one of the choices is similar, and the list of choices otherwise."""
    choices = list(choices)[:1000]  # the search takes time proportional to their number
    folded = {choice.casefold(): choice for choice in reversed(choices)}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {shown(folded[near[0]])}?"
    listed = ", ".join(shown(choice) for choice in choices[:12])
    return f"the names here are {listed}" + (", …" if len(choices) > 12 else "")


def require_file(path: Path, *, maximum_bytes: int, kind: str) -> None:
    """Refuse what is not a regular, non-empty file of bounded size.

    Arguments:
        path: the file, as the user named it.
        maximum_bytes: the largest size that will be read.
        kind: what the file should be, such as "recording".
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise complaint(path, f"there is no such file; check the name of the {kind}") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(status.st_mode):
        raise complaint(path, f"this is a folder, not a {kind}; name a file in it")
    # A pipe or a device may never end.
    if not stat.S_ISREG(status.st_mode):
        raise complaint(path, f"this is not a regular file; save the {kind} to disk first")
    if status.st_size == 0:
        raise complaint(path, f"the file is empty; a {kind} was expected")
    # By its size alone: nothing has been read yet.
    if status.st_size > maximum_bytes:
        raise complaint(
            path, f"the file is larger than {size(maximum_bytes)}, the most that is read; shorten it"
        )


def unreadable(path: Path, error: Exception) -> InputError:
    """The error for a file that the operating system refuses to open."""
    reason = getattr(error, "strerror", None) or shown(error)
    return complaint(path, f"the file cannot be read ({reason}); check its name and permissions")


def not_utf8(path: Path, line: int) -> InputError:
    """The error for a text file in another encoding."""
    return complaint(path, "the text is not UTF-8; save the file with that encoding", f"line {line}")


def size(number: int) -> str:
    """A number of bytes in words, such as 1.5 MiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number} bytes"
