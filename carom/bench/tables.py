"""Tables of a run of `carom bench`, for the terminal and for pages."""

from typing import Any

from carom.bench.cases import (
    FIT_CASES,
    FORECAST_STEPS,
    MODEL_CASES,
    PUBLISHED_EPOCHS,
    PUBLISHED_FIT_CPU_SECONDS,
    PUBLISHED_FORECAST_SECONDS,
)
from carom.bench.run import Document
from carom.digits import MISSING
from carom.evaluation.tables import Table

_MODEL_HEADER = (
    "case",
    "training steps per CPU-second",
    "published code",
    "forecast steps per second, one",
    "many",
    "compiled in s, cold",
    "warm",
    "memory / MB",
)
_FIT_HEADER = ("case", "error", "wall s", "CPU s", "published CPU s", "wall s, cold", "CPU s, cold")


def model_table(document: Document) -> Table:
    """Training and forecasts of every model."""
    rows = [_model_row(row) for row in document["rows"] if row["case"] in MODEL_CASES]
    return Table("", _MODEL_HEADER, tuple(rows))


def fit_table(document: Document) -> Table:
    """Fits of the ball from the start of a process."""
    rows = [_fit_row(row) for row in document["rows"] if row["case"] in FIT_CASES]
    return Table("", _FIT_HEADER, tuple(rows))


def describe_forecasts(document: Document) -> str:
    """A few sentences on forecasts and compilation."""
    models = {row["case"]: row["figures"] for row in document["rows"] if row["case"] in MODEL_CASES}
    ball, name = models["ball-cd-lagrange"], "cold_training_compile_seconds"
    cold = [figures[name] for figures in models.values() if name in figures]
    one = ball["forecast_one_seconds"]
    return (
        f"A forecast of {FORECAST_STEPS} steps by the ball's CD-Lagrange network takes {1e3 * one:.1f} ms "
        f"for one ball ({PUBLISHED_FORECAST_SECONDS} s by the published code, measured in another sitting), "
        "and 10 000 balls at once run at "
        f"{ball['forecast_many_steps_per_second'] / 1e6:.2f} million model steps per second on one core. "
        f"Training programs compile in {min(cold):.1f} to {max(cold):.1f} s and are kept in the user's cache "
        "directory (`CAROM_CACHE=off` switches that off)."
    )


def _model_row(row: dict[str, Any]) -> tuple[str, ...]:
    figures = row["figures"]
    rate, reference = figures.get("training_steps_per_cpu_second"), row.get("reference")
    # Of training and forecasts together.
    compiled = [
        sum(value for name, value in figures.items() if name.startswith(state) and "compile" in name)
        for state in ("cold", "warm")
    ]
    return (
        row["title"],
        MISSING if rate is None else f"{rate:.0f}",
        MISSING if reference is None else "–".join(f"{value:.0f}" for value in dict.fromkeys(reference)),
        _rate(figures["forecast_one_steps_per_second"]),
        _rate(figures["forecast_many_steps_per_second"]),
        *(f"{value:.1f}" for value in compiled),
        f"{figures['peak_memory_bytes'] / 1e6:.0f}" if "peak_memory_bytes" in figures else MISSING,
    )


def _fit_row(row: dict[str, Any]) -> tuple[str, ...]:
    figures = row["figures"]
    epochs = figures.get("epochs", PUBLISHED_EPOCHS)
    reference = PUBLISHED_FIT_CPU_SECONDS * epochs / PUBLISHED_EPOCHS
    warm, cold = (
        [f"{figures[state + name]:.1f}" for name in ("wall_seconds", "cpu_seconds")]
        for state in ("", "cold_")
    )
    # Fewer epochs are compared with the published code's time for as many.
    return (
        f"{row['title']}, {epochs:.0f} epochs" if "epochs" in figures else row["title"],
        f"{figures['error']:.3f}",
        *warm,
        f"{reference:.0f}",
        *cold,
    )


def _rate(value: float) -> str:
    return f"{value / 1e6:.2f} million" if value >= 1e6 else f"{value / 1e3:.0f} thousand"


BENCH_TABLES = {"speed": model_table, "speed-fits": fit_table, "speed-words": describe_forecasts}
"""By the name of their marker in pages."""
