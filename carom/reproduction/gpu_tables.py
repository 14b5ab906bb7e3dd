"""What `benchmarks/gpu.py` measured, as a table."""

from collections.abc import Callable
from typing import Any

from carom.digits import MISSING
from carom.reproduction.tables import markdown_of

Document = dict[str, Any]
ASKED = {"forecast": "1.5 billion", "ensemble": "60 s", "text": "60 s", "published": "60 s"}


def gpu_markdown(document: Document) -> str:
    """One row per figure, with the share of the arithmetic rate where that says something."""
    forecast, ensemble = document["forecast"], document["ensemble"]
    rows = [
        [
            f"model steps per second, {forecast['balls']} balls forecast over {forecast['steps']} steps",
            f"{forecast['steps_per_second'] / 1e9:.2f} billion",
            ASKED["forecast"],
            f"{100 * forecast['share_of_float32_rate']:.0f} %",
        ],
        [
            "the same by XLA, without the kernel",
            f"{forecast['steps_per_second_by_xla'] / 1e9:.2f} billion",
            MISSING,
            MISSING,
        ],
        [
            f"{ensemble['models']} ball models trained together for {ensemble['epochs']} epochs",
            f"{ensemble['seconds']:.1f} s",
            ASKED["ensemble"],
            f"{100 * ensemble['share_of_float32_rate']:.0f} %",
        ],
        *(
            [
                f"the whole paper, protocol {protocol}: {one['units']} models × {one['runs']} runs, "
                f"{one['gradient_steps'] / 1e6:.2g} million gradient steps",
                f"{one['seconds']:.1f} s",
                ASKED[protocol],
                f"{100 * one['share_of_float32_rate']:.1f} %",
            ]
            for protocol in ("text", "published")
            for one in [document[protocol]]
        ),
    ]
    rate = document["rates"]["float32"] / 1e12
    caption = (
        f"{document['machine']['device']}, after compilation. The last column is of the arithmetic rate of "
        f"products of matrices in float32, {rate:.1f} TFLOP/s."
    )
    return markdown_of(caption, ["what", "measured", "asked", "of the device's rate"], rows)


def agreement_markdown(document: Document) -> str:
    """How far GPU and processor are apart, beside what is allowed."""
    agreement = document["agreement"]
    rows = [
        [what, f"{agreement[name]['difference']:.1e}{unit}", f"{agreement[name]['tolerance']:.0e}{unit}"]
        for name, what, unit in (
            ("forecast", "positions over 500 steps from 4096 heights, by the kernel", " m"),
            ("training", "both losses of 4 models over 50 epochs, as a share", ""),
            ("parameters", "restitution and floor by the recipe `carom`, in standard errors", ""),
        )
    ]
    return markdown_of(
        f"{document['machine']['device']} against a processor.",
        ["greatest difference of", "found", "allowed"],
        rows,
    )


GPU_TABLES: dict[str, Callable[[Document], str]] = {"gpu": gpu_markdown, "agreement": agreement_markdown}
