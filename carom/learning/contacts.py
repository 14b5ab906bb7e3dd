"""Which steps touched: the log-odds of an impact in every step, from the motion, a prior and a touch reading.

Around every step the motion is compared with and without a kink: constant acceleration over a few samples
either side, and the same plus a jump of velocity along the normal of a candidate contact. Restitution is not
known yet, so a jump counts as an impact when the gap closes before it and opens no faster after it
(0 ≤ e ≤ 1). A touch sensor adds the log-likelihood ratio of its reading. A touch adds at most `STRONGEST`,
even by a perfect sensor, so that the motion has its say; a missing sensor says nothing.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.mechanics import Pair, Scene, Wall

Touch = Literal["observed", "inferred", "imperfect"]
STRONGEST = 12.0
"""Log-odds that a touch reading can add at most."""
PLACES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where inside a step an impact is tried."""
REACH = 2
"""By how many steps a found impact may still be moved, either way."""


@dataclass(frozen=True)
class TouchSensor:
    """How a touch reading relates to impacts.

    Arguments:
        missed: share of impacts without a reading.
        false: share of other samples with one.
        delay: greatest shift of a reading, in samples either way; all shifts are equally likely.
    """

    missed: float = 0.1
    false: float = 0.01
    delay: int = 1

    def log_odds(self, reading: Bool[np.ndarray, "samples"]) -> Float[np.ndarray, "samples"]:
        """Log-likelihood ratio of the readings around each sample, with an impact there and without."""
        shifts = range(-self.delay, self.delay + 1)
        padded = np.pad(reading, self.delay)
        near = np.mean(
            [padded[self.delay + shift : self.delay + shift + len(reading)] for shift in shifts], axis=0
        )
        count = near * len(shifts)
        # One of the readings nearby belongs to the impact unless it was missed; the rest are false alarms.
        false, missed = np.clip([self.false, self.missed], 1e-9, 1 - 1e-9)
        seen = (1 - missed) * count / len(shifts) / false + missed
        # However good the sensor, a touch without any kink in the motion is no impact to learn from.
        return np.clip(np.log(np.maximum(seen, 1e-12)), None, STRONGEST)


PERFECT = TouchSensor(missed=0.0, false=0.0, delay=0)


@dataclass(frozen=True, eq=False)
class Impacts:
    """What was found in one run, per step and candidate contact."""

    log_odds: Float[np.ndarray, "steps contacts"]
    chosen: Bool[np.ndarray, "steps contacts"]
    """Steps with an impact."""
    gap: Float[np.ndarray, "steps contacts"]
    """The gap at the supposed impact, by the scene's own surfaces."""
    before: Float[np.ndarray, "steps contacts"]
    after: Float[np.ndarray, "steps contacts"]
    """Rates of the gap either side."""
    smooth_gap: Float[np.ndarray, "steps contacts"]
    """The gap by the motion without a kink."""
    noise: Float[np.ndarray, "2"]
    """Standard deviations of positions and velocities, from how rough the motion is."""
    acceleration: float
    """A typical size of the acceleration between impacts."""


def find_impacts(
    run: Run,
    scene: Scene,
    *,
    sensor: TouchSensor | None,
    masses_known: bool = True,
    half_width: int | None = None,
    prior_log_odds: float = -15.0,
) -> Impacts:
    """Log-odds of an impact in every step of a run, and the steps where they are positive and greatest.

    Arguments:
        run: positions, with velocities where measured; NaN where a value is missing.
        scene: the candidate contacts.
        sensor: how touch readings relate to impacts; None to ignore them.
        masses_known: whether the share of each body in a jump is known.
        half_width: samples either side of a step that are looked at; more where no velocities were measured.
        prior_log_odds: of an impact in one step.
    """
    if half_width is None:
        half_width = 5 if run.velocity is not None else 12
    windows = _Windows(run, half_width)
    # A velocity is worth a position per step until both noises are known; so no unit matters.
    weight = np.array([1.0, np.median(windows.step) ** 2])
    smooth = windows.fit(None, None, weight)
    for _ in range(3):
        smooth = windows.fit(None, None, 1 / _noise(smooth) ** 2)
    noise = _noise(smooth)
    weight = 1 / noise**2
    typical = float(np.sqrt(np.median(np.sum(smooth.acceleration**2, axis=(1, 2)))))
    # Without this a sharp parabola would pass for smooth motion through an impact.
    stiffness = 1 / (1.5 * max(typical, 1e-9)) ** 2
    base = windows.fit(None, None, weight, stiffness).misfit(weight, stiffness)
    steps, contacts = len(run) - 1, scene.contacts
    log_odds = np.full((steps, contacts), -np.inf)
    kink = np.zeros((3, steps, contacts))  # gap, rate before, rate after
    position = windows.filled_position
    for j, candidate in enumerate(scene.candidates):
        directions = _directions(candidate, scene, position, masses_known)
        for place in PLACES:
            kinked = windows.fit(directions, place, weight, stiffness)
            gain = 0.5 * (base - kinked.misfit(weight, stiffness))
            here = _kink(candidate, scene, position, kinked)
            value = np.where(_possible(here), gain, -np.inf)
            better = value > log_odds[:, j]
            log_odds[better, j] = value[better]
            kink[:, better, j] = here[:, better]
    told = np.zeros((steps, contacts))
    if sensor is not None and run.touch is not None:
        for j, candidate in enumerate(scene.candidates):
            reading = np.all(run.touch[1:, list(candidate.bodies)], axis=1)
            told[:, j] = sensor.log_odds(reading)
    log_odds = log_odds + prior_log_odds + told
    incidence = scene.geometry.incidence
    sharing = (incidence.astype(int) @ incidence.T.astype(int)) > 0
    chosen = _peaks(log_odds, half_width, sharing)
    smooth_gap = [_gap(candidate, scene, smooth.position) for candidate in scene.candidates]
    smooth_gap = np.stack(smooth_gap, axis=1) if smooth_gap else np.zeros((steps, 0))
    gap, before, after = kink
    peaks = Impacts(log_odds, chosen, gap, before, after, smooth_gap, noise, typical)
    return _at_best_neighbours(peaks, windows, scene, told, masses_known=masses_known, stiffness=stiffness)


def _at_best_neighbours(
    peaks: Impacts,
    windows: "_Windows",
    scene: Scene,
    told: Float[np.ndarray, "steps contacts"],
    *,
    masses_known: bool,
    stiffness: float,
) -> Impacts:
    """Every found impact at the step, of its own and those within `REACH`, where a kink explains most.

    Neighbouring steps are compared within one window, that of the step where the impact was found, since
    gains over different windows do not compare: each leaves out what another must explain. The log-odds of
    the neighbours are set by the same comparison. The gap and its rates at a new step are those of the best
    kink there, or those at the old step where that kink is none that an impact could make. `told` is what a
    touch sensor adds to the log-odds of every step.
    """
    log_odds, chosen = peaks.log_odds.copy(), peaks.chosen.copy()
    kink = np.stack([peaks.gap, peaks.before, peaks.after])
    weight, position, steps = 1 / peaks.noise**2, windows.filled_position, len(log_odds)
    shifts = np.arange(-REACH, REACH + 1)
    for j, candidate in enumerate(scene.candidates):
        found = np.flatnonzero(peaks.chosen[:, j])
        if not len(found):
            continue
        directions = _directions(candidate, scene, position, masses_known)
        fits = [windows.fit(directions, p + shift, weight, stiffness) for shift in shifts for p in PLACES]
        explained = np.stack([-0.5 * fit.misfit(weight, stiffness) for fit in fits])
        explained = explained.reshape(len(shifts), len(PLACES), steps)
        for old in found:
            by_shift = explained[:, :, old].max(axis=1)
            near = old + shifts
            inside = (near >= 0) & (near < steps)
            reading = told[np.clip(near, 0, steps - 1), j] - told[old, j]
            gain = np.where(inside, by_shift - by_shift[REACH] + reading, -np.inf)
            log_odds[near[inside], j] = peaks.log_odds[old, j] + gain[inside]
            best = int(np.argmax(gain))
            new = near[best]
            chosen[old, j] = False
            chosen[new, j] = True
            if new != old:
                fit = fits[best * len(PLACES) + int(np.argmax(explained[best, :, old]))]
                there = _kink(candidate, scene, position, fit)
                kink[:, new, j] = np.where(_possible(there), there, kink[:, :, j])[:, old]
    return replace(peaks, log_odds=log_odds, chosen=chosen, gap=kink[0], before=kink[1], after=kink[2])


@dataclass(frozen=True, eq=False)
class _WindowFit:
    squares: Float[np.ndarray, "steps 2"]
    """Sums of squares of positions and velocities."""
    counts: Float[np.ndarray, "steps 2"]
    position: Float[np.ndarray, "steps bodies dimension"]
    velocity_before: Float[np.ndarray, "steps bodies dimension"]
    velocity_after: Float[np.ndarray, "steps bodies dimension"]
    acceleration: Float[np.ndarray, "steps bodies dimension"]

    def misfit(self, weight: np.ndarray, stiffness: float) -> Float[np.ndarray, "steps"]:
        """Weighted sum of squares, an unlikely acceleration included."""
        return self.squares @ weight + stiffness * np.sum(self.acceleration**2, axis=(1, 2))


class _Windows:
    """Least squares over a few samples around every step: q = q₀ + v t + ½ a t² + Δ (t − t_c)₊."""

    def __init__(self, run: Run, half_width: int):
        steps, (bodies, dimension) = len(run) - 1, run.position.shape[1:]
        self.bodies, self.dimension = bodies, dimension
        starts = np.clip(np.arange(steps) - half_width + 1, 0, max(0, len(run) - 2 * half_width))
        self.index = starts[:, None] + np.arange(min(2 * half_width, len(run)))
        self.step = np.diff(run.time)
        flat = run.position.reshape(len(run), -1)
        speed = np.full_like(flat, np.nan) if run.velocity is None else run.velocity.reshape(len(run), -1)
        self.time = run.time[self.index] - run.time[:-1, None]
        self.value = np.stack([flat[self.index], speed[self.index]], axis=2)  # steps window 2 coordinates
        self.known = np.isfinite(self.value)
        self.value = np.where(self.known, self.value, 0.0)
        columns = [np.interp(run.time, run.time[ok], c[ok]) for c in flat.T for ok in [np.isfinite(c)]]
        filled = np.stack(columns, axis=1)
        self.filled_position = (0.5 * (filled[1:] + filled[:-1])).reshape(steps, bodies, dimension)

    def fit(self, directions, place, weight=(1.0, 1.0), stiffness: float = 0.0) -> _WindowFit:
        """`directions` (steps, jumps, coordinates) or None; the jump is at `place` of the step.

        `stiffness` is the precision with which accelerations are expected to vanish.
        """
        steps, coordinates = len(self.value), self.value.shape[-1]
        if directions is None:
            directions = np.zeros((steps, 0, coordinates))
        kink = (0.5 if place is None else place) * self.step
        t = self.time - kink[:, None]
        ones, zeros = np.ones_like(t), np.zeros_like(t)
        # Rows: (window, channel); columns: q₀, v, a at the kink.
        smooth = np.stack(
            [np.stack([ones, t, 0.5 * t**2], -1), np.stack([zeros, ones, t], -1)], axis=2
        )  # steps window 2 3
        ramp = np.stack([np.maximum(t, 0), (t > 0).astype(float)], axis=2)  # steps window 2
        jumps = directions.shape[1]
        size = 3 * coordinates + jumps
        matrix, vector = np.zeros((steps, size, size)), np.zeros((steps, size))
        designs = []
        for c in range(coordinates):
            design = np.zeros((*smooth.shape[:3], size))
            design[..., 3 * c : 3 * c + 3] = smooth
            for k in range(jumps):
                design[..., 3 * coordinates + k] = ramp * directions[:, None, None, k, c]
            w = self.known[..., c] * np.asarray(weight)
            matrix += np.einsum("nwci,nwc,nwcj->nij", design, w, design)
            vector += np.einsum("nwci,nwc,nwc->ni", design, w, self.value[..., c])
            matrix[:, 3 * c + 2, 3 * c + 2] += stiffness
            designs.append(design)
        scale = np.sqrt(np.maximum(np.einsum("nii->ni", matrix), 1e-300))
        balanced = matrix / scale[:, :, None] / scale[:, None, :] + 1e-10 * np.eye(size)
        solution = np.linalg.solve(balanced, (vector / scale)[..., None])[..., 0] / scale
        squares, counts = np.zeros((steps, 2)), np.zeros((steps, 2))
        for c, design in enumerate(designs):
            away = (self.value[..., c] - np.einsum("nwci,ni->nwc", design, solution)) * self.known[..., c]
            squares += np.sum(away**2, axis=1)
            counts += np.sum(self.known[..., c], axis=1)
        shape = (steps, self.bodies, self.dimension)
        parts = solution[:, : 3 * coordinates].reshape(steps, coordinates, 3)
        jump = np.einsum("nk,nkc->nc", solution[:, 3 * coordinates :], directions)
        return _WindowFit(
            squares,
            counts,
            parts[..., 0].reshape(shape),
            parts[..., 1].reshape(shape),
            (parts[..., 1] + jump).reshape(shape),
            parts[..., 2].reshape(shape),
        )


def _noise(smooth: _WindowFit) -> Float[np.ndarray, "2"]:
    """Standard deviations from windows without a kink, which are most: so the median."""
    spent = 3 * np.prod(smooth.position.shape[1:])
    total = smooth.counts.sum(axis=1, keepdims=True)
    freedom = np.maximum(smooth.counts * (1 - spent / np.maximum(total, spent + 1)), 1)
    variance = np.where(smooth.counts > 0, smooth.squares / freedom, np.nan)
    known = smooth.counts.sum(axis=0) > 0
    middle = np.array([np.nanmedian(variance[:, c]) if known[c] else 1.0 for c in range(2)])
    return np.sqrt(np.maximum(middle, 1e-18))


def _kink(candidate: Wall | Pair, scene: Scene, position, fit: _WindowFit) -> Float[np.ndarray, "3 steps"]:
    """The gap at the kink of every window, and its rates before and after."""
    normal = _normal(candidate, scene, position)
    before, after = (np.einsum("nkd,nkd->n", normal, v) for v in (fit.velocity_before, fit.velocity_after))
    return np.stack([_gap(candidate, scene, fit.position), before, after])


def _possible(kink: Float[np.ndarray, "3 steps"]) -> Bool[np.ndarray, "steps"]:
    """Whether an impact with 0 ≤ e ≤ 1 could have made this kink, with some slack for noise."""
    _, before, after = kink
    slack = 0.1 * np.abs(before)
    return (before < 0) & (after >= -slack) & (after <= -before + slack)


def _normal(candidate: Wall | Pair, scene: Scene, position) -> np.ndarray:
    """∂g/∂Q at every step."""
    normal = np.zeros_like(position)
    if isinstance(candidate, Wall):
        normal[:, candidate.body] = candidate.normal
        return normal
    difference = position[:, candidate.first] - position[:, candidate.second]
    if scene.dimension == 1:
        unit = np.ones_like(difference)
    else:
        unit = difference / np.maximum(np.linalg.norm(difference, axis=1, keepdims=True), 1e-12)
    normal[:, candidate.first], normal[:, candidate.second] = unit, -unit
    return normal


def _directions(candidate: Wall | Pair, scene: Scene, position, masses_known: bool) -> np.ndarray:
    """How an impulse moves the coordinates: M⁻¹ Gᵀ, or each body by itself where masses are not known."""
    normal = _normal(candidate, scene, position)
    if masses_known or isinstance(candidate, Wall):
        moved = normal / np.asarray(scene.masses)[None, :, None]
        return moved.reshape(len(position), 1, -1)
    each = []
    for body in candidate.bodies:
        alone = np.zeros_like(normal)
        alone[:, body] = normal[:, body]
        each.append(alone.reshape(len(position), -1))
    return np.stack(each, axis=1)


def _gap(candidate: Wall | Pair, scene: Scene, position) -> np.ndarray:
    if isinstance(candidate, Wall):
        return position[:, candidate.body] @ np.asarray(candidate.normal) - candidate.offset
    difference = position[:, candidate.first] - position[:, candidate.second]
    distance = difference[:, 0] if scene.dimension == 1 else np.linalg.norm(difference, axis=1)
    return distance - candidate.offset


def _peaks(
    log_odds: np.ndarray, half_width: int, sharing: Bool[np.ndarray, "contacts contacts"]
) -> Bool[np.ndarray, "steps contacts"]:
    """Steps whose log-odds are positive and the greatest nearby, the greatest first.

    A window that holds the impact of another contact of the same body is explained by nothing smooth, so
    nearby steps of that contact are left out too, but for an impact passed on at once.
    """
    chosen = np.zeros(log_odds.shape, bool)
    left = log_odds.copy()
    while left.size and left.max() > 0:
        step, contact = (int(i) for i in np.unravel_index(np.argmax(left), left.shape))
        chosen[step, contact] = True
        near = np.arange(max(0, step - half_width + 1), min(len(left), step + half_width))
        apart = near[np.abs(near - step) > 1]
        left[np.ix_(apart, np.flatnonzero(sharing[contact]))] = -np.inf
        left[near, contact] = -np.inf
    return chosen
