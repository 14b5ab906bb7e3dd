"""One look for all figures: a palette that survives grey printing and colour blindness, and line styles."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl


class Line(NamedTuple):
    """How one curve is drawn; lightness, dash and marker differ: colour is never alone in telling."""

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    width: float
    marker: str = "none"


# Okabe and Ito's colours, ordered by lightness.
LINES = {
    "truth": Line("#000000", "-", 1.0),
    "CD-Lagrange": Line("#0072B2", "--", 1.8, "o"),
    "CD-Lagrange (no touch)": Line("#56B4E9", (0, (7, 2, 2, 2)), 1.6, "v"),
    "VIN": Line("#009E73", "-.", 1.6, "^"),
    "ResNet": Line("#D55E00", ":", 1.8, "s"),
    "ResNetContact": Line("#CC79A7", (0, (4, 1, 1, 1, 1, 1)), 1.6, "P"),
}
OTHER = Line("#E69F00", (0, (1, 3)), 1.8, "X")
"""For a name without a look of its own, such as a variant in an ablation."""
DATA: dict[str, Any] = {"marker": ".", "markersize": 3, "linestyle": "none", "color": "#B0B0B0"}

_SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib's settings for the figures made inside."""
    with mpl.rc_context(_SETTINGS):
        yield


def look(name: str) -> Line:
    """The look of one of `LINES`, or of any other name."""
    return LINES.get(name, OTHER)


def line(name: str) -> dict[str, Any]:
    """Keyword arguments of `plot` for one of `LINES`."""
    chosen = look(name)
    return {"color": chosen.color, "linestyle": chosen.dash, "linewidth": chosen.width, "label": name}


def marked_line(name: str) -> dict[str, Any]:
    """The same with a few markers, equally far apart on the page and in other places for every name."""
    chosen = look(name)
    if chosen.marker == "none":
        return line(name)
    place = list(LINES).index(name) if name in LINES else len(LINES)
    return line(name) | {
        "marker": chosen.marker,
        "markersize": 4.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
        "markevery": (0.03 * place, 0.22),
    }
