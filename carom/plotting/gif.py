"""Animations as files."""

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from carom.plotting.palette import Picture, reduce_colors
from carom.storage.atomic import atomic_write

SECONDS, FRAMES_PER_SECOND = 10.0, 20
TRANSPARENT = 63
"""The index after the last colour."""


def frame_samples(samples: int) -> list[int]:
    """Which samples of a motion are shown, at most as many as frames fit into about ten seconds."""
    frames = min(samples, int(SECONDS * FRAMES_PER_SECOND))
    return np.unique(np.linspace(0, samples - 1, frames).astype(int)).tolist()


def save_animation(frames: list[Picture], path: Path) -> None:
    """One palette for all frames, and what does not change from one to the next left transparent: the file is
    a third as large as what matplotlib's writer makes."""
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
    with atomic_write(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
