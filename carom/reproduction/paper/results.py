"""Former writing of documents, until every caller is on `carom.evaluation.results`."""

import json
import math
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import carom
from carom.storage.atomic import atomic_write
from carom.storage.fingerprint import source_hash


def write_document(path: Path, *, command: str, devices: Iterable[str], **content: Any) -> dict[str, Any]:
    """Results with what made them: the command, versions, a hash of the source, devices; returns all that."""
    document = {
        "command": command,
        "versions": {
            "carom": carom.__version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "source_sha256": source_hash(),
        "devices": sorted(set(devices)),
        **content,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return document


def rounded(value: Any) -> Any:
    """Five digits all the way down; null for what is not finite, which JSON cannot hold.

    Example:
        >>> rounded({"errors": [1.23456789, float("nan")], "seed": 3})
        {'errors': [1.2346, None], 'seed': 3}
    """
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None
