"""Runs the cases, each in fresh processes with an empty and then a warm cache; compares, and makes tables."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from carom.bench.cases import (
    FIT_CASES,
    MODEL_CASES,
    NAMES,
    PUBLISHED_EPOCHS,
    PUBLISHED_FIT_CPU_SECONDS,
)
from carom.digits import MISSING
from carom.errors import InputError, find_names
from carom.evaluation.tables import Table, table_of
from carom.storage.fingerprint import source_hash
from carom.storage.input_file import complaint, require_file
from carom.version import __version__

MAXIMUM_BYTES = 2**22

Document = dict[str, Any]


@dataclass
class _Row:
    case: str
    figures: dict[str, float]


@dataclass
class _Stored:
    """What a comparison reads of a stored run."""

    kind: Literal["carom bench"]
    schema: Literal[1]
    quick: bool
    machine: dict[str, Any]
    versions: dict[str, str]
    rows: list[_Row]


def run_bench(
    names: Sequence[str] = (), *, quick: bool = False, progress: Callable[[float], None] | None = None
) -> Document:
    """Measure the cases whose names begin with one of `names`, all where none is given.

    Arguments:
        names: of cases.
        quick: do much less work, to see that everything runs; the numbers mean little.
        progress: called with the fraction of cases done.
    """
    cases = find_names(names, NAMES, kind="case")
    rows, device = [], ""
    for done, case in enumerate(cases):
        row, device = _measure(case, quick=quick)
        rows.append(row)
        if progress is not None:
            progress((done + 1) / len(cases))
    options = [*(["--quick"] if quick else []), *(["--only", *names] if names else [])]
    # Speed depends on these as much as on our own code.
    libraries = {name: version(name) for name in ("jax", "jaxlib")}
    return {
        "kind": "carom bench",
        "schema": 1,
        "command": " ".join(["carom bench", *options]),
        "quick": quick,
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "device": device},
        "versions": {"carom": __version__, "python": platform.python_version(), **libraries},
        "source": source_hash(),
        "rows": rows,
    }


def _measure(case: str, *, quick: bool) -> tuple[dict[str, Any], str]:
    """The row of one case, and the device that it ran on."""
    with tempfile.TemporaryDirectory(prefix="carom-bench-") as cache:
        cold, cold_seconds = _process(case, quick=quick, cache=cache)
        warm, warm_seconds = _process(case, quick=quick, cache=cache)
    # The second process finds its programs compiled: it measures what users see every day.
    figures = dict(warm["figures"])
    for name, value in cold["figures"].items():
        if name.endswith("compile_seconds"):
            figures[f"cold_{name}"] = value
            figures[f"warm_{name}"] = figures.pop(name)
        elif "per_second" in name or "per_cpu_second" in name:
            figures[name] = max(figures[name], value)  # the less disturbed of the two
    if case in FIT_CASES:
        figures |= {
            "cold_wall_seconds": cold_seconds,
            "cold_cpu_seconds": cold["cpu_seconds"],
            "wall_seconds": warm_seconds,
            "cpu_seconds": warm["cpu_seconds"],
        }
        return {"case": case, "title": FIT_CASES[case], "figures": figures}, warm["device"]
    row = {"case": case, "title": MODEL_CASES[case].title, "figures": figures}
    reference = MODEL_CASES[case].reference
    return row | ({"reference": list(reference)} if reference else {}), warm["device"]


def _process(case: str, *, quick: bool, cache: str) -> tuple[dict[str, Any], float]:
    """The report of a fresh process on a case, and the seconds from its start to its end."""
    # A new process, because JAX keeps compiled programs in memory.
    command = [sys.executable, "-m", "carom.bench.cases", case, *(["quick"] if quick else [])]
    started = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "CAROM_CACHE": cache}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise InputError(f"The case {case} could not be measured ({lines[-1]}).")
    return json.loads(done.stdout.splitlines()[-1]), seconds


def read_bench(path: Path) -> Document:
    """Read a file that `carom bench --out` wrote; anything else is an `InputError`."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="stored run of carom bench")
    try:
        content = path.read_bytes()
        TypeAdapter(_Stored).validate_json(content)
        return json.loads(content)  # with what comparisons do not read
    except (OSError, ValidationError):
        problem = "this is not what `carom bench` writes, or of another version"
        raise complaint(path, f"{problem}; make one with `carom bench --out`") from None


def compare(document: Document, stored: Document) -> dict[str, Any]:
    """Ratios by case and figure, greater than 1 where `document` is better, and differences in words.

    Example:
        >>> row = {"case": "a", "figures": {"steps_per_second": 6.0, "error": 0.1}}
        >>> older = {"case": "a", "figures": {"steps_per_second": 3.0, "error": 0.3}}
        >>> base = {"machine": {}, "versions": {}, "quick": False}
        >>> compare({**base, "rows": [row]}, {**base, "rows": [older]})["ratios"]["a"]["steps_per_second"]
        2.0
    """
    # By name, not by place: the two runs may have measured different cases.
    earlier = {row["case"]: row["figures"] for row in stored["rows"]}
    ratios: dict[str, dict[str, float]] = {}
    for row in document["rows"]:
        before = earlier.get(row["case"], {})
        for name, value in row["figures"].items():
            ratio = _improvement(name, value, before.get(name, 0.0))
            if ratio is not None:
                ratios.setdefault(row["case"], {})[name] = ratio
    differences = []
    for part in ("machine", "versions"):
        for name in sorted({*document[part], *stored[part]}):
            now, then = document[part].get(name), stored[part].get(name)
            if now != then:
                differences.append(f"{name}: {then or 'none'} then, {now or 'none'} now")
    if document["quick"] != stored["quick"]:
        differences.append("one of the two was made with --quick")
    return {"ratios": ratios, "differences": differences}


def _improvement(name: str, value: float, before: float) -> float | None:
    """How many times better a figure is; None where it is not measured or neither a rate nor a cost."""
    # A ratio to nothing says nothing.
    if value <= 0 or before <= 0:
        return None
    if name.endswith(("per_second", "per_cpu_second")):
        return value / before
    return before / value if name.endswith(("seconds", "bytes", "error")) else None


def _processor() -> str:
    # On Linux `platform.processor()` gives the architecture only, or nothing.
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def model_table(document: Document) -> Table:
    """Training and forecasts of every model."""
    lines = []
    for row in _of(document, MODEL_CASES):
        figures, reference = row["figures"], row.get("reference")
        rate, memory = (figures.get(name) for name in ("training_steps_per_cpu_second", "peak_memory_bytes"))
        # Of training and forecasts together.
        cold, warm = (
            sum(value for name, value in figures.items() if name.startswith(state) and "compile" in name)
            for state in ("cold", "warm")
        )
        lines.append(
            {
                "case": row["title"],
                # Per second of CPU time: wall time depends on how many cores are free.
                "training steps per CPU-second": MISSING if rate is None else f"{rate:.0f}",
                "published code": "–".join(map(str, dict.fromkeys(reference))) if reference else MISSING,
                "forecast steps per second, one": _rate(figures["forecast_one_steps_per_second"]),
                "many": _rate(figures["forecast_many_steps_per_second"]),
                "compiled in s, cold": f"{cold:.1f}",
                "warm": f"{warm:.1f}",
                "memory / MB": MISSING if memory is None else f"{memory / 1e6:.0f}",
            }
        )
    return table_of("", lines)


def fit_table(document: Document) -> Table:
    """Fits of the ball from the start of a process."""
    lines = []
    for row in _of(document, FIT_CASES):
        figures = row["figures"]
        # Fewer epochs are compared with the published code's time for as many; the recipe carom has none, and
        # is compared with the whole published training.
        epochs = figures.get("epochs", PUBLISHED_EPOCHS)
        reference = PUBLISHED_FIT_CPU_SECONDS * epochs / PUBLISHED_EPOCHS
        lines.append(
            {
                "case": f"{row['title']}, {epochs:.0f} epochs" if "epochs" in figures else row["title"],
                "error": f"{figures['error']:.3f}",
                "wall s": f"{figures['wall_seconds']:.1f}",
                "CPU s": f"{figures['cpu_seconds']:.1f}",
                "published CPU s": f"{reference:.0f}",
                "wall s, cold": f"{figures['cold_wall_seconds']:.1f}",
                "CPU s, cold": f"{figures['cold_cpu_seconds']:.1f}",
            }
        )
    return table_of("", lines)


def _of(document: Document, cases: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of some cases."""
    return [row for row in document["rows"] if row["case"] in cases]


def _rate(value: float) -> str:
    return f"{value / 1e6:.2f} million" if value >= 1e6 else f"{value / 1e3:.0f} thousand"


BENCH_TABLES = {"speed": model_table, "speed-fits": fit_table}
"""By the name of their marker in pages."""
