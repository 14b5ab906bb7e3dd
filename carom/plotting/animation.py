"""Animations of a figure as GIF files."""

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from carom.plotting.style import Picture, reduce_colors
from carom.storage.atomic import write_whole

SECONDS, FRAMES_PER_SECOND = 10.0, 20
"""The length of an animation at most, whatever the duration of the motion."""
TRANSPARENT = 63
"""The index after the last colour: 6 bits a pixel."""


def write_animation(figure: Figure, show: Callable[[int], None], path: Path, *, samples: int) -> None:
    """Animate a motion.

    Arguments:
        figure: what is drawn on.
        show: sets the artists of the figure to one sample of the motion.
        path: the GIF file, replaced if it exists.
        samples: number of samples of the motion; evenly spaced ones are shown.
    """
    canvas, frames = FigureCanvasAgg(figure), []
    count = min(samples, int(SECONDS * FRAMES_PER_SECOND))
    for sample in np.unique(np.linspace(0, samples - 1, count).astype(int)).tolist():
        show(sample)
        canvas.draw()
        figure.set_layout_engine(
            "none"
        )  # computed once; recomputing it for every frame takes most of the time
        frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    _save(frames, path)


def _save(frames: list[Picture], path: Path) -> None:
    """One palette for all frames, and pixels that do not change from one to the next left transparent: the
    file is a third as large as that of Matplotlib's writer."""
    indexed, palette = reduce_colors(frames, TRANSPARENT)
    pictures = []
    for before, after in pairwise([None, *indexed]):
        assert after is not None
        changed = after if before is None else np.where(after == before, TRANSPARENT, after).astype(np.uint8)
        picture = Image.fromarray(changed)
        picture.putpalette([*palette, 255, 255, 255])
        pictures.append(picture)
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=round(1000 / FRAMES_PER_SECOND),
        loop=0,
        transparency=TRANSPARENT,
        disposal=1,
        optimize=False,
    )
    write_whole(path, buffer.getvalue())
