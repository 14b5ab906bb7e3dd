"""Figures of many bodies: scenes with trails, an animation, and errors against the step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from carom.data import simulate
from carom.plotting.scenes import draw_run, write_run_animation
from carom.plotting.style import LINES, figure_style, save_figure
from carom.systems import AbstractBoxedBalls, AbstractSystem, BallBox, Billiards, Stairs, fitting_radius
from carom.types import State

SCENES: dict[str, tuple[AbstractSystem, int, str]] = {
    "billiards": (Billiards(radii=(0.06,) * 10), 250, "Ten balls on a free table, e = 1, 2.5 s"),
    "box": (
        BallBox(
            size=(1.0, 1.0, 1.5), radii=(fitting_radius(12, (1.0, 1.0, 1.5), most=0.1),) * 12,
            restitution=0.8, friction=0.2,
        ),
        300,
        "Twelve balls in a box, e = 0.8, μ = 0.2, 3 s",
    ),
    "stairs": (Stairs(restitution=0.7), 800, "A ball on stairs, e = 0.7, 8 s"),
}  # fmt: skip
"""What is shown: the system, its steps of 0.01 s, and what stands above the picture."""
ANIMATED = ("billiards", "box")
LOOKS = {
    "constraint-exact": ("#000000", "o", "-"),
    "CD-Lagrange": (LINES["CD-Lagrange"].color, "s", "--"),
    "pymunk": (LINES["ResNet"].color, "^", ":"),
    "mujoco": (LINES["VIN"].color, "v", "-."),
}


def write_bodies_figures(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw all figures; returns the paths of the PNG files and animations."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (system, steps, title) in SCENES.items():
        recording = simulate(system, steps=steps, step_size=0.01, starts=[_start(system)])
        assert recording.scene is not None
        with figure_style():
            figure = draw_run(recording.runs[0], recording.scene, title=title)
            written.append(save_figure(figure, folder / name))
        if name in ANIMATED:
            path = folder / f"{name}.gif"
            write_run_animation(recording.runs[0], recording.scene, path)
            written.append(path)
    with figure_style():
        written.append(save_figure(draw_errors_by_step(document["mechanics"]), folder / "orders"))
    return written


def draw_errors_by_step(mechanics: Mapping[str, Any]) -> Figure:
    """Errors against the step: schemes and engines, with lines of the orders that theory has."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = mechanics["orders"]["rows"]
    (cradle,) = (row for row in rows if row["scheme"] == "constraint-exact")
    _draw(left, "constraint-exact", cradle["step_sizes"], cradle["errors"], "constraint-exact step")
    _guide(left, cradle["step_sizes"], cradle["errors"], 2)
    left.set(title="Cradle through four impacts", ylabel="error of the last angles / rad")
    tables = [row for row in rows if row["scheme"] == "CD-Lagrange" and row["system"] == "billiards"]
    step_sizes, (scheme,) = tables[0]["step_sizes"], tables
    _draw(right, "CD-Lagrange", step_sizes, scheme["errors"], "CD-Lagrange")
    for row in mechanics["engines"]["rows"]:
        if row["system"] == "billiards" and row["errors"] is not None:
            label = {"pymunk": "pymunk", "mujoco": "MuJoCo"}[row["engine"]]
            _draw(right, row["engine"], step_sizes, row["errors"], label)
    _guide(right, step_sizes, scheme["errors"], 1)
    right.set(title="Three balls on a table, 0.4 s", ylabel="distance from the exact motion / m")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="step / s")
        axes.legend()
    return figure


def _draw(axes, name: str, step_sizes, errors, label: str) -> None:
    color, marker, dash = LOOKS[name]
    axes.plot(step_sizes, errors, color=color, marker=marker, linestyle=dash, markersize=5, label=label)


def _guide(axes, step_sizes, errors, order: int) -> None:
    """A line of that order, a little below the errors."""
    sizes = np.asarray(step_sizes, float)
    middle = len(sizes) // 2
    line = 0.4 * errors[middle] * (sizes / sizes[middle]) ** order
    axes.plot(sizes, line, color="#909090", linewidth=1.0, label=f"order {order}")


def _start(system: AbstractSystem) -> State:
    if isinstance(system, AbstractBoxedBalls):
        return system.random_start(seed=0)
    return system.start
