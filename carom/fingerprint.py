"""A hash of everything that a result depends on, the same in every process."""

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

from carom.version import __version__


def fingerprint(*parts: Any) -> str:
    """Changes with the version and with any field of `parts`.

    Not made from `repr`: Equinox leaves out fields that are the default object itself, which a copy made for
    another process no longer is.
    """
    return hashlib.sha256(f"{__version__} {_canonical(parts)}".encode()).hexdigest()


def _canonical(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(
            f"{field.name}={_canonical(getattr(value, field.name))}" for field in fields(value)
        )
        return f"{type(value).__name__}({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_canonical(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_canonical(part) for part in value) + ")"
    return repr(value)
