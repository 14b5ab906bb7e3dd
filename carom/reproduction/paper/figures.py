"""The paper's figures: one per experiment and protocol, with six panels.

Curves of a model are those of the seed whose error is the median one; a band spans all seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec, SubplotSpec
from matplotlib.ticker import LogLocator

from carom.digits import number
from carom.plotting.style import DATA, LINES, figure_style, line, marked_line, save_figure
from carom.reproduction.paper.experiments import EXPERIMENTS, ORACLE, Experiment, PaperNumber
from carom.reproduction.paper.run import trial_stem
from carom.storage.tensor_file import read_arrays
from carom.systems import AbstractSystem, BouncingBall, NewtonsCradle
from carom.types import Trajectory

Samples = Float[np.ndarray, "samples"]


@dataclass(frozen=True)
class FinishedTrial:
    """One model of an experiment under one protocol.

    Arguments:
        model: its name in tables and figures.
        seeds: in the order of `errors` and of the arrays.
        errors: of every seed; infinite where the forecast diverged.
        paper: the printed number.
        arrays: what `carom.reproduction.paper.run.figure_arrays` kept; nothing of the oracle.
    """

    model: str
    seeds: tuple[int, ...]
    errors: tuple[float, ...]
    paper: PaperNumber | None
    arrays: Mapping[str, np.ndarray]

    @property
    def median_index(self) -> int:
        """The position of the seed with the median error; of an even number, of the lower in the middle."""
        return int(np.argsort(self.errors, kind="stable")[(len(self.errors) - 1) // 2])

    @property
    def label(self) -> str:
        """The model with the seed that is drawn."""
        index = self.median_index
        return f"{self.model}: seed {self.seeds[index]}, error {number(self.errors[index])}"

    @property
    def forecast(self) -> tuple[np.ndarray, np.ndarray]:
        """Position and velocity of the median seed."""
        index = self.median_index
        return self.arrays["forecast_position"][index], self.arrays["forecast_velocity"][index]


Trials = dict[str, FinishedTrial]
"""The models of one experiment and protocol, by name."""


def load_trials(fits: pl.DataFrame, folder: Path) -> Trials:
    """The trials of one experiment and protocol, with their arrays in `folder`; the oracle has none."""
    found = {}
    for (name, protocol, model), own in fits.group_by("experiment", "protocol", "model", maintain_order=True):
        errors, value = own["paper_rmse"].fill_nan(np.inf), own["paper"][0]
        paper = None if value is None else PaperNumber(value, own["paper_error"][0])
        path = folder / f"{trial_stem(str(name), str(protocol), str(model))}.safetensors"
        arrays = {} if model == ORACLE else read_arrays(path)
        found[str(model)] = FinishedTrial(str(model), tuple(own["seed"]), tuple(errors), paper, arrays)
    return found


class Names(NamedTuple):
    """What the axes of a system are called: heights of the ball, angles of whatever swings."""

    position: str
    velocity: str
    slope: str


HEIGHT = Names("height / m", "velocity / (m/s)", "∂U/∂q / N")
ANGLE = Names("angle / rad", "angular velocity / (rad/s)", "∂U/∂q / (N m)")


def draw_phase(axes: Axes, group: Trials, names: Names, *, body: int, title: str) -> None:
    """Velocity over position: truth, the noisy data of the first seed, and every model."""
    arrays = _first(group)
    position, velocity = (
        {kind: arrays[f"{kind}_{name}"][:, body, 0] for kind in ("truth", "data")}
        for name in ("position", "velocity")
    )
    # The models do not set the range: one that diverges would squeeze all others.
    horizontal, vertical = _limits([*position.values()], 0.12), _limits([*velocity.values()], 0.12)
    axes.plot(position["data"], velocity["data"], **DATA, rasterized=True, label="data of the first seed")
    axes.plot(position["truth"], velocity["truth"], **line("truth"))
    for trial in group.values():
        q, v = (values[:, body, 0] for values in trial.forecast)
        _draw_curve(axes, trial, _inside(q, horizontal), _inside(v, vertical))
    axes.set(xlabel=names.position, ylabel=names.velocity, title=title, xlim=horizontal, ylim=vertical)


def draw_position(axes: Axes, group: Trials, names: Names) -> None:
    """Position of the first body over time."""
    arrays = _first(group)
    time, truth, data = arrays["time"], arrays["truth_position"], arrays["data_position"][:, 0, 0]
    limits = _limits([truth[:, 0, 0], data], 0.12)
    # Independent trajectories have no place on the time axis of the scored motion.
    if np.all(np.diff(arrays["data_time"]) > 0):
        axes.plot(arrays["data_time"], data, **DATA, rasterized=True)
    axes.plot(time, truth[:, 0, 0], **line("truth"))
    for trial in group.values():
        _draw_curve(axes, trial, time, _inside(trial.forecast[0][:, 0, 0], limits))
    which = " of ball 1" if truth.shape[1] > 1 else ""
    axes.set(xlabel="time / s", ylabel=names.position, title=f"position{which} over time", ylim=limits)


def draw_energy(axes: Axes, group: Trials, system: AbstractSystem) -> None:
    """Energy over time."""
    arrays = _first(group)
    time = arrays["time"]
    true = _energies(system, time, arrays["truth_position"], arrays["truth_velocity"])
    curves = {name: _energies(system, time, *trial.forecast) for name, trial in group.items()}
    # A model that gains energy without end must not squeeze the others: twice the true range is shown.
    limits = _limits([np.clip(values, 0.0, 2 * true.max()) for values in (true, *curves.values())], 0.1)
    axes.plot(time, true, **line("truth"))
    for name, values in curves.items():
        _draw_curve(axes, group[name], time, _inside(values, limits))
    axes.set(xlabel="time / s", ylabel="energy / J", title="energy over time", ylim=limits)


def draw_slope(axes: Axes, group: Trials, names: Names) -> None:
    """Learned ∂U/∂q; balls of a cradle share the axes, each over the side on which it swings."""
    drawn = [trial for trial in group.values() if "slope_learned" in trial.arrays]
    if not drawn:
        axes.set_axis_off()
        return
    true, grid = drawn[0].arrays["slope_true"][:, :, 0], drawn[0].arrays["slope_grid"][:, :, 0]
    axes.plot(grid, true, **line("truth"), zorder=3)
    medians = []
    for trial in drawn:
        learned = trial.arrays["slope_learned"][..., 0]
        for body in range(grid.shape[1]):
            low, high = learned[:, :, body].min(0), learned[:, :, body].max(0)
            x, color = grid[:, body], LINES[trial.model].color
            axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
            medians.append(learned[trial.median_index, :, body])
            _draw_curve(axes, trial, x, medians[-1])
    # The median seeds set the range, down to 0 and up to twice the truth: a single wild seed leaves the axes.
    width, size = float(np.ptp(true)), float(np.max(np.abs(true)))
    allowed = float(np.min(true)) - size, float(np.max(true)) + size
    shown = [true.ravel(), *(np.clip(values, *allowed) for values in medians)]
    limits = _limits(shown, 0.25, least=max(0.4 * width, 0.04 * size))
    axes.set(xlabel=names.position, ylabel=names.slope, title="learned slope of the potential", ylim=limits)


def draw_contact(axes: Axes, trial: FinishedTrial, *, first: bool, last: bool) -> None:
    """Probability of touch on the true states over time, the true touches as triangles above."""
    arrays, color = trial.arrays, LINES[trial.model].color
    probability = arrays["contact_on_truth"][:, :, 0]  # the metrics count this signal too
    time, touch = arrays["time"][1:], arrays["truth_contact"][1:, 0]
    axes.fill_between(time, probability.min(0), probability.max(0), color=color, alpha=0.25, linewidth=0)
    axes.plot(time, probability[trial.median_index], color=color, linewidth=1.3)
    if touch.any():  # an empty curve breaks constrained layout
        axes.plot(time[touch], np.full(touch.sum(), 1.2), "kv", markersize=4, label="true touch")
    axes.set(ylim=(-0.08, 1.3), xlim=(arrays["time"][0], arrays["time"][-1]))
    axes.set_yticks((0, 0.5, 1), ("0", "½", "1"))
    # Over all seeds, since one seed with a false contact spoils its forecast.
    highest = float(np.max(probability, where=np.isfinite(probability), initial=0.0))
    text = f"{trial.model}: at most {number(highest)} (all seeds)"
    axes.text(0, 1.03, text, transform=axes.transAxes, fontsize=8)
    axes.set_title("probability of touch on the true states" if first else " ", pad=16 if first else 3)
    axes.tick_params(labelbottom=last)
    if last:
        axes.set_xlabel("time / s")


def draw_errors(axes: Axes, trials: Trials) -> None:
    """One row per model on a logarithmic axis: seeds, and their median as a tick.

    The diamond is the paper's number, with its standard error where it printed one. What diverged, or lies
    outside of the axis, is at its edge.
    """
    limits = _error_range(trials)
    for row, (name, trial) in enumerate(trials.items()):
        style = LINES[name]
        if row % 2 == 0:  # shows which row a mark near its edge belongs to
            axes.axhspan(row - 0.5, row + 0.5, color="#F4F4F4", zorder=0)
        errors = np.clip(trial.errors, *limits)
        # The same scatter every time, and neighbours in rank never on one line.
        heights = row + 0.24 * np.resize([0.0, 0.7, -0.7, 1.0, -1.0, 0.35, -0.35], len(errors))
        label = "oracle: true equations, g fitted" if name == ORACLE else None
        axes.plot(errors, heights, style.marker, color=style.color, alpha=0.85, clip_on=False, label=label)
        axes.plot(np.median(errors), row, "|", color="black", markersize=18, label="median error")
        if trial.paper is not None:
            axes.errorbar(
                trial.paper.value, row + 0.34, xerr=trial.paper.standard_error, capsize=3, zorder=4,
                marker="D", markersize=5, markerfacecolor="white", color="black", linestyle="none",
                label="paper (± standard error)",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set(xlim=limits, xlabel="error (paper's RMSE)", ylim=(len(trials) - 0.5, -0.5))
    axes.set_title("error over runs")
    axes.set_yticks(range(len(trials)), [name.replace(" (", "\n(") for name in trials])
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter("{x:g}")
    # Few decades leave too few labels: those in between are written too.
    if limits[1] / limits[0] < 100:
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.xaxis.set_minor_formatter("{x:g}")


def _error_range(trials: Trials) -> tuple[float, float]:
    """Holds all finite errors of models and the printed numbers; the oracle down to a hundredth of those."""
    shown = [error for name, trial in trials.items() if name != ORACLE for error in trial.errors]
    shown += [trial.paper.value for trial in trials.values() if trial.paper is not None]
    finite = [error for error in shown if 0 < error < 1e6] or [1.0]
    low, high = min(finite), max(finite)
    oracle = trials[ORACLE].errors if ORACLE in trials else ()
    return min([low, *(error for error in oracle if error > low / 100)]) / 2, high * 2


def _draw_curve(axes: Axes, trial: FinishedTrial, horizontal: Samples, vertical: Samples) -> None:
    """A model's curve; without markers where it diverged at once, so that they cannot be spread."""
    drawn = np.any(np.isfinite(horizontal) & np.isfinite(vertical))
    style = marked_line(trial.model) if drawn else line(trial.model)
    style["label"] = trial.label
    axes.plot(horizontal, vertical, **style)


def _first(group: Trials) -> Mapping[str, np.ndarray]:
    return next(iter(group.values())).arrays


def _energies(system: AbstractSystem, time: np.ndarray, position: np.ndarray, velocity: np.ndarray):
    contact = np.zeros((len(time), 0), bool)
    states = position.astype(float), velocity.astype(float)
    return system.energies(Trajectory(time.astype(float), *states, contact))


def _limits(series: list[np.ndarray], margin: float, *, least: float = 0.0) -> tuple[float, float]:
    """A range that holds all finite numbers with a margin, at least `least` wide."""
    numbers = np.concatenate(series)
    numbers = numbers[np.isfinite(numbers)]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)
    missing = max(0.0, least - (high - low)) / 2
    extra = margin * (high - low) + missing + 1e-9
    return low - extra, high + extra


def _inside(values: Samples, limits: tuple[float, float]) -> Samples:
    """Without what lies far outside: markers are spread along the whole curve, seen or not."""
    width = limits[1] - limits[0]
    near = (values > limits[0] - width) & (values < limits[1] + width)
    return np.where(near, values, np.nan)


Panel = Callable[[Axes], None]


def write_figure(fits: pl.DataFrame, trials: Path, figures: Path, report: object = None) -> Path:
    """Draw one experiment under one protocol as `<experiment>.<protocol>.png` and `.svg`.

    Arguments:
        fits: as `carom.reproduction.paper.tables.fits_of` gives them, of this experiment and protocol.
        trials: where the arrays of the trials are.
        figures: where the figure goes.
        report: unused; tasks are called with it.
    """
    name, protocol = fits["experiment"][0], fits["protocol"][0]
    with figure_style():
        figure = draw_experiment(load_trials(fits, trials), EXPERIMENTS[name], protocol)
        return save_figure(figure, figures / f"{name}.{protocol}")


def draw_experiment(trials: Trials, experiment: Experiment, protocol: str) -> Figure:
    """Six panels: the motion, what was learned, and the errors of all seeds."""
    figure = Figure(figsize=(12, 7.6), layout="constrained")
    grid = GridSpec(2, 3, figure=figure)
    group = {name: trial for name, trial in trials.items() if name != ORACLE}
    # The last two places are the same for all systems.
    four = _panels(group, experiment.system)
    for place, draw in zip([(0, 0), (0, 1), (0, 2), (1, 0)], four, strict=True):
        draw(figure.add_subplot(grid[place]))
    _contact_panels(figure, grid[1, 1], group)
    draw_errors(figure.add_subplot(grid[1, 2]), trials)
    seeds = len(next(iter(trials.values())).seeds)
    curves = f"curves: for every model the seed whose error is the median of {seeds}; bands: all seeds"
    figure.suptitle(f"{experiment.label}, protocol “{protocol}”\n{curves}", fontsize=11)
    # Every label once, though most curves are in several panels.
    legend = {}
    for axes in figure.axes:
        legend |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, handlelength=3.5)
    return figure


def _panels(group: Trials, system: AbstractSystem) -> list[Panel]:
    """The four panels that differ between systems."""
    names = HEIGHT if isinstance(system, BouncingBall) else ANGLE
    phase = partial(draw_phase, group=group, names=names)
    position = partial(draw_position, group=group, names=names)
    slope = partial(draw_slope, group=group, names=names)
    if isinstance(system, NewtonsCradle):
        balls = [partial(phase, body=ball, title=f"phase portrait of ball {ball + 1}") for ball in (0, 1)]
        return [*balls, position, slope]
    energy = partial(draw_energy, group=group, system=system)
    return [partial(phase, body=0, title="phase portrait"), position, energy, slope]


def _contact_panels(figure: Figure, place: SubplotSpec, group: Trials) -> None:
    """One lane per model with contacts: curves that are nearly always 0 would hide each other on one axis."""
    models = [trial for trial in group.values() if "contact_on_truth" in trial.arrays]
    # A model without contacts leaves the place empty.
    lanes = place.subgridspec(max(1, len(models)), 1)
    for index, trial in enumerate(models):
        axes = figure.add_subplot(lanes[index])
        draw_contact(axes, trial, first=index == 0, last=index == len(models) - 1)
