"""A run of `carom bench` with round numbers."""

from typing import Any

_MODEL = {
    "training_steps_per_second": 1500.0,
    "training_steps_per_cpu_second": 1600.0,
    "forecast_one_steps_per_second": 5e5,
    "forecast_one_seconds": 1e-3,
    "forecast_many_steps_per_second": 1.2e6,
    "forecast_many_steps_per_cpu_second": 1.2e6,
    "cold_training_compile_seconds": 4.0,
    "warm_training_compile_seconds": 1.0,
    "cold_forecast_compile_seconds": 1.0,
    "warm_forecast_compile_seconds": 0.5,
    "peak_memory_bytes": 4e8,
}
_FIT = {"wall_seconds": 5.0, "cpu_seconds": 10.0, "cold_wall_seconds": 20.0, "cold_cpu_seconds": 40.0}
STORED: dict[str, Any] = {
    "kind": "carom bench",
    "schema": 1,
    "command": "carom bench",
    "quick": False,
    "machine": {"processor": "a fast one", "cores": 2, "device": "cpu: cpu"},
    "versions": {"carom": "1.0", "jax": "1.0"},
    "rows": [
        {
            "case": "ball-cd-lagrange",
            "title": "ball, CD-Lagrange",
            "reference": [160, 200],
            "figures": _MODEL,
        },
        {"case": "fit-carom", "title": "ball, recipe carom", "figures": {**_FIT, "error": 0.02}},
        {
            "case": "fit-paper",
            "title": "ball, recipe paper",
            "figures": {**_FIT, "cpu_seconds": 25.0, "error": 0.5, "epochs": 1500.0},
        },
    ],
}
