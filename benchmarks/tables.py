"""Tables of what the scripts in `benchmarks/` measured: a GPU, and how cost grows with the data."""

from collections.abc import Callable, Mapping
from typing import Any

from carom.digits import MISSING
from carom.evaluation.tables import Table

Document = Mapping[str, Any]
Row = Mapping[str, Any]
TARGETS = {"forecast": "1.5 billion", "ensemble": "60 s", "text": "60 s", "published": "60 s"}
"""Of the first GPU measurements: what seemed within reach of the device."""


def _gpu(document: Document) -> Table:
    """One row per figure, with the fraction of the arithmetic rate where that says something."""
    forecast, ensemble = document["forecast"], document["ensemble"]
    rows = [
        (
            f"model steps per second, {forecast['balls']} balls forecast over {forecast['steps']} steps "
            "by a fused kernel",
            f"{forecast['steps_per_second'] / 1e9:.2f} billion",
            TARGETS["forecast"],
            f"{100 * forecast['share_of_float32_rate']:.0f} %",
        ),
        (
            "the same by `carom.models.forecast_many`, which XLA compiles",
            f"{forecast['steps_per_second_by_xla'] / 1e9:.2f} billion",
            MISSING,
            MISSING,
        ),
        (
            f"{ensemble['models']} ball models trained together for {ensemble['epochs']} epochs",
            f"{ensemble['seconds']:.1f} s",
            TARGETS["ensemble"],
            f"{100 * ensemble['share_of_float32_rate']:.0f} %",
        ),
    ]
    for protocol in ("text", "published"):
        one = document[protocol]
        rows.append(
            (
                f"the whole paper, protocol {protocol}: {one['units']} models × {one['runs']} runs, "
                f"{one['gradient_steps'] / 1e6:.2g} million gradient steps",
                f"{one['seconds']:.1f} s",
                TARGETS[protocol],
                f"{100 * one['share_of_float32_rate']:.1f} %",
            )
        )
    caption = (
        f"{document['machine']['device']}, after compilation. The last column is relative to the rate of "
        f"matrix products in float32, {document['rates']['float32'] / 1e12:.1f} TFLOP/s."
    )
    header = ("quantity", "measured", "target", "fraction of the device's rate")
    return Table(caption, header, tuple(rows))


def _agreement(document: Document) -> Table:
    """Differences between GPU and processor, beside their tolerances."""
    agreement = document["agreement"]
    rows = tuple(
        (what, f"{agreement[name]['difference']:.1e}{unit}", f"{agreement[name]['tolerance']:.0e}{unit}")
        for name, what, unit in (
            ("forecast", "positions over 500 steps from 4096 heights, by the kernel", " m"),
            ("training", "both losses of 4 models over 50 epochs, relative", ""),
            ("parameters", "restitution and floor by the recipe `carom`, in standard errors", ""),
        )
    )
    caption = f"{document['machine']['device']} against a processor."
    return Table(caption, ("greatest difference of", "found", "tolerance"), rows)


def _growth(
    key: str, columns: Mapping[str, Callable[[Row], str]], second: str | None = None
) -> Callable[[Document], Table]:
    """A table of one list of measurements, joined by size with those of a second list."""

    def make(document: Document) -> Table:
        joined = {row["size"]: row for row in document[second]} if second else {}
        rows = [dict(row) | {"whole": joined.get(row["size"])} for row in document[key]]
        cells = tuple(tuple(show(row) for show in columns.values()) for row in rows)
        return Table("", tuple(columns), cells)

    return make


def _size(row: Row) -> str:
    return f"{row['size']:,}".replace(",", " ")


def _megabytes(row: Row) -> str:
    return f"{row['peak_bytes'] / 1e6:.0f}"


def _step(row: Row) -> str:
    return f"{row['microseconds_per_step'] / 1e3:.2f}"


def _epoch(row: Row) -> str:
    return f"{row['seconds']:.3g}"


def _whole(show: Callable[[Row], str]) -> Callable[[Row], str]:
    return lambda row: show(row["whole"]) if row["whole"] else MISSING


GPU_TABLES: dict[str, Callable[[Document], Table]] = {"gpu": _gpu, "agreement": _agreement}
GROWTH_TABLES: dict[str, Callable[[Document], Table]] = {
    "growth.paper": _growth(
        "paper_length",
        {
            "samples": _size,
            "an epoch / s": _epoch,
            "a step / ms": _step,
            "memory / MB": _megabytes,
            "whole command / s": _whole(lambda row: f"{row['seconds']:.0f}"),
            "its memory / MB": _whole(_megabytes),
        },
        second="paper_command",
    ),
    "growth.carom": _growth(
        "carom_length",
        {
            "samples": _size,
            "time / s": lambda row: f"{row['seconds']:.0f}",
            "rounds": lambda row: str(row["rounds"]),
            "memory / MB": _megabytes,
        },
    ),
    "growth.ensemble": _growth(
        "ensemble",
        {"members": _size, "an epoch / s": _epoch, "a member's step / ms": _step, "memory / MB": _megabytes},
    ),
}
