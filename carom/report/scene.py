"""The animated scene of a page: bodies, walls, and controls to move through time."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from carom.plotting.scenes import View, body_radii, polygon, solids, view_of, widened
from carom.report.findings import Findings

MOST_FRAMES = 1200
BOX = 640.0
"""Pixels of the longer side of the picture."""
DOT = 0.03
"""The radius of a body drawn as a dot, as a fraction of the extent of the motion."""
BEYOND = 5.0
"""How far walls are drawn beyond the picture, in units of its extent."""

Path = Float[np.ndarray, "samples bodies dimension"]


class Film(NamedTuple):
    """One run to be shown, as recorded and by the model; NaN where there is no position.

    Arguments:
        run: its number in the recording.
        held_out_from: the first sample that was not used in the fit.
    """

    run: int
    time: Float[np.ndarray, "samples"]
    recorded: Path
    model: Path
    contact: Bool[np.ndarray, "samples"]
    held_out_from: int


def draw_scene(findings: Findings) -> dict[str, Any]:
    """The picture, the frames and the caption of the scene."""
    film, scene = choose_film(findings), findings.model.scene
    # Across and upwards: the first and last coordinates; one body on a line moves up and down.
    onto = np.eye(scene.dimension)[:, [0, -1]]
    if scene.dimension == 1:
        onto = np.array([[0.0, 1.0]] if scene.bodies == 1 else [[1.0, 0.0]])
    recorded = film.recorded @ onto
    extent = float(np.nanmax(np.nanmax(recorded, axis=(0, 1)) - np.nanmin(recorded, axis=(0, 1))))
    radii, dot = body_radii(scene), DOT * max(extent, 1e-12)
    # Radii far from the size of the motion would show specks or one large disc.
    if not ((0.2 * dot < radii) & (radii < 5 * dot)).all():
        radii = np.full(scene.bodies, dot)
    # A wall that is not seen edge-on cannot be drawn as a line.
    walls = [
        tuple(((*(np.asarray(normal) @ onto).tolist(),), offset) for normal, offset in solid)
        for solid in solids(scene, radii)
        if all(np.linalg.norm(np.asarray(normal) @ onto) > 0.99 for normal, _ in solid)
    ]
    view = widened(view_of(recorded, radii, walls))
    if scene.dimension == 1:
        sides = np.ptp(view, axis=1)
        view += np.maximum(0.3 * sides.max() - sides, 0)[:, None] * np.array([-0.5, 0.5])
    scale = BOX / float(np.ptp(view, axis=1).max())
    # Walls reach beyond the view, where the element is wider than the picture.
    around = view + BEYOND * np.ptp(view) * np.array([-1.0, 1.0])
    outlines = [_pixels(polygon(around, behind=wall), view, scale) for wall in walls]
    picture = {
        "size": np.round(scale * np.ptp(view, axis=1)).tolist(),
        "radii": np.round(scale * radii, 1).tolist(),
        "walls": [" ".join(f"{x:.1f},{y:.1f}" for x, y in outline) for outline in outlines if len(outline)],
    }
    caption = f"{findings.title(film.run).capitalize()}: the model (filled) and the recording (rings)."
    # More frames than a screen shows in a minute only make the page slow.
    stride = -(-len(film.time) // MOST_FRAMES)
    frames = {
        "time": np.round(film.time[::stride], 6).tolist(),
        "recorded": _centres(recorded[::stride], view, scale),
        "model": _centres(film.model[::stride] @ onto, view, scale),
        "contact": [bool(film.contact[i : i + stride].any()) for i in range(0, len(film.time), stride)],
        "held_out_from": -(-film.held_out_from // stride),
    }
    return {"picture": picture, "frames": frames, "caption": caption}


def choose_film(findings: Findings) -> Film:
    """The first run, with its forecast where its end was held out; or a run that was held out whole."""
    ahead, run, parts = None, 0, [findings.runs[0]]
    if findings.forecasts:
        ahead = findings.forecasts[0]
        run, parts = ahead.part.number, [ahead.part.history, ahead.part.future]
    time = np.concatenate([part.time for part in parts])
    recorded = np.concatenate([part.position for part in parts])
    model, contact = np.full_like(recorded, np.nan), np.zeros(len(time), bool)
    begins_in_training = len(findings.runs) == len(findings.fit.recording.runs)
    if begins_in_training and run == 0:
        contact[: len(parts[0])] = findings.impacts[0].any(axis=1)
        for motion in findings.motions[:1]:
            model[: len(parts[0])] = motion.position
    if ahead is not None:
        model[len(parts[0]) :] = ahead.position
    return Film(run, time, recorded, model, contact, len(parts[0]) if begins_in_training else 0)


def _pixels(points: Float[np.ndarray, "... 2"], view: View, scale: float) -> Float[np.ndarray, "... 2"]:
    """Pixels from the upper left corner."""
    right, up = (points[..., axis] - view[axis, 0] for axis in (0, 1))
    return scale * np.stack([right, view[1, 1] - view[1, 0] - up], axis=-1)


def _centres(path: Path, view: View, scale: float) -> list[list[list[float] | None]]:
    """Centres of the bodies, sample by sample; None where there is no position."""
    # A diverging model leaves the picture; its huge numbers would only make the page longer.
    pixels = np.clip(_pixels(path, view, scale), -10 * BOX, 10 * BOX).round(2)
    return [[centre.tolist() if np.isfinite(centre).all() else None for centre in frame] for frame in pixels]
