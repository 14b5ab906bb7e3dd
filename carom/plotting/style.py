"""One style for all figures, readable in grey and with colour blindness, and figures as image files."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from carom.storage.atomic import atomic_write

PALETTE = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "sky blue": "#56b4e9",
    "orange": "#e69f00",
}
"""Okabe and Ito's colours, which remain distinct with colour blindness; all figures use them."""
INK, PAPER, RULE, POINTS, SOLID, EDGE = "#000000", "#ffffff", "#e6e6e6", "#b0b0b0", "#d8d8d8", "#404040"
DATA: dict[str, Any] = {"marker": ".", "markersize": 3, "linestyle": "none", "color": POINTS}
"""How samples of a recording are drawn."""
DPI = 150


class Line(NamedTuple):
    """How one curve is drawn: curves differ in lightness, dash and marker, never in colour alone."""

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    width: float
    marker: str


LINES = {
    "truth": Line(INK, "-", 1.0, "none"),
    "CD-Lagrange": Line(PALETTE["blue"], "--", 1.8, "o"),
    "CD-Lagrange (no touch)": Line(PALETTE["sky blue"], (0, (7, 2, 2, 2)), 1.6, "v"),
    "VIN": Line(PALETTE["green"], "-.", 1.6, "^"),
    "ResNet": Line(PALETTE["vermilion"], ":", 1.8, "s"),
    "ResNetContact": Line(PALETTE["purple"], (0, (4, 1, 1, 1, 1, 1)), 1.6, "P"),
    "oracle": Line("#707070", ":", 1.0, "x"),
}

_SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": RULE,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": DPI,
    "savefig.bbox": "tight",
    # Text stays text, which can be searched and is smaller than its outlines.
    "svg.fonttype": "none",
}


def figure_style() -> AbstractContextManager[None]:
    """Matplotlib's settings for the figures made inside a `with` block."""
    return mpl.rc_context(_SETTINGS)


def line(name: str) -> dict[str, Any]:
    """Keyword arguments of `plot` for a model."""
    style = LINES[name]
    return {"color": style.color, "linestyle": style.dash, "linewidth": style.width, "label": name}


def marked_line(name: str) -> dict[str, Any]:
    """The same with a few markers, equally spaced on the page and staggered from model to model."""
    # Staggered, or markers of curves that coincide would hide each other.
    order = list(LINES).index(name)
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.4}
    marks = {"marker": LINES[name].marker, "markersize": 4.5, "markevery": (0.03 * order, 0.22)}
    return line(name) | marks | edge


def save_figure(figure: Figure, stem: Path) -> Path:
    """Write a figure as PNG and SVG; the same figure gives the same bytes. Returns the path of the PNG."""
    # `with_suffix` would cut "inelastic-ball-0.8.text" at its last dot.
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    with atomic_write(png) as temporary:
        figure.savefig(temporary, format="png", dpi=DPI, pil_kwargs={"optimize": True})
    with mpl.rc_context({"svg.hashsalt": "carom"}), atomic_write(svg) as temporary:
        figure.savefig(temporary, format="svg", dpi=DPI, metadata={"Date": None})
    return png
