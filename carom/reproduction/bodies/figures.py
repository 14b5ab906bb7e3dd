"""Pictures of many bodies: scenes with trails, and animations."""

from pathlib import Path

from carom.data import simulate
from carom.plotting.scenes import draw_run, write_run_animation
from carom.plotting.style import figure_style, save_figure
from carom.reproduction.bodies.configuration import ANIMATED, SCENES, STEP_SIZE
from carom.systems import AbstractBoxedBalls


def write_bodies_figures(folder: Path) -> list[Path]:
    """Simulate and draw all scenes; returns the paths of the PNG files and animations."""
    written = []
    for name, (system, steps, title) in SCENES.items():
        boxed = isinstance(system, AbstractBoxedBalls)
        # The same picture every time.
        start = system.random_start(seed=0) if boxed else system.start
        recording = simulate(system, steps=steps, step_size=STEP_SIZE, starts=[start])
        assert recording.scene is not None
        with figure_style():
            figure = draw_run(recording.runs[0], recording.scene, title=title)
            written.append(save_figure(figure, folder / name))
        if name in ANIMATED:
            written.append(folder / f"{name}.gif")
            write_run_animation(recording.runs[0], recording.scene, written[-1])
    return written
