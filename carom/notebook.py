"""How objects are displayed in a notebook: a small table, and curves as SVG."""

import io
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
DASHES = ("-", "--", ":", "-.", (0, (1, 3)), (0, (10, 4)))
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
    if not np.isfinite(vertical).any():
        return ""
    # Imported here: what is never displayed need not wait for Matplotlib.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Text stays text, which notebooks can search and screen readers can read.
    with rc_context({"svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(4.8, 1.7), layout="constrained")
        axes = figure.add_subplot(xlabel=x)
        axes.set_title(y, loc="left", fontsize=8, parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        styles = zip(PALETTE.values(), DASHES, strict=True)
        for number, (column, (color, dash)) in enumerate(zip(vertical.T, styles, strict=False)):
            axes.plot(horizontal, column, color=color, linestyle=dash, gid=f"curve-{number}")
        image = io.StringIO()
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None})
    text = image.getvalue()
    # Axes and labels in the colour of the notebook's text, which may be a dark one.
    text = text[text.index("<svg") :].replace("#000000", "currentColor")
    label = f'<svg role="img" aria-label="{escape(y)} over {escape(x)}" fill="currentColor" '
    return text.replace("<svg ", label, 1)
