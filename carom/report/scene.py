"""The animated scene of a page: bodies, walls, and controls to move through time."""

import json
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import numpy as np
from jaxtyping import Bool, Float

from carom.mechanics import Pair, Wall
from carom.models import ImpactNetwork
from carom.report.findings import Findings

MOST_FRAMES = 1200
BOX = 640.0
"""Units of the picture's longer side."""
STYLE = """
.scene { max-width: 46rem; }
.scene svg { display: block; width: 100%; height: auto; max-height: min(70vh, 30rem); background: var(--band);
  border-radius: .4rem; }
.scene .wall { stroke: var(--ink); stroke-width: 3; }
.scene .model { fill: var(--model); }
.scene .recorded { fill: none; stroke: var(--impact); stroke-width: 2.5; }
.scene .sample { fill: var(--model); }
.controls { display: flex; flex-wrap: wrap; gap: .5rem .75rem; align-items: center; margin: .75rem 0; }
.controls button, .controls select { font: inherit; min-height: 2.75rem; padding: .3rem 1rem;
  color: var(--ink); background: var(--page); border: 1px solid var(--soft); border-radius: .4rem; }
.controls button { min-width: 6rem; cursor: pointer; }
.controls input { flex: 1 1 12rem; min-height: 2.75rem; accent-color: var(--link); }
.controls output { min-width: 11rem; font-variant-numeric: tabular-nums; }
.controls :focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
"""

Path = Float[np.ndarray, "samples bodies dimension"]


@dataclass(frozen=True, eq=False)
class Film:
    """One run to be shown: what was recorded, and what the model says; NaN where there is nothing."""

    run: int
    time: Float[np.ndarray, "samples"]
    recorded: Path
    model: Path
    contact: Bool[np.ndarray, "samples"]
    held_out_from: int
    """The first sample that the fit has not seen."""


def choose_film(findings: Findings) -> Film:
    """The first run; with its forecast where its end was held out, or a run that was held out whole."""
    runs, motions = findings.runs, findings.motions
    parts = findings.forecasts
    if parts and len(runs) < len(findings.finished.recording.runs):
        return _held_out_run(findings)
    run = runs[0]
    model = np.asarray(motions[0].position) if motions else np.full_like(run.position, np.nan)
    time, recorded, contact = run.time, run.position, np.asarray(findings.impacts[0].any(axis=1))
    if parts and parts[0].part.number == 0:
        future = parts[0].part.future
        time = np.concatenate([time, future.time])
        recorded = np.concatenate([recorded, future.position])
        model = np.concatenate([model, parts[0].position])
        contact = np.concatenate([contact, np.zeros(len(future), bool)])
    return Film(0, time, recorded, model, contact, len(run))


def _held_out_run(findings: Findings) -> Film:
    ahead = findings.forecasts[0]
    history, future = ahead.part.history, ahead.part.future
    return Film(
        ahead.part.number,
        np.concatenate([history.time, future.time]),
        np.concatenate([history.position, future.position]),
        np.concatenate([np.full_like(history.position, np.nan), ahead.position]),
        np.zeros(len(history) + len(future), bool),
        0,
    )


def scene_html(findings: Findings) -> str:
    """The scene with its controls, its data and the program that moves it."""
    film = choose_film(findings)
    stride = -(-len(film.time) // MOST_FRAMES)
    view = _View.of(findings, film)
    recorded, model = (view.points(path[::stride]) for path in (film.recorded, film.model))
    contact = [bool(film.contact[i : i + stride].any()) for i in range(0, len(film.time), stride)]
    data = {
        "time": [round(float(time), 6) for time in film.time[::stride]],
        "recorded": recorded,
        "model": model,
        "contact": contact,
        "held_out_from": -(-film.held_out_from // stride),
    }
    # A page ends a script at "</", whatever stands around it.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    program = files("carom.report").joinpath("player.js").read_text(encoding="utf-8")
    title = findings.title(film.run)
    caption = f"{title.capitalize()}: filled, what the model says; rings, what was recorded."
    label = f"Scene of {title}: {findings.model.scene.bodies} moving bodies"
    return f"""<figure class="scene" id="scene">
<svg viewBox="0 0 {view.width:.0f} {view.height:.0f}" role="img" aria-label="{escape(label)}">
{view.walls()}
{view.circles("recorded", recorded[0])}
{view.circles("model", model[0])}
</svg>
<div class="controls" role="group" aria-label="Animation">
<button type="button" id="play" disabled>Play</button>
<input type="range" id="instant" min="0" max="{len(data["time"]) - 1}" value="0" step="1"
 aria-label="instant" disabled>
<output id="clock" for="instant">{data["time"][0]:.2f} s</output>
<label>speed <select id="speed"><option value="0.25">¼</option><option value="1" selected>1</option>
<option value="4">4</option></select></label>
</div>
<figcaption>{escape(caption)}{view.note}</figcaption>
</figure>
<script type="application/json" id="scene-data">{text}</script>
<script>{program}</script>"""


@dataclass(frozen=True, eq=False)
class _View:
    """From positions to places in the picture."""

    axes: tuple[int, ...]
    """The coordinates that are drawn: to the right, and upwards; one alone lies across or stands."""
    upright: bool
    low: Float[np.ndarray, "2"]
    scale: float
    width: float
    height: float
    radius: float
    lines: tuple[tuple[float, float, float], ...]
    """Walls as (n_x, n_y, offset) in the plane of the picture."""
    note: str

    @classmethod
    def of(cls, findings: Findings, film: Film) -> "_View":
        scene = findings.model.scene
        dimension = scene.dimension
        axes = (0,) if dimension == 1 else (0, dimension - 1)
        upright = dimension == 1 and scene.bodies == 1
        flat = film.recorded[:, :, list(axes)].reshape(-1, len(axes))
        lines = _walls(findings, axes, upright)
        low, high = np.nanmin(flat, axis=0), np.nanmax(flat, axis=0)
        if dimension == 1:
            places = [offset * (nx + ny) for nx, ny, offset in lines]
            low, high = (
                np.minimum(low, min(places, default=np.inf)),
                np.maximum(high, max(places, default=-np.inf)),
            )
        size = float(max((high - low).max(), 1e-12))
        radius = _radius(findings, size)
        margin = radius + 0.04 * size
        low, high = low - margin, high + margin
        if dimension == 1:  # room across the line of motion
            across = max(0.3 * float(high[0] - low[0]), 3 * radius)
            pair = ([-across / 2], low) if upright else (low, [-across / 2])
            extent = ([across], high - low) if upright else (high - low, [across])
            low, spans = np.concatenate(pair), np.concatenate(extent)
        else:
            spans = high - low
        scale = BOX / float(spans.max())
        note = "" if dimension < 3 else " The scene is seen along its middle coordinates."
        width, height = (scale * float(span) for span in spans)
        return cls(axes, upright, low, scale, width, height, radius * scale, lines, note)

    def points(self, path: Path) -> list[list[list[float] | None]]:
        """Places of the bodies, sample by sample; None where there is no position."""
        drawn = path[:, :, list(self.axes)]
        if len(self.axes) == 1:
            nothing = np.zeros_like(drawn)
            drawn = np.concatenate([nothing, drawn] if self.upright else [drawn, nothing], axis=2)
        across = (drawn[..., 0] - self.low[0]) * self.scale
        down = self.height - (drawn[..., 1] - self.low[1]) * self.scale
        # A model that diverges leaves the picture, and numbers without end do not fit a page.
        places = np.clip(np.stack([across, down], axis=-1), -10 * BOX, 10 * BOX)
        return [
            [
                [round(float(x), 2), round(float(y), 2)] if np.isfinite([x, y]).all() else None
                for x, y in bodies
            ]
            for bodies in places
        ]

    def circles(self, kind: str, places: list[list[float] | None]) -> str:
        parts = []
        for body, place in enumerate(places):
            x, y = place or (0.0, 0.0)
            hidden = "" if place else ' style="visibility:hidden"'
            parts.append(
                f'<circle id="{kind}-{body}" class="{kind}" cx="{x}" cy="{y}" r="{self.radius:.1f}"{hidden}/>'
            )
        return "\n".join(parts)

    def walls(self) -> str:
        """Each wall as a line right across the picture, moved by a radius: it touches where the body does."""
        parts = []
        for nx, ny, offset in self.lines:
            foot = np.array([nx, ny]) * offset
            x = (foot[0] - self.low[0]) * self.scale - nx * self.radius
            y = self.height - (foot[1] - self.low[1]) * self.scale + ny * self.radius
            along = np.array([ny, nx]) * 2 * BOX
            ends = [f"{value:.1f}" for value in (x - along[0], y - along[1], x + along[0], y + along[1])]
            parts.append('<line class="wall" x1="{}" y1="{}" x2="{}" y2="{}"/>'.format(*ends))
        return "\n".join(parts)


def _walls(
    findings: Findings, axes: tuple[int, ...], upright: bool
) -> tuple[tuple[float, float, float], ...]:
    model = findings.model
    found = []
    for j, candidate in enumerate(model.scene.candidates):
        if not isinstance(candidate, Wall):
            continue
        shift = float(model.contact.shift[j]) if isinstance(model, ImpactNetwork) else 0.0
        normal = np.array([candidate.normal[axis] for axis in axes])
        if np.linalg.norm(normal) < 0.99:  # a wall that the picture cannot show edge on
            continue
        if len(axes) == 1:
            normal = np.array([0.0, normal[0]] if upright else [normal[0], 0.0])
        found.append((float(normal[0]), float(normal[1]), candidate.offset + shift))
    return tuple(found)


def _radius(findings: Findings, size: float) -> float:
    """Half of the smallest distance at which bodies touch, where that can be seen; else a dot."""
    model = findings.model
    distances = []
    for j, candidate in enumerate(model.scene.candidates):
        if isinstance(candidate, Pair):
            shift = float(model.contact.shift[j]) if isinstance(model, ImpactNetwork) else 0.0
            distances.append(candidate.offset + shift)
    usual = 0.03 * size
    half = 0.5 * min(distances, default=0.0)
    return half if 0.2 * usual < half < 5 * usual else usual
