"""Results on disk: JSON with a checksum, and arrays; whole or refused with one sentence."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from carom.storage.atomic import make_folder, write_whole
from carom.storage.input_file import complaint, require_file, shown
from carom.storage.tensor_file import read_tensors, write_tensors

MAXIMUM_BYTES = 2**25
"""The largest file of results."""
_CHECK = "sha256"


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON with its own hash; missing folders are created."""
    make_folder(path.parent)
    write_whole(path, json.dumps(dict(result) | {_CHECK: _hash(result)}, indent=1) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """What `write_result` wrote."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="result")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(result, dict) or result.pop(_CHECK, None) != _hash(result):
            raise ValueError("its contents have changed since it was written")
        return result
    except (OSError, ValueError, RecursionError) as error:
        problem = f"the file cannot be read ({shown(error)}); delete it and run the same command again"
        raise complaint(path, problem) from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name; missing folders are created."""
    make_folder(path.parent)
    write_tensors(path, arrays, {})


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote; nothing in the file is executed."""
    return read_tensors(path, kind="file of arrays")[1]


def _hash(result: Mapping[str, Any]) -> str:
    # Keys and numbers as JSON has them, so that the hash after reading equals that before writing.
    return hashlib.sha256(json.dumps(json.loads(json.dumps(result)), sort_keys=True).encode()).hexdigest()
