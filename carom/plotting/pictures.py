"""Figures as files."""

import io
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from carom.plotting.palette import reduce_colors
from carom.storage.atomic import atomic_write

DPI = 150


def save_picture(figure: Figure, stem: Path) -> Path:
    """As PNG and SVG; the same figure gives the same bytes. Returns the path of the PNG file."""
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
