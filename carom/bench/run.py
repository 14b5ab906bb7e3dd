"""Runs the cases, each in fresh processes with a cache that is empty the first time and warm the second."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from carom.bench.cases import FIT_CASES, MODEL_CASES, PEER, chosen
from carom.bench.peer import missing
from carom.errors import InputError
from carom.storage.fingerprint import source_hash
from carom.version import __version__

KIND, SCHEMA = "carom bench", 1
LIBRARIES = ("jax", "jaxlib", "torch", "torchdiffeq")

Document = dict[str, Any]


def run_bench(
    names: Sequence[str] = (), *, quick: bool = False, progress: Callable[[float], None] | None = None
) -> Document:
    """Measure the cases whose names begin with one of `names`, all where none is given.

    Arguments:
        names: of cases.
        quick: do much less work, to see that everything runs; the numbers mean little.
        progress: called with the share of cases done.
    """
    cases = chosen(tuple(names))
    rows, skipped, device = [], [], ""
    for done, case in enumerate(cases):
        if case == PEER and missing():
            reason = f"{' and '.join(missing())} cannot be found; install the extra bench"
            skipped.append({"case": case, "reason": reason})
        else:
            row, device = _measure(case, quick=quick)
            rows.append(row)
        if progress is not None:
            progress((done + 1) / len(cases))
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "command": " ".join(["carom bench", *(["--quick"] if quick else []), *_only(names)]),
        "quick": quick,
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "device": device},
        "versions": {"carom": __version__, "python": platform.python_version(), **_versions()},
        "source": source_hash(),
        "rows": rows,
        "skipped": skipped,
    }


def _measure(case: str, *, quick: bool) -> tuple[dict[str, Any], str]:
    """The row of one case, and the device that it ran on."""
    with tempfile.TemporaryDirectory(prefix="carom-bench-") as cache:
        cold, cold_seconds = _process(case, quick=quick, cache=cache)
        warm, warm_seconds = _process(case, quick=quick, cache=cache)
    figures, colder = dict(warm["figures"]), cold["figures"]
    for name, value in colder.items():
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
    title = MODEL_CASES[case].title if case in MODEL_CASES else FIT_CASES.get(case, "ball, torchdiffeq")
    row: dict[str, Any] = {"case": case, "title": title, "figures": figures}
    reference = MODEL_CASES[case].reference if case in MODEL_CASES else None
    return row | ({"reference": list(reference)} if reference else {}), warm["device"]


def _process(case: str, *, quick: bool, cache: str) -> tuple[dict[str, Any], float]:
    """What a fresh process reports of a case, and the seconds from its start to its end."""
    command = [sys.executable, "-m", "carom.bench.process", case, *(["quick"] if quick else [])]
    started = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "CAROM_CACHE": cache}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise InputError(f"The case {case} could not be measured ({lines[-1]}).")
    return json.loads(done.stdout.splitlines()[-1]), seconds


def _only(names: Sequence[str]) -> list[str]:
    return ["--only", *names] if names else []


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except ImportError:  # not installed
            continue
    return found


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
