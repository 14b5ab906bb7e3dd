"""A hash of everything that a result depends on, the same in every process."""

import hashlib
import inspect
import os
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from carom.version import __version__


def fingerprint(*parts: Any) -> str:
    """Changes with the version, with any field of `parts`, and with any element of arrays in them.

    Not made from `repr`: Equinox leaves out fields that are the default object itself, which a copy made for
    another process no longer is; and NumPy leaves out most of a long array.
    """
    return hashlib.sha256(f"{__version__} {_canonical(parts)}".encode()).hexdigest()


@cache
def source_hash() -> str:
    """A hash of the package's source files, to tell which code made a result."""
    digest = hashlib.sha256()
    # Sorted, as file systems list them in any order.
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _class_name(kind: type) -> str:
    """The name of a class; of one that is defined elsewhere, such as a force of one's own, with a hash of its
    code."""
    if kind.__module__.split(".")[0] == "carom":
        return kind.__name__
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # typed at a prompt: good for this process alone
        source = f"{os.getpid()} {id(kind)}"
    return f"{kind.__module__}.{kind.__qualname__} {hashlib.sha256(source.encode()).hexdigest()}"


def _canonical(value: Any) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(f"{one.name}={_canonical(getattr(value, one.name))}" for one in fields(value))
        return f"{_class_name(type(value))}({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_canonical(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_canonical(part) for part in value) + ")"
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value, order="C")
        return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
    return repr(value)
