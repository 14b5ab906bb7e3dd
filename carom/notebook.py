"""How objects are displayed in a notebook: a small table, and curves as SVG without a plotting library."""

from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Float

PALETTE = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "sky blue": "#56b4e9",
    "orange": "#e69f00",
}
"""Okabe and Ito's colours, which remain distinct with colour blindness; all figures use them."""
MOST_POINTS, MOST_CURVES = 600, 6
WIDTH, HEIGHT, MARGIN = 480, 150, 36
DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "10 4")
"""Curves also differ in their dashes, for printing in grey."""


def table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A title and a row for every name and value, as HTML.

    Example:
        >>> table("Ball", [("mass", "1 kg")])[:40]
        '<b>Ball</b><table><tr><th style="text-al'
    """
    left = 'style="text-align:left"'
    lines = (
        f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(value)}</td></tr>" for name, value in rows
    )
    return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"


def curves(
    horizontal: Float[np.ndarray, "points"], vertical: Float[np.ndarray, "points curves"], *, x: str, y: str
) -> str:
    """Curves over a common axis, with the ends of both axes labelled; a curve is interrupted at NaN."""
    every = max(1, len(horizontal) // MOST_POINTS)
    horizontal, vertical = horizontal[::every], vertical[::every, :MOST_CURVES]
    known = vertical[np.isfinite(vertical)]
    if not len(known):
        return ""
    low, high = float(known.min()), float(known.max())
    first, last = float(horizontal[0]), float(horizontal[-1])
    across = MARGIN + (WIDTH - 2 * MARGIN) * (horizontal - first) / ((last - first) or 1)
    down = HEIGHT - MARGIN - (HEIGHT - 1.5 * MARGIN) * (vertical - low) / ((high - low) or 1)
    lines = []
    for column, color, dash in zip(down.T, PALETTE.values(), DASHES, strict=False):
        breaks = np.flatnonzero(np.diff(np.isfinite(column))) + 1
        for part in np.split(np.arange(len(column)), breaks):
            if np.isfinite(column[part]).all():
                points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across[part], column[part], strict=True))
                lines.append(
                    f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5" '
                    f'stroke-dasharray="{dash}"/>'
                )
    left, right, bottom = MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN
    texts = [
        (left, bottom + 14, "start", f"{first:.3g}"),
        (right, bottom + 14, "end", f"{last:.3g}"),
        (WIDTH // 2, bottom + 28, "middle", x),
        (left - 4, bottom, "end", f"{low:.3g}"),
        (left - 4, MARGIN // 2 + 4, "end", f"{high:.3g}"),
        (left, 10, "start", y),
    ]
    labels = "".join(
        f'<text x="{a}" y="{b}" text-anchor="{anchor}">{escape(text)}</text>' for a, b, anchor, text in texts
    )
    return (
        f'<svg role="img" aria-label="{escape(y)} over {escape(x)}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-size="10" font-family="sans-serif" fill="currentColor">'
        f'<path d="M{left} {MARGIN // 2}V{bottom}H{right}" fill="none" stroke="currentColor"/>'
        f"{''.join(lines)}{labels}</svg>"
    )
