"""One look for all figures: a palette that survives grey printing and colour blindness, and line styles."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib as mpl


class Line(NamedTuple):
    """How one curve is drawn; lightness and dash differ, so that colour is never alone in telling."""

    color: str
    dash: str | tuple[int, tuple[float, ...]]
    width: float


# Okabe and Ito's colours, ordered by lightness.
LINES = {
    "truth": Line("#000000", "-", 1.0),
    "CD-Lagrange": Line("#0072B2", "--", 1.8),
    "VIN": Line("#009E73", "-.", 1.6),
    "ResNet": Line("#D55E00", ":", 1.8),
    "ResNetContact": Line("#CC79A7", (0, (4, 1, 1, 1, 1, 1)), 1.6),
}
DATA = {"marker": ".", "markersize": 3, "linestyle": "none", "color": "#B0B0B0"}

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


def line(name: str) -> dict:
    """Keyword arguments of `plot` for one of `LINES`."""
    chosen = LINES[name]
    return {"color": chosen.color, "linestyle": chosen.dash, "linewidth": chosen.width, "label": name}
