"""Runs of `carom bench` as tables: rows for the terminal, Markdown for pages."""

from typing import Any

from carom.bench.cases import (
    FORECAST_STEPS,
    MODEL_CASES,
    PEER,
    REFERENCE_EPOCHS,
    REFERENCE_FIT_CPU_SECONDS,
    REFERENCE_FORECAST_SECONDS,
)
from carom.bench.run import Document
from carom.digits import MISSING

MODEL_HEADER = (
    "case",
    "training steps per CPU-second",
    "published code",
    "ratio to its highest",
    "forecast steps per second, one",
    "many",
    "compiled in s, cold",
    "warm",
    "memory / MB",
)
FIT_HEADER = (
    "case",
    "error",
    "wall s",
    "CPU s",
    "published code's CPU s",
    "ratio",
    "wall s, cold",
    "CPU s, cold",
)
PEER_HEADER = ("", "gradient steps", "s per step", "s in all, with compilation")


def model_rows(document: Document) -> list[tuple[str, ...]]:
    """Training and forecasts of every model."""
    return [_model_row(row) for row in document["rows"] if row["case"] in MODEL_CASES]


def fit_rows(document: Document) -> list[tuple[str, ...]]:
    """Fits of the ball from the start of a process."""
    rows = []
    for row in document["rows"]:
        if not row["case"].startswith("fit-"):
            continue
        figures = row["figures"]
        epochs = figures.get("epochs", REFERENCE_EPOCHS)
        reference = REFERENCE_FIT_CPU_SECONDS * epochs / REFERENCE_EPOCHS
        title = f"{row['title']}, {epochs:.0f} epochs" if "epochs" in figures else row["title"]
        cells = [f"{figures[name]:.1f}" for name in ("wall_seconds", "cpu_seconds")]
        cold = [f"{figures[f'cold_{name}']:.1f}" for name in ("wall_seconds", "cpu_seconds")]
        ratio = f"{reference / figures['cpu_seconds']:.1f}×"
        rows.append((title, f"{figures['error']:.3f}", *cells, f"{reference:.0f}", ratio, *cold))
    return rows


def peer_rows(document: Document) -> list[tuple[str, ...]]:
    """The learning task that torchdiffeq has too."""
    figures = next((row["figures"] for row in document["rows"] if row["case"] == PEER), None)
    if figures is None:
        return []
    rows = [
        (
            name,
            f"{figures[f'{name}_steps']:.0f}",
            f"{figures[f'{name}_step_seconds']:.2g}",
            f"{figures[f'{name}_seconds']:.1f}",
        )
        for name in ("carom", PEER)
    ]
    ratios = [f"{figures[name]:.3g}×" for name in ("step_time_ratio", "time_ratio")]
    return [*rows, ("ratio", f"{figures[f'{PEER}_steps'] / figures['carom_steps']:.2g}×", *ratios)]


def models_markdown(document: Document) -> str:
    return _markdown(MODEL_HEADER, model_rows(document))


def fits_markdown(document: Document) -> str:
    return _markdown(FIT_HEADER, fit_rows(document))


def peer_markdown(document: Document) -> str:
    rows = peer_rows(document)
    return _markdown(PEER_HEADER, rows) if rows else "Not measured in this run."


def words(document: Document) -> str:
    """What of the forecasts and compilation is worth a sentence."""
    models = {row["case"]: row["figures"] for row in document["rows"] if row["case"] in MODEL_CASES}
    ball = models["ball-cd-lagrange"]
    cold = [
        row["cold_training_compile_seconds"]
        for row in models.values()
        if "cold_training_compile_seconds" in row
    ]
    one = ball["forecast_one_seconds"]
    slower = REFERENCE_FORECAST_SECONDS / one
    return (
        f"A forecast of {FORECAST_STEPS} steps by the ball's CD-Lagrange network takes {1e3 * one:.1f} ms "
        f"for one ball (there {REFERENCE_FORECAST_SECONDS} s, {slower:.0f} times as long), "
        f"and 10 000 balls at once run at {ball['forecast_many_steps_per_second'] / 1e6:.2f} million "
        f"model steps per second on one core. Training programs compile in {min(cold):.1f} to "
        f"{max(cold):.1f} s and are kept between runs in the user's cache folder (`CAROM_CACHE=off` switches "
        "that off)."
    )


def _model_row(row: dict[str, Any]) -> tuple[str, ...]:
    figures = row["figures"]
    rate, reference = figures.get("training_steps_per_cpu_second"), row.get("reference")
    compiled = [
        sum(value for name, value in figures.items() if name.startswith(state) and "compile" in name)
        for state in ("cold", "warm")
    ]
    return (
        row["title"],
        MISSING if rate is None else f"{rate:.0f}",
        MISSING if reference is None else "–".join(f"{value:.0f}" for value in dict.fromkeys(reference)),
        MISSING if reference is None or rate is None else f"{rate / reference[1]:.1f}×",
        _rate(figures["forecast_one_steps_per_second"]),
        _rate(figures["forecast_many_steps_per_second"]),
        *(f"{value:.1f}" for value in compiled),
        f"{figures['peak_memory_bytes'] / 1e6:.0f}" if "peak_memory_bytes" in figures else MISSING,
    )


def _rate(value: float) -> str:
    return f"{value / 1e6:.2f} million" if value >= 1e6 else f"{value / 1e3:.0f} thousand"


def _markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    rule = "|:---|" + "---:|" * (len(header) - 1)
    return "\n".join([f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])


BENCH_TABLES = {
    "speed": models_markdown,
    "speed-fits": fits_markdown,
    "speed-torchdiffeq": peer_markdown,
    "speed-words": words,
}
"""By the name of their marker in pages."""
