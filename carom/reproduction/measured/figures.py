"""Figures of measured recordings: collisions, laws of restitution, a pendulum."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from carom.evaluation.tables import measured, summarize
from carom.plotting.style import DATA, LINES, figure_style, save_figure
from carom.reproduction.measured.configuration import MASKED, SERIES
from carom.reproduction.measured.run import CONSTANT, Arrays, load_arrays
from carom.reproduction.measured.tables import first_crop

MODEL, LEFT_OUT = LINES["CD-Lagrange"].color, LINES["ResNet"].color
EXAMPLES = {"slow": (".", "#56B4E9"), "medium": ("x", "#0072B2"), "fast": ("+", "#000000")}
"""Runs that are drawn, with their markers and colours."""


def write_measured_figures(rows: pl.DataFrame, tasks_folder: Path, folder: Path) -> list[Path]:
    """Draw all figures; returns the paths of the PNG files.

    Arguments:
        rows: of `results/measured.json`.
        tasks_folder: where the tasks left their arrays.
        folder: where they go.
    """
    runs = first_crop(rows)
    arrays = load_arrays(tasks_folder, int(runs["seed"][0]))
    errors = rows.filter(experiment="pendulum", metric="energy_error")["value"]
    drawn: dict[str, Callable[[], Figure]] = {
        "collisions": lambda: draw_collisions(arrays),
        "restitution": lambda: draw_laws(runs),
        "pendulum": lambda: draw_pendulum(arrays["pendulum"], summarize(errors).mean),
    }
    with figure_style():
        return [save_figure(draw(), folder / name) for name, draw in drawn.items()]


def draw_collisions(arrays: Mapping[str, Arrays]) -> Figure:
    """The distance of the riders around an impact, and what the model leaves unexplained, by bumper."""
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    panels = figure.subplots(2, len(SERIES), sharex=True, squeeze=False, height_ratios=(3, 2))
    for (name, series), (distance, residual) in zip(SERIES.items(), panels.T, strict=True):
        kept = arrays[name]
        for example, (marker, color) in EXAMPLES.items():
            time = 1000 * kept[f"{example}_time"]
            positions = (kept[f"{example}_{part}"] for part in ("measured", "model"))
            gap, predicted = (-1000 * np.diff(both, axis=1)[:, 0] for both in positions)
            label = f"{float(kept[f'{example}_speed']):.2f} m/s"
            distance.plot(time[::3], (gap - gap.min())[::3], **DATA | {"marker": marker, "markersize": 4})
            distance.plot(time, predicted - gap.min(), color=color, linewidth=1.2, label=label)
            residual.plot(time, gap - predicted, color=color, linewidth=1.0)
        # In milliseconds, like the axis.
        masked = 1000 * MASKED * float(np.median(np.diff(kept["slow_time"])))
        for axes in (distance, residual):
            axes.axvspan(-masked, masked, color="#EFEFEF", zorder=0)
        distance.set(title=series.title)
        distance.legend(title="closing speed", loc="upper center", fontsize=8, title_fontsize=8)
        residual.set(xlabel="time from the impact / ms", ylim=(-30, 30))
        residual.set_yscale("symlog", linthresh=0.1)
        residual.set_yticks((-10, -1, -0.1, 0, 0.1, 1, 10), ("−10", "−1", "−0.1", "0", "0.1", "1", "10"))
    panels[0, 0].set_ylabel("distance less its minimum / mm")
    panels[1, 0].set_ylabel("measured − model / mm")
    title = "Distance of the riders (grey), and an instantaneous impact (lines); shaded: masked in the fit"
    figure.suptitle(title, fontsize=11)
    return figure


def draw_laws(runs: pl.DataFrame) -> Figure:
    """e against closing speed: the law with its band, and single runs by regression lines."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, (name, kind) in zip(figure.subplots(1, len(SERIES)), SERIES.items(), strict=True):
        series = runs.filter(experiment=name)
        law = series.drop_nulls("e").sort("speed")
        speed, value, error = (law[column].to_numpy() for column in ("speed", "e", "e_error"))
        # Beyond the speeds of the runs the law is an extrapolation.
        seen = measured(series.filter(left_out=0), "closing_speed").to_list()
        inside = (speed >= 0.999 * min(seen)) & (speed <= 1.001 * max(seen))
        speed, value, error = speed[inside], value[inside], error[inside]
        scatter = measured(series, "scatter from run to run")[0]
        bands = (np.hypot(error, scatter), 0.15, "95 % of runs"), (error, 0.35, "95 % interval of the law")
        for deviation, alpha, label in bands:
            low, high = value - 1.96 * deviation, value + 1.96 * deviation
            axes.fill_between(speed, low, high, color=MODEL, alpha=alpha, linewidth=0, label=label)
        axes.plot(speed, value, color=MODEL, linewidth=1.6, label="learned law")
        constant = measured(series.filter(model=CONSTANT), "restitution")[0]
        axes.axhline(constant, color="#707070", linestyle=":", linewidth=1.2, label="best constant")
        for out, marker, color, face in ((0, "o", "black", "black"), (1, "D", LEFT_OUT, "white")):
            chosen = series.filter(left_out=out)
            axes.plot(
                chosen["checked_closing_speed"], chosen["checked_restitution"], linestyle="none",
                marker=marker, markersize=4 + out, color=color, markerfacecolor=face,
                label="run left out" if out else "run learned from",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks((0.1, 0.2, 0.5, 1, 2), ("0.1", "0.2", "0.5", "1", "2"))
        axes.minorticks_off()
        speeds = measured(series, "checked_closing_speed").to_list()
        axes.set(xlim=(0.85 * min(speeds), 1.18 * max(speeds)), xlabel="closing speed / (m/s)")
        axes.set(ylim=(0, 1), title=kind.title)
    figure.axes[0].set_ylabel("restitution e")
    return _with_legend(figure)


def draw_pendulum(arrays: Arrays, error: float) -> Figure:
    """Phase portrait, energy over time, and the learned slope."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    phase, level, slope = figure.subplots(1, 3)
    line = {"color": MODEL, "linewidth": 1.6}
    for name, label, style in (
        ("training", "measured, learned from", DATA),
        ("test", "measured, left out", DATA | {"color": "black", "marker": "o", "markersize": 2.5}),
        ("rollout", "rollout", line),
    ):
        time, angle, velocity, energy = arrays[name]
        phase.plot(angle, velocity, label=label, **style)
        level.plot(time, energy, **style)
    phase.set(xlabel="angle o / rad", ylabel="angular velocity v / (rad/s)", title="phase portrait")
    title = f"energy; mean squared error {error:.2g}"
    level.set(xlabel="time / s", ylabel="2.4 (1 − cos o) + v², / (rad/s)²", title=title, ylim=(0, None))
    angles, learned = arrays["slope"]
    slope.plot(angles, 1.2 * np.sin(angles), color="black", linewidth=1.0, label="1.2 sin o, of that energy")
    slope.plot(angles, learned, linestyle="--", label="learned", **line)
    slope.set(xlabel="angle o / rad", ylabel="∂U/∂o / (rad/s²)", title="learned slope of the potential")
    slope.legend()
    return _with_legend(figure)


def _with_legend(figure: Figure) -> Figure:
    """One legend for all panels, from the first."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return figure
