"""A run beside a stored one: how many times better every figure is, and what else differs."""

import json
from pathlib import Path
from typing import Any

from carom.bench.run import KIND, SCHEMA, Document
from carom.storage.input_file import complaint, require_file

MAXIMUM_BYTES = 2**22


def read_bench(path: Path) -> Document:
    """What `carom bench` wrote; anything else is refused in a sentence."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="stored run of carom bench")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise complaint(path, "this is not JSON; name a file that `carom bench --out` wrote") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise complaint(path, "this is not what `carom bench` writes; make one with `carom bench --out`")
    if document.get("schema") != SCHEMA or not _whole(document):
        raise complaint(path, "this run is of another version; make it again with `carom bench --out`")
    return document


def compare(document: Document, stored: Document) -> dict[str, Any]:
    """Ratios by case and figure, greater than 1 where `document` is better, and differences in words.

    Example:
        >>> row = {"case": "a", "figures": {"steps_per_second": 6.0, "error": 0.1}}
        >>> older = {"case": "a", "figures": {"steps_per_second": 3.0, "error": 0.3}}
        >>> base = {"machine": {}, "versions": {}, "quick": False}
        >>> compare({**base, "rows": [row]}, {**base, "rows": [older]})["ratios"]["a"]["steps_per_second"]
        2.0
    """
    older = {row["case"]: row["figures"] for row in stored["rows"]}
    ratios = {}
    for row in document["rows"]:
        before = older.get(row["case"], {})
        pairs = {name: (value, before[name]) for name, value in row["figures"].items() if name in before}
        found = {name: _times_better(name, *pair) for name, pair in pairs.items()}
        if found:
            ratios[row["case"]] = {name: ratio for name, ratio in found.items() if ratio is not None}
    return {"ratios": ratios, "differences": _differences(document, stored)}


def _times_better(name: str, value: float, before: float) -> float | None:
    if value <= 0 or before <= 0:
        return None
    if name.endswith(("per_second", "per_cpu_second")):
        return value / before
    return before / value if name.endswith(("seconds", "bytes", "error")) else None


def _differences(document: Document, stored: Document) -> list[str]:
    found = []
    for part in ("machine", "versions"):
        for name in sorted({*document[part], *stored[part]}):
            now, before = document[part].get(name), stored[part].get(name)
            if now != before:
                found.append(f"{name}: {before or 'none'} then, {now or 'none'} now")
    if document["quick"] != stored["quick"]:
        found.append("one of the two was made with --quick")
    return found


def _whole(document: Document) -> bool:
    """Whether everything is there that a comparison reads."""
    parts = ("machine", "versions")
    return (
        all(isinstance(document.get(part), dict) for part in parts)
        and isinstance(document.get("quick"), bool)
        and isinstance(document.get("rows"), list)
        and all(_is_row(row) for row in document["rows"])
    )


def _is_row(row: object) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("case"), str)
        and isinstance(row.get("figures"), dict)
        and all(isinstance(value, int | float) for value in row["figures"].values())
    )
