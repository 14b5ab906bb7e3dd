"""One case in a process of its own: `python -m carom.bench.process CASE [quick]`.

Its last line of output is a JSON object. CPU seconds count from the start of the process, loading included.
"""

import json
import os
import sys
import time

import jax

from carom.bench.cases import FIT_CASES, FORECAST_STEPS, MODEL_CASES, REFERENCE_EPOCHS, SYSTEMS
from carom.bench.fitting import fit_by_carom, fit_by_paper
from carom.bench.forecasting import measure_forecasts
from carom.bench.peer import race
from carom.bench.training import measure_training
from carom.storage.compilation_cache import configure


def figures_of(name: str, *, quick: bool) -> dict[str, float]:
    """Do the work of a case."""
    if name in FIT_CASES:
        if name == "fit-carom":
            return fit_by_carom()
        return fit_by_paper(epochs=20 if quick else REFERENCE_EPOCHS)
    if name not in MODEL_CASES:
        return race(accuracy=3e-2 if quick else 1e-3)
    _use_one_core()
    case = MODEL_CASES[name]
    model, recording = case.build()
    figures: dict[str, float] = {}
    if case.trained:
        figures |= measure_training(model, recording, epochs=20 if quick else 200, repeats=1 if quick else 3)
    return figures | measure_forecasts(
        model,
        SYSTEMS[case.system].start,
        steps=50 if quick else FORECAST_STEPS,
        many=100 if quick else 10_000,
        repeats=1 if quick else 2,
    )


def main() -> None:
    """Measure one case and print what came out."""
    configure()
    name, quick = sys.argv[1], sys.argv[2:] == ["quick"]
    figures = figures_of(name, quick=quick)
    memory = _peak_memory()
    if memory is not None:
        figures["peak_memory_bytes"] = memory
    device = jax.devices()[0]
    report = {
        "figures": figures,
        "cpu_seconds": time.process_time(),
        "device": f"{device.platform}: {device.device_kind}",
    }
    print(json.dumps(report), flush=True)


def _use_one_core() -> None:
    """So that a second of CPU time is a second of work."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _peak_memory() -> float | None:
    """Bytes that the device, or where it does not say the process, held at most."""
    statistics = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        return float(statistics["peak_bytes_in_use"])
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


if __name__ == "__main__":
    main()
