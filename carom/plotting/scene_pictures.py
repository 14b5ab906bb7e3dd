"""A run of a recording as a figure with trails, or as an animation."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from carom.data import Run
from carom.mechanics import Scene
from carom.plotting.gif import frame_samples, save_animation
from carom.plotting.scene_panels import panel
from carom.plotting.scene_shapes import body_radii, solids, view_of
from carom.plotting.style import figure_style

TRAIL = 0.06
"""How much of a run the trails of an animation go back, as a share."""


def draw_run(run: Run, scene: Scene, *, title: str = "") -> Figure:
    """Bodies where the run ends, and the ways that led there."""
    figure = _figure(run, scene, dpi=150)
    panel(figure, run, scene).show(len(run) - 1)
    figure.axes[0].set_title(title, parse_math=False)
    return figure


def write_run_animation(run: Run, scene: Scene, path: Path, *, title: str = "") -> None:
    """About ten seconds, whatever the motion takes."""
    with figure_style():
        figure = _figure(run, scene, dpi=80)
        canvas = FigureCanvasAgg(figure)
        shown, frames = panel(figure, run, scene), []
        back = max(1, int(TRAIL * len(run)))
        for sample in frame_samples(len(run)):
            shown.show(sample, since=max(0, sample - back))
            text = f"{title}{', ' if title else ''}t = {run.time[sample]:.2f} s"
            figure.axes[0].set_title(text, parse_math=False)
            canvas.draw()
            figure.set_layout_engine("none")  # that of the first frame is kept: it need not be found again
            frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    save_animation(frames, path)


def _figure(run: Run, scene: Scene, *, dpi: int) -> Figure:
    """As wide and high as the motion asks for."""
    width, height = 7.0, 4.0
    if scene.dimension > 1:
        radii = body_radii(scene)
        extent = np.ptp(view_of(run.position, radii, solids(scene, radii)), axis=1)
        across, upwards = (extent[0], extent[1]) if scene.dimension == 2 else (1.0, 1.0)
        scale = 5.0 / max(across, upwards)
        width, height = max(2.6, scale * across + 0.8), max(2.2, scale * upwards + 0.9)
    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")
