"""How long `carom reproduce` takes from the start of the process, with nothing compiled before and again.

    python -m benchmarks.reproduce_time [--out benchmarks/results/reproduce-time.json] [--cold-only]

On a GPU start `nvidia-cuda-mps-control -d` first, or the processes that share it take turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = ["reproduce"]


def measure(cache: Path, out: Path) -> dict[str, float]:
    """Seconds of one run of the command, and the processor seconds of it and its workers."""
    begin, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "carom", *COMMAND, "--out", str(out)]
    subprocess.run(command, check=True, env=os.environ | {"CAROM_CACHE": str(cache)})
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": round(time.perf_counter() - begin, 1), "processor_seconds": round(spent, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/reproduce-time.json"))
    parser.add_argument("--cold-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        cases = {"cold": measure(cache, Path(folder) / "cold")}
        if not options.cold_only:
            cases["warm"] = measure(cache, Path(folder) / "warm")
        paper = json.loads((Path(folder) / "cold" / "paper.json").read_text())
    keys = ("machine", "versions", "source_sha256", "commit")
    row = {"cores": os.cpu_count(), **cases, **{key: paper[key] for key in keys}}
    row |= {"seeds": sorted({line["seed"] for line in paper["rows"]})}
    known = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = [one for one in known if (one["machine"], one["cores"]) != (row["machine"], row["cores"])]
    document = {"command": "python -m benchmarks.reproduce_time", "measured": "carom " + " ".join(COMMAND)}
    options.out.write_text(json.dumps(document | {"rows": [*rows, row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
