"""Results on disk: JSON with a checksum and NPZ arrays, whole or refused with one sentence."""

import hashlib
import json
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from carom.errors import InputError
from carom.storage.atomic import atomic_write, make_folder, write_whole
from carom.storage.input_file import complaint, require_file, shown

MAXIMUM_BYTES, MAXIMUM_ARRAY_BYTES = 2**25, 2**28
"""The largest file of results, and the largest total size of arrays."""
_CHECK = "sha256"


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result as JSON with its own hash; missing folders are created."""
    make_folder(path.parent)
    write_whole(path, json.dumps(dict(result) | {_CHECK: _hash(result)}, indent=1) + "\n")


def read_result(path: Path) -> dict[str, Any]:
    """What `write_result` wrote; an empty result where there is no hash, as in files of older versions."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="result")
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        # An older result is not wrong, only to be made again.
        if isinstance(result, dict) and _CHECK not in result:
            return {}
        whole = isinstance(result, dict) and result.pop(_CHECK) == _hash(result)
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from error
    if not whole:
        raise unreadable(path, "its contents have changed since it was written")
    return result


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as NPZ."""
    make_folder(path.parent)
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote; nothing in the file is executed."""
    require_file(path, maximum_bytes=MAXIMUM_ARRAY_BYTES, kind="file of arrays")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > MAXIMUM_ARRAY_BYTES:
            raise unreadable(path, "its arrays are too large")
        with warnings.catch_warnings(), np.load(path, allow_pickle=False) as stored:
            warnings.simplefilter("ignore")  # Python warns of odd escapes in a damaged header
            arrays = dict(stored)
        if not all(isinstance(part, np.ndarray) for part in arrays.values()):
            raise unreadable(path, "it contains something other than arrays")
        return arrays
    except InputError:
        raise
    except Exception as error:
        # Damaged bytes raise errors of every kind in the zip reader, its decompressors and NumPy's header.
        raise unreadable(path, error) from error


def unreadable(path: Path, reason: object) -> InputError:
    """The error for a result that cannot be used."""
    problem = f"the file cannot be read ({shown(reason)}); delete it and run the same command again"
    return complaint(path, problem)


def _hash(result: Mapping[str, Any]) -> str:
    # Keys and numbers as JSON has them, so that the hash after reading equals that before writing.
    return hashlib.sha256(json.dumps(json.loads(json.dumps(result)), sort_keys=True).encode()).hexdigest()
