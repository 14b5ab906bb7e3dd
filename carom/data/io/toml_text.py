"""The text of TOML files that users write, with a complaint for every way in which it can be broken."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carom.storage.input_file import complaint, not_utf8, require_file, shown, unreadable

MAXIMUM_BYTES = 2**20
"""The largest file that is read."""
_MAXIMUM_DOTS = 200
# A dot that is not the only one of a number. Python's reader takes quadratic time for keys such as a.a.a.a…
_DOT_OF_KEY = re.compile(r"(?<![0-9])\.|\.(?![0-9])|\.[0-9]+(?=\.)")


def read_toml_text(path: Path, *, kind: str) -> str:
    """The text of a file.

    Arguments:
        path: the file, as the user named it.
        kind: what it should be, such as "system file", for complaints.
    """
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind=kind)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, content[: error.start].count(b"\n") + 1) from None


def parse_toml(path: Path, text: str) -> Mapping[str, Any]:
    """The tables of a TOML text; `path` is for complaints."""
    for number, line in enumerate(text.split("\n"), start=1):
        if sum(1 for _ in _DOT_OF_KEY.finditer(line)) > _MAXIMUM_DOTS:
            raise complaint(path, "there are too many dots; write plain keys", f"line {number}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = shown(error, length=120)
        problem = f"this is not TOML: {reason[:1].lower()}{reason[1:]}; correct the line"
        raise complaint(path, problem) from error
    except (ValueError, RecursionError) as error:
        # Python's own limits, on the digits of a whole number and on the depth of lists.
        raise complaint(path, "a number is too long or a list too deep; simplify it") from error
