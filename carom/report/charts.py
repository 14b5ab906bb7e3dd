"""The figures of a fit's page: one panel each, small enough for a phone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carom.digits import number
from carom.models import ImpactNetwork
from carom.plotting.style import DATA, figure_style
from carom.report.findings import DRAWN_RUNS, Findings
from carom.report.inline_svg import HEIGHT, IMPACT, INK, MODEL, POINTS, SECOND, WIDTH, inline_svg

MOST_POINTS, MOST_STEPS = 600, 1500
"""Points and steps of a curve that are drawn, evenly spread over what there is."""
MOST_CHARTS = 6
"""Figures of one kind; a page with more is not looked at."""
BOUND: dict[str, Any] = {"color": IMPACT, "linestyle": (0, (4, 3)), "linewidth": 1.0}
_POINTS = {**DATA, "color": POINTS, "markersize": 3.5}


@dataclass(frozen=True)
class Chart:
    """A figure with its words.

    Arguments:
        name: unlike any other on the page.
        title: a few words.
        caption: what to see in it.
        svg: the picture, as an element of a page.
    """

    name: str
    title: str
    caption: str
    svg: str

    @property
    def html(self) -> str:
        """A figure of a page."""
        return (
            f'<figure id="{escape(self.name)}">{self.svg}'
            f"<figcaption><strong>{escape(self.title)}.</strong> {escape(self.caption)}</figcaption></figure>"
        )


@contextmanager
def _panel(charts: list[Chart], name: str, title: str, caption: str, described: str) -> Iterator[Axes]:
    """Axes to draw on; the figure is added to the charts at the end."""
    with figure_style():
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        axes.tick_params(labelsize=10)
        axes.xaxis.label.set_fontsize(10)
        axes.yaxis.label.set_fontsize(10)
        yield axes
        if axes.get_legend_handles_labels()[0]:
            figure.legend(
                loc="outside upper center", ncols=3, fontsize=9, handlelength=1.8, columnspacing=1.2
            )
        charts.append(Chart(name, title, caption, inline_svg(figure, name=name, description=described)))


def data_charts(findings: Findings) -> list[Chart]:
    """What was recorded, with the contacts that were found, coordinate by coordinate."""
    charts: list[Chart] = []
    for run, body, axis in _coordinates(findings, len(findings.runs)):
        data, name = findings.runs[run], findings.coordinate(body, axis)
        hits = findings.impacts[run]
        own = _own_contacts(findings, body)
        times = data.time[hits[:, own].any(axis=1)] if own else np.zeros(0)
        seen = _times(times)
        title = f"{name} in {findings.fitted_title(run)}"
        caption = f"{len(times)} contact{'s' * (len(times) != 1)} found{seen}."
        if findings.notes.get("impacts") is None:
            recorded = "1 touch was" if len(times) == 1 else f"{len(times)} touches were"
            caption = f"{recorded} recorded{seen}." if len(times) else "No touch was recorded."
        with _panel(
            charts, f"data-{run}-{body}-{axis}", title, caption, f"{title} over time. {caption}"
        ) as axes:
            _scatter(axes, data.time, data.position[:, body, axis], "recorded")
            if run < len(findings.motions):
                _curve(axes, data.time, np.asarray(findings.motions[run].position)[:, body, axis], "model")
            for place, time in enumerate(times[:200]):
                axes.axvline(time, **BOUND, label="contact" if place == 0 else None)
            axes.set(xlabel="time / s", ylabel=f"{_label(name)} / unit")
    return charts


def phase_charts(findings: Findings) -> list[Chart]:
    """Velocity over position."""
    charts: list[Chart] = []
    for run, body, axis in _coordinates(findings, min(1, len(findings.motions))):
        data, name = findings.runs[run], findings.coordinate(body, axis)
        motion = findings.motions[run]
        position, velocity = (np.asarray(part)[:, body, axis] for part in (motion.position, motion.velocity))
        slowest, fastest = float(velocity.min()), float(velocity.max())
        caption = f"Rates from {number(slowest)} to {number(fastest)}, {findings.fitted_title(run)}."
        if data.velocity is None:
            caption += " Velocities were not recorded; the model's are shown."
        title = f"Phase portrait of {name}"
        with _panel(charts, f"phase-{body}-{axis}", title, caption, f"{title}. {caption}") as axes:
            if data.velocity is not None:
                _scatter(axes, data.position[:, body, axis], data.velocity[:, body, axis], "recorded")
            # A jump at an impact is no motion: the curve is interrupted there.
            broken = velocity.copy()
            broken[findings.impacts[run].any(axis=1)] = np.nan
            _curve(axes, position, broken, "model")
            axes.set(xlabel=f"{_label(name)} / unit", ylabel=f"rate of {_label(name)} / (unit/s)")
    return charts


def forecast_charts(findings: Findings) -> list[Chart]:
    """Forecasts against what was held out."""
    charts: list[Chart] = []
    for place, body, axis in _coordinates(findings, len(findings.forecasts)):
        ahead = findings.forecasts[place]
        part, name = ahead.part, findings.coordinate(body, axis)
        error = np.sqrt(np.nanmean(ahead.squares[:, body, axis]))
        caption = f"Typical error {number(float(error))}."
        if ahead.covered is not None:
            caption += (
                f" {100 * ahead.covered:.0f} % of the samples lie in the band and its noise; 90 % should."
            )
        if ahead.low is None:
            caption += " No band: the run has one model alone."
        title = f"Forecast of {name} in {findings.title(part.number)}"
        with _panel(
            charts, f"forecast-{place}-{body}-{axis}", title, caption, f"{title}, held out. {caption}"
        ) as axes:
            shown = slice(-min(60, len(part.history)), None)
            past, future = part.history, part.future
            _scatter(axes, past.time[shown], past.position[shown, body, axis], "history")
            axes.plot(
                *_thin(MOST_POINTS, future.time, future.position[:, body, axis]),
                **{**_POINTS, "color": INK, "markersize": 2.5},
                label="held out",
            )
            _curve(axes, future.time, ahead.position[:, body, axis], "forecast")
            if ahead.low is not None and ahead.high is not None:
                _band(axes, future.time, ahead.low[:, body, axis], ahead.high[:, body, axis])
            _limit(axes, [past.position[shown, body, axis], future.position[:, body, axis]])
            axes.set(xlabel="time / s", ylabel=f"{_label(name)} / unit")
    return charts


def energy_charts(findings: Findings) -> list[Chart]:
    """Energy over time; impacts take it, and so does damping."""
    charts: list[Chart] = []
    for run, (kinetic, potential) in enumerate(findings.energies[:1]):
        time, total = findings.runs[run].time, kinetic + potential
        caption = (
            f"In all {number(float(total[0]))} at the start and {number(float(total[-1]))} at the end of "
            f"{findings.fitted_title(run)}, by the model; the potential counts from its lowest value."
        )
        with _panel(charts, f"energy-{run}", "Energy", caption, f"Energy over time. {caption}") as axes:
            _curve(axes, time, total, "in all")
            _curve(axes, time, kinetic, "kinetic", color=SECOND, dash=(0, (1, 1)))
            _curve(axes, time, potential, "potential", color=IMPACT, dash=(0, (5, 2)))
            axes.set(xlabel="time / s", ylabel="energy / mass / (unit²/s²)", ylim=(0, None))
    return charts


def slope_charts(findings: Findings) -> list[Chart]:
    """∇U, the force with its sign turned, along every coordinate."""
    charts: list[Chart] = []
    for slope in findings.slopes[:MOST_CHARTS]:
        name = findings.coordinate(slope.body, slope.axis)
        low, high = number(float(slope.value.min())), number(float(slope.value.max()))
        caption = f"From {low} to {high} over the positions that were seen."
        if slope.low is not None and slope.high is not None:
            width = number(float(np.median(slope.high - slope.low)) / 2)
            caption += f" The band, {findings.band}, is typically ± {width} wide."
        title = f"Slope of the potential along {name}"
        with _panel(
            charts, f"slope-{slope.body}-{slope.axis}", title, caption, f"{title}. {caption}"
        ) as axes:
            _curve(axes, slope.place, slope.value, "∂U/∂q / mass")
            if slope.low is not None and slope.high is not None:
                _band(axes, slope.place, slope.low, slope.high)
            _least_range(axes, slope.value)
            axes.set(xlabel=f"{_label(name)} / unit", ylabel="slope / (unit/s²)")
    return charts


def gap_charts(findings: Findings) -> list[Chart]:
    """How far surfaces are from each other, or how likely a contact is."""
    charts: list[Chart] = []
    if not findings.gaps:
        return charts
    gaps, run, title_of_run = findings.gaps[0], findings.runs[0], findings.fitted_title(0)
    geometric = isinstance(findings.model, ImpactNetwork)
    for contact in range(min(MOST_CHARTS, gaps.shape[1])):
        if geometric:
            title = f"Gap {findings.contact(contact)}"
            smallest = number(float(gaps[:, contact].min()))
            caption = f"The smallest gap of {title_of_run} is {smallest}; at 0 surfaces touch."
            label = "gap / unit"
        else:
            title = f"Contact signal {contact + 1}"
            caption = (
                f"The greatest probability of a contact in {title_of_run} is "
                f"{number(float(gaps[:, contact].max()))}."
            )
            label = "probability of a contact"
        with _panel(charts, f"gap-{contact}", title, caption, f"{title} over time. {caption}") as axes:
            _curve(axes, run.time, gaps[:, contact], "model", color=SECOND)
            axes.axhline(0.0 if geometric else 0.5, color=INK, linewidth=0.8)
            hits = findings.impacts[0][:, _columns_of(findings, contact)].any(axis=1)
            for place, instant in enumerate(run.time[hits][:200]):
                axes.axvline(instant, **BOUND, label="contact" if place == 0 else None)
            axes.set(xlabel="time / s", ylabel=label)
    return charts


def history_charts(findings: Findings) -> list[Chart]:
    """How the fit got there."""
    charts: list[Chart] = []
    lines = findings.finished.history
    if not lines:
        return charts
    count = "round" if "round" in lines[0] else "epoch"
    names = [name for name in lines[0] if name != count]
    caption = f"{len(lines)} {count}s; " + ", ".join(
        f"{name.replace('_', ' ')} {number(lines[-1].get(name, float('nan')))}" for name in names
    )
    with _panel(charts, "history", "Training", f"{caption}.", f"Training history. {caption}.") as axes:
        steps = np.array([line.get(count, np.nan) for line in lines], float)
        looks = ((MODEL, "-"), (SECOND, (0, (5, 2))), (IMPACT, (0, (1, 1))))
        for name, (color, dash) in zip(names, looks, strict=False):
            values = np.array([line.get(name, np.nan) for line in lines], float)
            _curve(axes, steps, values, name.replace("_", " "), color=color, dash=dash)
        positive = all(line.get(name, 1.0) > 0 for line in lines for name in names)
        if count == "epoch" and positive:
            axes.set_yscale("log")
        axes.set(xlabel=count, ylabel="log-likelihood" if count == "round" else "loss")
    return charts


def _coordinates(findings: Findings, runs: int) -> list[tuple[int, int, int]]:
    """Run, body and axis of the figures of one kind, the first runs first, but not too many."""
    scene = findings.model.scene
    each = product(range(min(runs, DRAWN_RUNS)), range(scene.bodies), range(scene.dimension))
    return list(each)[:MOST_CHARTS]


def _own_contacts(findings: Findings, body: int) -> list[int]:
    """The columns of the found impacts that concern a body."""
    if findings.notes.get("impacts") is None:
        return [body]
    return [j for j, candidate in enumerate(findings.model.scene.candidates) if body in candidate.bodies]


def _columns_of(findings: Findings, contact: int) -> list[int]:
    """The columns of the found impacts that concern a contact, or of the bodies that may have felt it."""
    if findings.notes.get("impacts") is not None:
        return [contact]
    candidates = findings.model.scene.candidates
    return list(candidates[contact].bodies) if contact < len(candidates) else []


def _times(times: np.ndarray) -> str:
    """The first instants, in words."""
    if not len(times):
        return ""
    listed = ", ".join(f"{time:.4g}" for time in times[:6])
    return f", at {listed}{' …' if len(times) > 6 else ''} s"


def _label(name: str) -> str:
    """A name from a file as text of a figure, where a dollar sign would begin a formula."""
    short = name if len(name) <= 24 else name[:23] + "…"
    return short.replace("$", r"\$")


def _thin(most: int, *columns: np.ndarray) -> list[np.ndarray]:
    """Evenly chosen entries, not more than `most`."""
    stride = -(-len(columns[0]) // most)
    return [column[::stride] for column in columns]


def _scatter(axes: Axes, x: np.ndarray, y: np.ndarray, label: str) -> None:
    axes.plot(*_thin(MOST_POINTS, x, y), **_POINTS, label=label)


def _curve(
    axes: Axes, x: np.ndarray, y: np.ndarray, label: str, *, color: str = MODEL, dash: Any = "-"
) -> None:
    axes.plot(*_thin(MOST_STEPS, x, y), color=color, linestyle=dash, linewidth=1.4, label=label)


def _band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    x, low, high = _thin(MOST_STEPS, x, low, high)
    axes.fill_between(x, low, high, color=MODEL, alpha=0.25, linewidth=0, label="band")


def _limit(axes: Axes, shown: list[np.ndarray]) -> None:
    """The range of the data and half as much: a forecast that diverges must not squeeze them."""
    values = np.concatenate(shown)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.5 * max(high - low, 1e-9)
    axes.set_ylim(max(axes.get_ylim()[0], low - margin), min(axes.get_ylim()[1], high + margin))


def _least_range(axes: Axes, values: np.ndarray) -> None:
    """No smaller than a fifth of the value: a force that hardly varies should look flat."""
    middle = float(np.median(values))
    half = max(0.1 * abs(middle), 0.55 * float(np.ptp(values)))
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, middle - half), max(high, middle + half))
