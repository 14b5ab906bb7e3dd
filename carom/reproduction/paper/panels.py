"""The panels that figures are put together from: each draws one group of units on given axes.

Curves of a model are those of the seed whose error is the median one; a band spans all seeds.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from carom.plotting.style import DATA, line, line_style, marked_line
from carom.reproduction.paper.trials import FinishedUnit, Group
from carom.systems import AbstractSystem, BouncingBall
from carom.types import Trajectory

Samples = Float[np.ndarray, "samples"]


class Names(NamedTuple):
    """What the axes of a system are called."""

    position: str
    velocity: str
    slope: str


def names_of(system: AbstractSystem) -> Names:
    """Axis labels with units: heights for the ball, angles for whatever swings."""
    if isinstance(system, BouncingBall):
        return Names("height / m", "velocity / (m/s)", "∂U/∂q / N")
    return Names("angle / rad", "angular velocity / (rad/s)", "∂U/∂q / (N m)")


def draw_phase(axes: Axes, group: Group, names: Names, *, body: int, title: str) -> None:
    """Velocity over position: truth, the noisy data of the first seed, and every model."""
    arrays = _first(group).arrays
    seen = [arrays.truth_position[:, body, 0], arrays.data_position[:, body, 0]]
    moved = [arrays.truth_velocity[:, body, 0], arrays.data_velocity[:, body, 0]]
    horizontal, vertical = _limits(seen, 0.12), _limits(moved, 0.12)
    axes.plot(seen[1], moved[1], **DATA, rasterized=True)
    axes.plot(seen[0], moved[0], **line("truth"))
    for name, unit in group.items():
        position, velocity = _forecast(unit, body)
        _draw_curve(axes, name, _inside(position, horizontal), _inside(velocity, vertical))
    axes.set(xlabel=names.position, ylabel=names.velocity, title=title, xlim=horizontal, ylim=vertical)


def draw_position(axes: Axes, group: Group, names: Names) -> None:
    """Position of the first body over time."""
    arrays = _first(group).arrays
    limits = _limits([arrays.truth_position[:, 0, 0], arrays.data_position[:, 0, 0]], 0.12)
    axes.plot(arrays.time, arrays.data_position[:, 0, 0], **DATA, rasterized=True)
    axes.plot(arrays.time, arrays.truth_position[:, 0, 0], **line("truth"))
    for name, unit in group.items():
        _draw_curve(axes, name, arrays.time, _inside(_forecast(unit, 0)[0], limits))
    which = " of ball 1" if arrays.truth_position.shape[1] > 1 else ""
    axes.set(xlabel="time / s", ylabel=names.position, title=f"position{which} over time", ylim=limits)


def draw_energy(axes: Axes, group: Group, system: AbstractSystem, *, error: bool) -> None:
    """Energy over time, or its difference from the true motion's."""
    arrays = _first(group).arrays
    true = _energies(system, arrays.time, arrays.truth_position, arrays.truth_velocity)
    reference = true if error else np.zeros_like(true)
    curves = {}
    for name, unit in group.items():
        place = unit.median_place
        position, velocity = unit.arrays.forecast_position[place], unit.arrays.forecast_velocity[place]
        curves[name] = _energies(system, arrays.time, position, velocity) - reference
    # A model that gains energy without end must not squeeze the others: at most the true range again is seen.
    top = float(true.max())
    allowed = (-top, top) if error else (0.0, 2 * top)
    limits = _limits([np.clip(values, *allowed) for values in [true - reference, *curves.values()]], 0.1)
    axes.plot(arrays.time, true - reference, **line("truth"))
    for name, values in curves.items():
        _draw_curve(axes, name, arrays.time, _inside(values, limits))
    label, title = ("forecast − truth / J", "energy error") if error else ("energy / J", "energy over time")
    axes.set(xlabel="time / s", ylabel=label, title=title, ylim=limits)


def draw_slope(axes: Axes, group: Group, names: Names) -> None:
    """Learned ∂U/∂q; balls of a cradle share the axes, each over the side on which it swings."""
    drawn = {name: unit for name, unit in group.items() if unit.arrays.slope_learned is not None}
    if not drawn:
        axes.set_axis_off()
        return
    reference, medians = [], []
    for index, (name, unit) in enumerate(drawn.items()):
        grid, true, learned = unit.arrays.slope_grid, unit.arrays.slope_true, unit.arrays.slope_learned
        assert grid is not None
        assert true is not None
        assert learned is not None
        for body in range(grid.shape[1]):
            places, of_seeds = grid[:, body, 0], learned[:, :, body, 0]
            if index == 0:
                axes.plot(places, true[:, body, 0], **line("truth"), zorder=3)
                reference.append(true[:, body, 0])
            look_of = line_style(name)
            axes.fill_between(
                places, of_seeds.min(0), of_seeds.max(0), color=look_of.color, alpha=0.2, linewidth=0
            )
            _draw_curve(axes, name, places, of_seeds[unit.median_place])
            medians.append(of_seeds[unit.median_place])
    # The median seeds set the range, down to 0 and up to twice the truth: a single wild seed leaves the axes.
    width, size = float(np.ptp(reference)), float(np.max(np.abs(reference)))
    allowed = float(np.min(reference)) - size, float(np.max(reference)) + size
    shown = [*reference, *(np.clip(values, *allowed) for values in medians)]
    limits = _limits(shown, 0.25, least=max(0.4 * width, 0.04 * size))
    axes.set(xlabel=names.position, ylabel=names.slope, title="learned slope of the potential", ylim=limits)


def with_contacts(group: Group) -> Group:
    """The models that predict contacts."""
    return {name: unit for name, unit in group.items() if unit.arrays.contact_on_truth is not None}


def draw_contact(axes: Axes, unit: FinishedUnit, *, first: bool, last: bool) -> None:
    """Probability of touch on the true states over time, the true touches as triangles above."""
    arrays, look_of = unit.arrays, line_style(unit.model)
    assert arrays.contact_on_truth is not None
    probability = arrays.contact_on_truth[:, :, 0]  # the scores count this signal too
    time, touch = arrays.time[1:], arrays.truth_contact[1:, 0]
    axes.fill_between(
        time, probability.min(0), probability.max(0), color=look_of.color, alpha=0.25, linewidth=0
    )
    axes.plot(time, probability[unit.median_place], color=look_of.color, linewidth=1.3)
    if touch.any():  # an empty curve breaks constrained layout
        axes.plot(time[touch], np.full(touch.sum(), 1.2), "kv", markersize=4)
    axes.set(ylim=(-0.08, 1.3), xlim=(arrays.time[0], arrays.time[-1]))
    axes.set_yticks((0, 0.5, 1), ("0", "½", "1"))
    highest = float(np.max(probability, where=np.isfinite(probability), initial=0.0))
    text = f"{unit.model}: at most {_three_digits(highest)} (all seeds)"
    axes.annotate(
        text, (0, 1), xytext=(0, 3), xycoords="axes fraction", textcoords="offset points", fontsize=8
    )
    axes.set_title("probability of touch on the true states" if first else " ", pad=16 if first else 3)
    axes.tick_params(labelbottom=last)
    if last:
        axes.set_xlabel("time / s")


def _draw_curve(axes: Axes, name: str, horizontal: Samples, vertical: Samples) -> None:
    """A model's curve; nothing of one that left the numbers at once, on which markers cannot be spread."""
    if np.any(np.isfinite(horizontal) & np.isfinite(vertical)):
        axes.plot(horizontal, vertical, **marked_line(name))


def _first(group: Group) -> FinishedUnit:
    return next(iter(group.values()))


def _forecast(unit: FinishedUnit, body: int) -> tuple[Samples, Samples]:
    place = unit.median_place
    return (
        unit.arrays.forecast_position[place, :, body, 0],
        unit.arrays.forecast_velocity[place, :, body, 0],
    )


def _energies(system: AbstractSystem, time: np.ndarray, position: np.ndarray, velocity: np.ndarray):
    contact = np.zeros((len(time), 0), bool)
    return system.energies(
        Trajectory(time.astype(float), position.astype(float), velocity.astype(float), contact)
    )


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


def _three_digits(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else f"{value:.0e}"
