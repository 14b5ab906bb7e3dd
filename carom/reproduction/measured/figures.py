"""Figures of measured recordings: collisions, laws of restitution, what is foretold, masses, a pendulum."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from carom.plotting.style import DATA, LINES, figure_style, save_figure
from carom.reproduction.measured.pendulum import energy
from carom.reproduction.measured.run import PENDULUM, load_arrays

Document = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]
MODEL, LEFT_OUT, CONSTANT = LINES["CD-Lagrange"].color, LINES["ResNet"].color, "#707070"
HIDDEN = "#EFEFEF"
EXAMPLES = ("slow", "middling", "fast")


def write_measured_figures(document: Document, units_folder: Path, figures_folder: Path) -> list[Path]:
    """Draw all figures; returns the paths of the PNG files.

    Arguments:
        document: what `write_measured` wrote.
        units_folder: where `run_measured` left its arrays.
        figures_folder: made where it does not exist.
    """
    figures_folder.mkdir(parents=True, exist_ok=True)
    seeds = document["seeds"]
    arrays = {name: load_arrays(units_folder, name, seeds) for name in (*document["air_track"], PENDULUM)}
    first = {name: units[0] for name, units in document["air_track"].items()}
    hidden = document["protocol"]["blind_samples"] * document["protocol"]["step_seconds"]
    drawn = {
        "collisions": lambda: draw_collisions(first, arrays, hidden),
        "restitution": lambda: draw_laws(first),
        "velocities": lambda: draw_velocities(first),
        "masses": lambda: draw_masses(first),
        "pendulum": lambda: draw_pendulum(arrays[PENDULUM], document[PENDULUM]),
    }
    written = []
    for name, draw in drawn.items():
        with figure_style():
            written.append(save_figure(draw(), figures_folder / name))
    return written


def draw_collisions(
    series: Mapping[str, Mapping[str, Any]], arrays: Mapping[str, Arrays], hidden: float
) -> Figure:
    """The distance of the riders around an impact, and what the model leaves unexplained, by bumper."""
    figure = Figure(figsize=(12, 5.6), layout="constrained")
    panels = figure.subplots(2, len(series), sharex=True, squeeze=False, height_ratios=(3, 2))
    for column, (name, unit) in enumerate(series.items()):
        distance, residual = panels[:, column]
        for axes in (distance, residual):
            axes.axvspan(-1000 * hidden, 1000 * hidden, color=HIDDEN, zorder=0)
        for example, marker, shade in zip(EXAMPLES, ".x+", ("#56B4E9", "#0072B2", "#000000"), strict=True):
            kept = arrays[name]
            time = 1000 * kept[f"{example}_time"]
            measured, model = (kept[f"{example}_{part}"] for part in ("measured", "model"))
            speed = float(kept[f"{example}_speed"])
            gap, predicted = (1000 * (part[:, 0] - part[:, 1]) for part in (measured, model))
            least = gap.min()
            distance.plot(time[::3], gap[::3] - least, **DATA | {"marker": marker, "markersize": 4})
            distance.plot(time, predicted - least, color=shade, linewidth=1.2, label=f"{speed:.2f} m/s")
            residual.plot(time, gap - predicted, color=shade, linewidth=1.0)
        distance.set(title=unit["title"])
        residual.set(xlabel="time from the impact / ms")
        residual.set_yscale("symlog", linthresh=0.1)
        residual.set_yticks((-10, -1, -0.1, 0, 0.1, 1, 10), ("−10", "−1", "−0.1", "0", "0.1", "1", "10"))
        residual.set_ylim(-30, 30)
        distance.legend(title="closing speed", loc="upper center", fontsize=8, title_fontsize=8)
    panels[0, 0].set_ylabel("distance less its least / mm")
    panels[1, 0].set_ylabel("measured − model / mm")
    figure.suptitle(
        "Distance of the riders (grey), and an impact at an instant (lines); shaded: hidden from the fit",
        fontsize=11,
    )
    return figure


def draw_laws(series: Mapping[str, Mapping[str, Any]]) -> Figure:
    """e against closing speed: the law with its band, and single runs by straight lines, some left out."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, unit in zip(figure.subplots(1, len(series), squeeze=False)[0], series.values(), strict=True):
        law = {key: np.array(values) for key, values in unit["law"].items()}
        scatter = next(p["value"] for p in unit["parameters"] if "scatter" in p["name"])
        wide = np.sqrt(law["error"] ** 2 + scatter**2)
        for reach, alpha, label in (
            (1.96 * wide, 0.15, "95 % of runs"),
            (1.96 * law["error"], 0.35, "95 % interval of the law"),
        ):
            axes.fill_between(
                law["speed"],
                law["value"] - reach,
                law["value"] + reach,
                color=MODEL,
                alpha=alpha,
                linewidth=0,
                label=label,
            )
        axes.plot(law["speed"], law["value"], color=MODEL, linewidth=1.6, label="law learned")
        axes.axhline(
            unit["errors"]["constant_restitution"], color=CONSTANT, linestyle=":", linewidth=1.2,
            label="best constant",
        )  # fmt: skip
        for out, look in (
            (False, {"marker": "o", "color": "black"}),
            (True, {"marker": "D", "color": LEFT_OUT}),
        ):
            chosen = [line["check"] for line in unit["runs"] if line["left_out"] == out]
            axes.plot(
                [check["closing_speed"] for check in chosen],
                [check["restitution"] for check in chosen],
                linestyle="none",
                markersize=4 + out,
                markerfacecolor="white" if out else "black",
                label="run left out" if out else "run learned from",
                **look,
            )
        _speed_axis(axes, unit)
        axes.set(title=unit["title"], ylim=(0, 1))
    first = figure.axes[0]
    first.set_ylabel("restitution e")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return figure


def draw_velocities(series: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Velocities after the collisions left out, foretold against measured: both riders, law and constant."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, unit in zip(figure.subplots(1, len(series), squeeze=False)[0], series.values(), strict=True):
        lines = [line for line in unit["runs"] if "foretold" in line]
        measured = np.array([line["after"] for line in lines]).ravel()
        law, constant = (
            np.array([line["foretold"][name] for line in lines]).ravel() for name in ("law", "constant")
        )
        reach = 1.1 * np.abs(np.concatenate([measured, law, constant])).max()
        axes.plot((-reach, reach), (-reach, reach), color="black", linewidth=0.8)
        axes.plot(
            measured,
            constant,
            linestyle="none",
            marker="x",
            markersize=5,
            color=CONSTANT,
            label="best constant e",
        )
        axes.plot(
            measured, law, linestyle="none", marker="o", markersize=4.5, color=MODEL, markerfacecolor="none",
            label="law learned",
        )  # fmt: skip
        axes.set(
            title=unit["title"],
            xlabel="measured / (m/s)",
            xlim=(-reach, reach),
            ylim=(-reach, reach),
            aspect="equal",
        )
    first = figure.axes[0]
    first.set_ylabel("foretold / (m/s)")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.suptitle("Velocities of both riders after the collisions that were left out", fontsize=11)
    return figure


def draw_masses(series: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The ratio of masses by what each run's velocities change, over that of the scales, against speed."""
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    for axes, unit in zip(figure.subplots(1, len(series), squeeze=False)[0], series.values(), strict=True):
        lines = [line for line in unit["runs"] if line["found"]]
        axes.plot(
            [line["closing_speed"] for line in lines],
            [line["mass_ratio"] / line["check"]["mass_ratio"] for line in lines],
            linestyle="none", marker="o", markersize=4, color="black", label="one run, by straight lines",
        )  # fmt: skip
        axes.axhline(1, color=CONSTANT, linestyle=":", linewidth=1.2, label="the scales")
        shared = next((p for p in unit["parameters"] if p["name"].startswith("mass of body 2")), None)
        if shared is not None and shared["value"] is not None:
            low, value, high = (shared[key] / unit["weighed"][0] for key in ("low", "value", "high"))
            axes.axhline(value, color=MODEL, linewidth=1.4, label="all runs together, 95 %")
            axes.axhspan(low, high, color=MODEL, alpha=0.25, linewidth=0)
        _speed_axis(axes, unit)
        axes.set(title=unit["title"])
    first = figure.axes[0]
    first.set_ylabel("ratio of masses, over that weighed")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def draw_pendulum(arrays: Arrays, pendulum: Mapping[str, Any]) -> Figure:
    """Phase portrait, energy over time, and the learned slope."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    phase, level, slope = figure.subplots(1, 3)
    known, new, rollout = (arrays[name] for name in ("known", "new", "rollout"))
    later = {**DATA, "color": "black", "marker": "o", "markersize": 2.5}
    drawn = {"color": MODEL, "linewidth": 1.6}
    phase.plot(known[1], known[2], **DATA, label="measured, learned from")
    phase.plot(new[1], new[2], **later, label="measured, left out")
    phase.plot(rollout[1], rollout[2], **drawn, label="rollout")
    phase.set(xlabel="angle / rad", ylabel="angular velocity / (rad/s)", title="phase portrait")
    level.plot(known[0], energy(known[1], known[2]), **DATA)
    level.plot(new[0], energy(new[1], new[2]), **later)
    level.plot(rollout[0], energy(rollout[1], rollout[2]), **drawn)
    error = float(np.mean([line["energy_mse"] for line in pendulum["rows"]]))
    level.set(
        xlabel="time / s",
        ylabel="2.4 (1 − cos o) + v²",
        title=f"energy; mean squared error {error:.2g}",
        ylim=(0, None),
    )
    places, learned = arrays["slope"]
    slope.plot(places, 1.2 * np.sin(places), color="black", linewidth=1.0, label="1.2 sin o, of that energy")
    slope.plot(places, learned, **drawn, linestyle="--", label="learned")
    slope.set(xlabel="angle / rad", ylabel="∂U/∂o / (rad/s²)", title="learned slope of the potential")
    slope.legend()
    handles, labels = phase.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _speed_axis(axes: Axes, unit: Mapping[str, Any]) -> None:
    """Closing speeds on a logarithmic axis with plain numbers."""
    speeds = [line["check"]["closing_speed"] for line in unit["runs"]]
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator((0.1, 0.2, 0.5, 1, 2)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(0.85 * min(speeds), 1.18 * max(speeds)), xlabel="closing speed / (m/s)")
