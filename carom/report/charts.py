"""The charts of a fit's page: one panel each, readable on a phone, in the colours of the page."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from carom.digits import number
from carom.models.base import HasSurfaces
from carom.plotting.style import DATA, INK, PALETTE, PAPER, POINTS, RULE, figure_style
from carom.report.findings import DRAWN_RUNS, MOST_CHARTS, Curve, Findings

SIZE = (4.2, 2.9)
"""Inches: at this size the letters remain legible on a phone."""
FIRST, SECOND, THIRD = (PALETTE[color] for color in ("blue", "green", "vermilion"))
DASHED, DOTTED = (0, (5, 2)), (0, (1, 1))
HISTORY = 60
"""Samples before a forecast that are drawn."""
# The page replaces these colours by variables of its own, whose values differ in dark mode.
_VARIABLES = {INK: "--ink", PAPER: "--page", RULE: "--rule", POINTS: "--points"}
_VARIABLES |= {FIRST: "--model", SECOND: "--second", THIRD: "--impact"}


class Chart(NamedTuple):
    """A chart with its text.

    Arguments:
        name: unique on the page.
        title: a few words.
        caption: what the chart shows.
        box: the view box of the SVG element.
        drawing: its content, up to its closing tag.
    """

    name: str
    title: str
    caption: str
    box: str
    drawing: Markup


def fit_charts(findings: Findings) -> dict[str, list[Chart]]:
    """All charts of a page, by section."""
    charts: dict[str, list[Chart]] = {}
    for section, drawer in (
        ("data", _draw_recorded),
        ("forecast", _draw_forecasts),
        ("phase", _draw_phases),
        ("force", _draw_energy),
        ("force", _draw_forces),
        ("contact", _draw_contacts),
        ("contact", _draw_restitution),
        ("history", _draw_history),
    ):
        drawer(charts.setdefault(section, []), findings)
    return charts


def _draw_recorded(charts: list[Chart], findings: Findings) -> None:
    """Recorded coordinates against time, with the contacts."""
    for run, body, axis, name in _coordinates(findings, len(findings.runs)):
        data, title = findings.runs[run], f"{name} in {findings.fitted_title(run)}"
        times = data.time[findings.touched(run)[:, body]]
        caption = _contacts_in_words(times, findings.detected)
        labels = ("time / s", f"{_label(name)} / unit")
        with _chart(charts, f"data-{run}-{body}-{axis}", title, caption, *labels) as axes:
            plot_samples(axes, data.time, data.position[:, body, axis], label="recorded")
            for motion in findings.motions[run : run + 1]:
                plot_curve(axes, data.time, motion.position[:, body, axis], label="model")
            mark_contacts(axes, times)


def _draw_phases(charts: list[Chart], findings: Findings) -> None:
    """Phase portraits."""
    for run, body, axis, name in _coordinates(findings, min(1, len(findings.motions))):
        data = findings.runs[run]
        position, velocity = (np.array(part)[:, body, axis] for part in findings.motions[run])
        low, high = number(float(velocity.min())), number(float(velocity.max()))
        caption = f"Velocities from {low} to {high} in {findings.fitted_title(run)}."
        if data.velocity is None:
            caption += " Velocities were not recorded; those of the model are shown."
        labels = (f"{_label(name)} / unit", f"velocity of {_label(name)} / (unit/s)")
        with _chart(charts, f"phase-{body}-{axis}", f"Phase portrait of {name}", caption, *labels) as axes:
            if data.velocity is not None:
                measured = data.position[:, body, axis], data.velocity[:, body, axis]
                plot_samples(axes, *measured, label="recorded")
            # Velocity jumps at an impact: the curve is interrupted there.
            velocity[findings.impacts[run].any(axis=1)] = np.nan
            plot_curve(axes, position, velocity, label="model")


def _draw_forecasts(charts: list[Chart], findings: Findings) -> None:
    """Forecasts and the held-out samples."""
    for index, body, axis, name in _coordinates(findings, len(findings.forecasts)):
        ahead = findings.forecasts[index]
        past, future = ahead.part.history, ahead.part.future
        error = float(np.sqrt(np.nanmean(ahead.squares[:, body, axis])))
        caption = f"Root-mean-square error {number(error)}."
        if ahead.covered is not None:
            caption += f" {100 * ahead.covered:.0f} % of the samples lie within the 90 % band and the noise."
        if ahead.low is None:
            caption += " There is no band, as the fit has a single model."
        title = f"Forecast of {name} in {findings.title(ahead.part.number)}"
        labels = ("time / s", f"{_label(name)} / unit")
        with _chart(charts, f"forecast-{index}-{body}-{axis}", title, caption, *labels) as axes:
            # Enough to see how the forecast continues the past.
            before, after = past.position[-HISTORY:, body, axis], future.position[:, body, axis]
            plot_samples(axes, past.time[-HISTORY:], before, label="history")
            plot_samples(axes, future.time, after, label="held out", color=INK, size=2.5)
            plot_curve(axes, future.time, ahead.position[:, body, axis], label="forecast")
            if ahead.low is not None and ahead.high is not None:
                edges = ahead.low[:, body, axis], ahead.high[:, body, axis]
                plot_band(axes, future.time, *edges, label=findings.band)
            limit_to_data(axes, [before, after])


def _draw_energy(charts: list[Chart], findings: Findings) -> None:
    """Energy against time; impacts and damping dissipate it."""
    if findings.energies is None:
        return
    time, (kinetic, potential) = findings.runs[0].time, findings.energies
    total = kinetic + potential
    caption = (
        f"Total energy: {number(float(total[0]))} at the start and {number(float(total[-1]))} at "
        f"the end of {findings.fitted_title(0)}, with the potential energy measured from its lowest value."
    )
    labels = ("time / s", "energy / mass / (unit²/s²)")
    with _chart(charts, "energy-0", "Energy", caption, *labels) as axes:
        plot_curve(axes, time, total, label="total")
        plot_curve(axes, time, kinetic, label="kinetic", color=SECOND, dash=DOTTED)
        plot_curve(axes, time, potential, label="potential", color=THIRD, dash=DASHED)
        # From 0, so that a small loss of energy looks small.
        axes.set_ylim(0, None)


def _draw_forces(charts: list[Chart], findings: Findings) -> None:
    """The force along every coordinate, and how it depends on velocity where it does."""
    y = "force / mass / (unit/s²)"
    for curve in findings.forces:
        name = findings.names[curve.of]
        title, x = f"Force on {name} at rest, over mass", f"{_label(name)} / unit"
        _draw_curve(charts, findings, curve, "force", title, "over the recorded positions", x, y)
    for curve in findings.resistances:
        name = findings.names[curve.of]
        title, x = f"Velocity-dependent force on {name}, over mass", f"velocity of {_label(name)} / (unit/s)"
        _draw_curve(charts, findings, curve, "resistance", title, "over the velocities of the model", x, y)


def _draw_contacts(charts: list[Chart], findings: Findings) -> None:
    """Gaps, or probabilities of contact, against time."""
    for signal, values in enumerate(() if findings.gaps is None else findings.gaps.T[:MOST_CHARTS]):
        title, label, threshold = f"Contact signal {signal + 1}", "probability of contact", 0.5
        caption = f"At most {number(float(values.max()))} in {findings.fitted_title(0)}."
        if isinstance(findings.model, HasSurfaces):
            title, label, threshold = f"Gap {findings.model.scene.contact_name(signal)}", "gap / unit", 0.0
            smallest = number(float(values.min()))
            caption = f"The smallest gap in {findings.fitted_title(0)} is {smallest}; at 0 surfaces touch."
        with _chart(charts, f"gap-{signal}", title, caption, "time / s", label) as axes:
            time = findings.runs[0].time
            plot_curve(axes, time, values, label="model", color=SECOND)
            axes.axhline(threshold, color=INK, linewidth=0.8)
            mark_contacts(axes, time[findings.in_contact(0, signal)])


def _draw_restitution(charts: list[Chart], findings: Findings) -> None:
    """Restitution against closing speed, where it varies."""
    for curve in findings.restitutions[:MOST_CHARTS]:
        title = f"Restitution {findings.model.scene.contact_name(curve.of)}"
        text = "over the speeds of the detected impacts"
        _draw_curve(charts, findings, curve, "restitution", title, text, "closing speed / (unit/s)", "e")


def _draw_history(charts: list[Chart], findings: Findings) -> None:
    """The course of the optimisation."""
    lines = findings.fit.history
    if not lines:
        return
    count = "round" if "round" in lines[0] else "epoch"
    columns = {name: np.array([line.get(name, np.nan) for line in lines]) for name in lines[0]}
    steps = columns.pop(count)
    last = (f"{name.replace('_', ' ')} {number(float(values[-1]))}" for name, values in columns.items())
    caption = f"{len(lines)} {count}s; {', '.join(last)}."
    labels = (count, "log-likelihood" if count == "round" else "loss")
    with _chart(charts, "history", "Optimisation", caption, *labels) as axes:
        styles = ((FIRST, "-"), (SECOND, DASHED), (THIRD, DOTTED))
        for (name, values), (color, dash) in zip(columns.items(), styles, strict=False):
            plot_curve(axes, steps, values, label=name.replace("_", " "), color=color, dash=dash)
        # Losses fall over decades; log-likelihoods may be negative.
        if count == "epoch" and all((values > 0).all() for values in columns.values()):
            axes.set_yscale("log")


def _draw_curve(
    charts: list[Chart], findings: Findings, curve: Curve, kind: str, title: str, text: str, x: str, y: str
) -> None:
    """A chart of one curve with its band."""
    low, high = number(float(np.nanmin(curve.value))), number(float(np.nanmax(curve.value)))
    caption = f"From {low} to {high} {text}."
    if curve.low is not None and curve.high is not None:
        width = number(float(np.nanmedian(curve.high - curve.low)) / 2)
        caption += f" The band is typically ± {width} wide."
    with _chart(charts, f"{kind}-{curve.of}", title, caption, x, y) as axes:
        plot_curve(axes, curve.grid, curve.value, label="model")
        if curve.low is not None and curve.high is not None:
            plot_band(axes, curve.grid, curve.low, curve.high, label=findings.band)
        # A force that is constant but for noise should look constant.
        widen_to_scale(axes, curve.value)


@contextmanager
def _chart(charts: list[Chart], name: str, title: str, caption: str, x: str, y: str) -> Iterator[Axes]:
    """Axes to draw on, with their labels; the chart is added at the end."""
    with figure_style():
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        axes.tick_params(labelsize=10)
        axes.set_xlabel(x, fontsize=10)
        axes.set_ylabel(y, fontsize=10)
        yield axes
        if axes.get_legend_handles_labels()[0]:
            figure.legend(
                loc="outside upper center", ncols=3, fontsize=9, handlelength=1.8, columnspacing=1.2
            )
        charts.append(Chart(name, title, caption, *inline_svg(figure, name=name)))


def inline_svg(figure: Figure, *, name: str) -> tuple[str, Markup]:
    """The view box and the content of a figure as an SVG element of a page, in the page's colours.

    Arguments:
        figure: drawn in the colours of `carom.plotting.style`.
        name: unique on the page; identifiers inside the element are derived from it.
    """
    buffer = io.StringIO()
    settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        # The browser has glyphs that Matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    # Groups such as axes_1 have the same identifier in every figure; nothing refers to them.
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    return box[1], Markup(text[text.index(">") + 1 :])


def _coordinates(findings: Findings, runs: int) -> list[tuple[int, int, int, str]]:
    """Run, body, axis and name of the coordinates in charts of one kind, the first runs first."""
    scene = findings.model.scene
    every = product(range(min(runs, DRAWN_RUNS)), range(scene.bodies), range(scene.dimension))
    return [(*entry, findings.names[entry[1] * scene.dimension + entry[2]]) for entry in every][:MOST_CHARTS]


def _contacts_in_words(times: np.ndarray, detected: bool) -> str:
    """How many contacts there are, and when the first ones happen.

    Example:
        >>> _contacts_in_words(np.array([0.5]), True), _contacts_in_words(np.zeros(0), False)
        ('1 contact detected, at 0.5 s.', 'No touch recorded.')
    """
    thing, verb = ("contact", "detected") if detected else ("touch", "recorded")
    if not len(times):
        return f"No {thing} {verb}."
    plural = "" if len(times) == 1 else "s" if detected else "es"
    listed = ", ".join(f"{time:.4g}" for time in times[:6])
    return f"{len(times)} {thing}{plural} {verb}, at {listed}{' …' if len(times) > 6 else ''} s."


def _label(name: str) -> str:
    """A name from a file as the text of a figure, where a dollar sign would begin a formula."""
    short = name if len(name) <= 24 else name[:23] + "…"
    return short.replace("$", r"\$")


Column = Float[np.ndarray, "points"]

MOST_POINTS, MOST_STEPS, MOST_CONTACTS = 600, 1500, 200
"""Samples, steps of a curve and contacts that are drawn, evenly chosen: more cannot be told apart."""


def thinned(most: int, *columns: Column) -> list[Float[np.ndarray, "fewer"]]:
    """Evenly spaced entries, at most `most` of them.

    Example:
        >>> thinned(3, np.arange(7.0))[0].tolist()
        [0.0, 3.0, 6.0]
    """
    stride = -(-len(columns[0]) // most)
    return [column[::stride] for column in columns]


def plot_samples(
    axes: Axes, x: Column, y: Column, *, label: str, color: str = POINTS, size: float = 3.5
) -> None:
    """Measured samples as points."""
    axes.plot(*thinned(MOST_POINTS, x, y), **DATA | {"color": color, "markersize": size}, label=label)


def plot_curve(
    axes: Axes, x: Column, y: Column, *, label: str, color: str = PALETTE["blue"], dash: Any = "-"
) -> None:
    """A curve of a model."""
    axes.plot(*thinned(MOST_STEPS, x, y), color=color, linestyle=dash, linewidth=1.4, label=label)


def plot_band(axes: Axes, x: Column, low: Column, high: Column, *, label: str) -> None:
    """A band between two curves."""
    x, low, high = thinned(MOST_STEPS, x, low, high)
    axes.fill_between(x, low, high, color=PALETTE["blue"], alpha=0.25, linewidth=0, label=label)


def mark_contacts(axes: Axes, times: Column) -> None:
    """A dashed line at the time of every contact."""
    for index, time in enumerate(times[:MOST_CONTACTS]):
        # One entry in the legend for all of them.
        label = "contact" if index == 0 else None
        axes.axvline(time, color=PALETTE["vermilion"], linestyle=(0, (4, 3)), linewidth=1.0, label=label)


def limit_to_data(axes: Axes, data: Sequence[np.ndarray]) -> None:
    """Show the range of the data and half as much beyond: a diverging forecast must not squeeze them."""
    values = np.concatenate(data)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = 0.5 * max(high - low, 1e-9)
    axes.set_ylim(max(axes.get_ylim()[0], low - margin), min(axes.get_ylim()[1], high + margin))


def widen_to_scale(axes: Axes, values: np.ndarray) -> None:
    """Show at least a fifth of the typical value: a quantity that hardly varies should look constant."""
    middle = float(np.nanmedian(values))
    half = max(0.1 * abs(middle), 0.55 * float(np.nanmax(values) - np.nanmin(values)))
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, middle - half), max(high, middle + half))
