"""Runs the cases, each in fresh processes with an empty and then a warm cache; compares, and makes tables."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from carom.bench.cases import FIT_CASES, MODEL_CASES, NAMES, PUBLISHED_FIT_CPU_SECONDS
from carom.digits import MISSING
from carom.errors import InputError, find_names
from carom.evaluation.results import Results, read_results, tidy_rows, wide, write_results
from carom.evaluation.tables import Cell, Table, arrange, cell, tabulate
from carom.storage.input_file import complaint

COMMAND = "carom bench"


def run_bench(
    names: Sequence[str] = (),
    *,
    out: Path | None = None,
    quick: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Results:
    """Measure the cases whose names begin with one of `names`, all where none is given.

    Arguments:
        names: of cases.
        out: a file for the results.
        quick: do much less work, to see that everything runs; the numbers mean little.
        progress: called with the fraction of cases done.
    """
    cases = find_names(names, NAMES, kind="case")
    rows, device = [], ""
    for done, case in enumerate(cases):
        figures, device = _measure(case, quick=quick)
        rows += tidy_rows({"experiment": case}, figures)
        if progress is not None:
            progress((done + 1) / len(cases))
    options = [*(["--quick"] if quick else []), *(["--only", *names] if names else [])]
    machine = f"{_processor()}, {os.cpu_count()} cores, {device}"
    return write_results(out, rows, command=" ".join([COMMAND, *options]), machine=machine)


def _measure(case: str, *, quick: bool) -> tuple[dict[str, Any], str]:
    """The figures of one case, and the device that it ran on."""
    with tempfile.TemporaryDirectory(prefix="carom-bench-") as cache:
        cold, cold_seconds = _process(case, quick=quick, cache=cache)
        warm, warm_seconds = _process(case, quick=quick, cache=cache)
    # The second process finds its programs compiled: it measures what users see every day.
    figures = dict(warm["figures"])
    for name, value in cold["figures"].items():
        if name == "compile_seconds":
            figures |= {"cold_compile_seconds": value, "warm_compile_seconds": figures.pop(name)}
        elif name.endswith("_second"):
            figures[name] = max(figures[name], value)  # the less disturbed of the two
    if case in FIT_CASES:
        figures |= {"cold_wall_seconds": cold_seconds, "cold_cpu_seconds": cold["cpu_seconds"]}
        figures |= {"wall_seconds": warm_seconds, "cpu_seconds": warm["cpu_seconds"]}
    return figures, warm["device"]


def _process(case: str, *, quick: bool, cache: str) -> tuple[dict[str, Any], float]:
    """The report of a fresh process on a case, and the seconds from its start to its end."""
    # A new process, because JAX keeps compiled programs in memory.
    command = [sys.executable, "-m", "carom.bench.cases", case, *(["quick"] if quick else [])]
    started = time.perf_counter()
    environment = {**os.environ, "CAROM_CACHE": cache}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise InputError(f"The case {case} could not be measured ({lines[-1]}).")
    return json.loads(done.stdout.splitlines()[-1]), seconds


def read_bench(path: Path) -> Results:
    """Read a file that `carom bench --out` wrote; anything else is an `InputError`."""
    results = read_results(path)
    header = results.header
    if not str(header.get("command")).startswith(COMMAND) or not isinstance(header.get("versions"), dict):
        raise complaint(path, "these are results of another command; make some with `carom bench --out`")
    return results


def compare(now: Results, before: Results) -> tuple[pl.DataFrame, list[str]]:
    """Ratios by case and figure, greater than 1 where `now` is better; and other differences, in words.

    Example:
        >>> row = {"experiment": "a", "metric": "steps_per_second"}
        >>> now, before = (Results(pl.DataFrame([row | {"value": v}]), {"command": ""}) for v in (6.0, 3.0))
        >>> compare(now, before)[0].rows()
        [('a', 'steps_per_second', 2.0)]
    """
    keys, value, earlier = ["experiment", "metric"], pl.col("value"), pl.col("value_right")
    # Rates and costs; other figures are neither better nor worse.
    rate, cost = (pl.col("metric").str.contains(end) for end in ("_second$", "(seconds|bytes|error)$"))
    ratios = (
        # A ratio to nothing says nothing.
        now.rows.join(before.rows.filter(value > 0), on=keys, maintain_order="left")
        .filter(value > 0, rate | cost)
        .select(*keys, ratio=pl.when(rate).then(value / earlier).otherwise(earlier / value))
    )
    there, here = (
        {**one.header.get("versions", {}), "machine": one.header.get("machine")} for one in (before, now)
    )
    differences = [
        f"{name}: {there.get(name, 'none')} then, {here.get(name, 'none')} now"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]
    if ("--quick" in now.header["command"]) != ("--quick" in before.header["command"]):
        differences.append("one of the two was made with --quick")
    return ratios, differences


def _processor() -> str:
    # On Linux `platform.processor()` gives the architecture only, or nothing.
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def model_table(rows: pl.DataFrame) -> Table:
    """Training and forecasts of every model."""
    return _table(
        rows,
        {name: case.title for name, case in MODEL_CASES.items()},
        {
            # Per second of CPU time: wall time depends on how many cores are free.
            "training steps per CPU-second": cell("training_steps_per_cpu_second", lambda x: f"{x[0]:.0f}"),
            "published code": lambda group: MODEL_CASES[group["experiment"][0]].published or MISSING,
            "forecast steps per second, one": cell("forecast_one_steps_per_second", _rate),
            "many": cell("forecast_many_steps_per_second", _rate),
            "compiled in s, cold": cell("cold_compile_seconds", _seconds),
            "warm": cell("warm_compile_seconds", _seconds),
            "memory / MB": cell("peak_memory_bytes", lambda x: f"{x[0] / 1e6:.0f}"),
        },
    )


def fit_table(rows: pl.DataFrame) -> Table:
    """Fits of the ball from the start of a process."""
    return _table(
        rows,
        FIT_CASES,
        {
            "error": cell("error", lambda x: f"{x[0]:.3f}"),
            "wall s": cell("wall_seconds", _seconds),
            "CPU s": cell("cpu_seconds", _seconds),
            "published CPU s": lambda group: str(PUBLISHED_FIT_CPU_SECONDS),
            "wall s, cold": cell("cold_wall_seconds", _seconds),
            "CPU s, cold": cell("cold_cpu_seconds", _seconds),
        },
    )


def _table(rows: pl.DataFrame, titles: Mapping[str, str], columns: Mapping[str, Cell]) -> Table:
    """The rows of some cases in the order of their titles."""
    chosen = arrange(wide(rows.filter(pl.col("experiment").is_in(list(titles)))), experiment=titles)
    return tabulate(chosen, {"experiment": "case"}, columns, caption="", labels={"experiment": titles})


def _seconds(values: pl.Series) -> str:
    return f"{values[0]:.1f}"


def _rate(values: pl.Series) -> str:
    rate = values[0]
    return f"{rate / 1e6:.2f} million" if rate >= 1e6 else f"{rate / 1e3:.0f} thousand"


BENCH_TABLES = {"speed": model_table, "speed-fits": fit_table}
"""By the name of their marker in pages."""
