"""One style for all figures, readable in grey and with colour blindness, and figures as image files."""

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import UInt8
from matplotlib.figure import Figure
from PIL import Image

from carom.notebook import PALETTE
from carom.storage.atomic import atomic_write

INK, PAPER, RULE, POINTS, SOLID, EDGE = "#000000", "#ffffff", "#e6e6e6", "#b0b0b0", "#d8d8d8", "#404040"
DATA: dict[str, Any] = {"marker": ".", "markersize": 3, "linestyle": "none", "color": POINTS}
"""How samples of a recording are drawn."""
DPI = 150

Picture = UInt8[np.ndarray, "height width 3"]
Indexed = UInt8[np.ndarray, "height width"]


class Line(NamedTuple):
    """How one curve is drawn: curves differ in lightness, dash and marker, never in colour alone."""

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    width: float
    marker: str = "none"


LINES = {
    "truth": Line(INK, "-", 1.0),
    "CD-Lagrange": Line(PALETTE["blue"], "--", 1.8, "o"),
    "CD-Lagrange (no touch)": Line(PALETTE["sky blue"], (0, (7, 2, 2, 2)), 1.6, "v"),
    "VIN": Line(PALETTE["green"], "-.", 1.6, "^"),
    "ResNet": Line(PALETTE["vermilion"], ":", 1.8, "s"),
    "ResNetContact": Line(PALETTE["purple"], (0, (4, 1, 1, 1, 1, 1)), 1.6, "P"),
}
OTHER = Line(PALETTE["orange"], (0, (1, 3)), 1.8, "X")
"""For any other name, such as a variant in an ablation."""

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


def line_style(name: str) -> Line:
    """The style of one of `LINES`, or of any other name."""
    return LINES.get(name, OTHER)


def line(name: str) -> dict[str, Any]:
    """Keyword arguments of `plot` for a model."""
    style = line_style(name)
    return {"color": style.color, "linestyle": style.dash, "linewidth": style.width, "label": name}


def marked_line(name: str) -> dict[str, Any]:
    """The same with a few markers, equally spaced on the page and staggered from model to model."""
    style = line_style(name)
    if style.marker == "none":
        return line(name)
    # Staggered, or markers of curves that coincide would hide each other.
    order = list(LINES).index(name) if name in LINES else len(LINES)
    return line(name) | {
        "marker": style.marker,
        "markersize": 4.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
        "markevery": (0.03 * order, 0.22),
    }


def save_figure(figure: Figure, stem: Path) -> Path:
    """Write a figure as PNG and SVG; the same figure gives the same bytes. Returns the path of the PNG."""
    # `with_suffix` would cut "inelastic-ball-0.8.text" at its last dot.
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    (indices,), palette = reduce_colors([np.asarray(Image.open(buffer).convert("RGB"))], 256)
    picture = Image.fromarray(indices)
    picture.putpalette(palette)
    with atomic_write(png) as temporary:
        picture.save(temporary, format="PNG", optimize=True, dpi=(DPI, DPI))
    with mpl.rc_context({"svg.hashsalt": "carom"}), atomic_write(svg) as temporary:
        figure.savefig(temporary, format="svg", dpi=DPI, metadata={"Date": None})
    return png


def reduce_colors(pictures: Sequence[Picture], count: int) -> tuple[list[Indexed], list[int]]:
    """The pictures as indices into one palette, which makes files of a third of the size.

    The palette holds the `count` ≤ 256 most frequent colours, out of 32 levels each of red, green and blue;
    others are replaced by the nearest one. Pillow's own quantisation turns a white background grey.

    Example:
        >>> white = np.full((1, 2, 3), 255, np.uint8)
        >>> indices, palette = reduce_colors([white], 4)
        >>> palette[:3]
        [255, 255, 255]
    """
    codes = [(picture >> 3).astype(np.int32) @ np.array([1024, 32, 1], np.int32) for picture in pictures]
    frequency = np.zeros(32**3, np.int64)
    for code in codes:
        frequency += np.bincount(code.ravel(), minlength=32**3)
    kept = np.argsort(-frequency, kind="stable")[:count]
    levels = np.stack(np.unravel_index(np.arange(32**3), (32, 32, 32)), axis=1).astype(np.float32)
    # |a − b|² without |a|², which is the same for all candidates.
    distances = (levels[kept] ** 2).sum(axis=1) - 2 * levels @ levels[kept].T
    nearest = distances.argmin(axis=1).astype(np.uint8)
    palette = (levels[kept] * 255 / 31).astype(int).ravel().tolist()
    return [nearest[code] for code in codes], palette
