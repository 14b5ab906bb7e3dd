"""Which steps touched: the log-odds of an impact in every step, from the motion, a prior and a touch reading.

Around every step the motion is compared with and without a kink: constant acceleration over a few samples
either side, and the same plus a jump of velocity along the normal of a candidate contact. Restitution is not
known yet, so a jump counts as an impact when the gap closes before it and opens no faster after it
(0 ≤ e ≤ 1). A touch sensor adds the log-likelihood ratio of its reading. A touch adds at most `STRONGEST`,
even by a perfect sensor, so that the motion has its say; a missing sensor says nothing.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.estimation.detection.local_fits import WindowFit, Windows, local_noise
from carom.estimation.detection.touch_sensor import STRONGEST, TouchSensor
from carom.mechanics import Pair, Scene, Wall

PLACES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where inside a step an impact is tried."""
PRIOR_LOG_ODDS = -15.0
"""Of an impact in one step."""
REACH = 2
"""By how many steps a found impact may still be moved, either way."""


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
    spacing: int
    """Impacts of one contact that are fewer steps apart cannot be told from each other."""
    explained: bool = True
    """Whether these impacts explain the run, as far as could be seen."""


class Between(NamedTuple):
    """A run as it would be without impacts, window by window, to compare kinks with."""

    windows: Windows
    half_width: int
    smooth: WindowFit
    noise: Float[np.ndarray, "2"]
    acceleration: float
    """A typical size of the acceleration."""
    stiffness: float
    """The precision with which accelerations are expected to vanish."""
    misfit: Float[np.ndarray, "steps"]
    """What motion without a kink leaves unexplained around every step."""

    @property
    def weight(self) -> Float[np.ndarray, "2"]:
        return 1 / self.noise**2


def between_impacts(run: Run, half_width: int | None = None, *, quiet: float = 0.5) -> Between:
    """Noise, accelerations and misfits of a run without kinks.

    Arguments:
        half_width: samples either side of a step; more by default where no velocities were measured.
        quiet: the quantile of the windows, by how rough they are, that is taken for motion between impacts.
    """
    if half_width is None:
        half_width = 5 if run.velocity is not None and np.isfinite(run.velocity).any() else 12
    windows = Windows(run, half_width)
    # A velocity is worth a position per step until both noises are known; so no unit matters.
    weight = np.array([1.0, np.median(windows.step) ** 2])
    smooth = windows.fit(None, None, weight)
    for _ in range(3):
        smooth = windows.fit(None, None, 1 / local_noise(smooth, quiet) ** 2)
    noise = local_noise(smooth, quiet)
    weight = 1 / noise**2
    typical = float(np.sqrt(np.quantile(np.sum(smooth.acceleration**2, axis=(1, 2)), quiet)))
    # Without this a sharp parabola would pass for smooth motion through an impact.
    stiffness = 1 / (1.5 * max(typical, 1e-9)) ** 2
    base = windows.fit(None, None, weight, stiffness).misfit(weight, stiffness)
    return Between(windows, half_width, smooth, noise, typical, stiffness, base)


def find_impacts(
    run: Run,
    scene: Scene,
    *,
    sensor: TouchSensor | None,
    masses_known: bool = True,
    half_width: int | None = None,
    mask: int = 0,
    prior_log_odds: float = PRIOR_LOG_ODDS,
) -> Impacts:
    """Log-odds of an impact in every step of a run, and the steps where they are positive and greatest.

    Arguments:
        run: positions, with velocities where measured; NaN where a value is missing.
        scene: the candidate contacts.
        sensor: how touch readings relate to impacts, all of it known; None to ignore them.
        masses_known: whether the share of each body in a jump is known.
        half_width: samples either side of a step that are looked at; more where no velocities were measured.
        mask: samples either side of an impact that do not tell when it was. A contact that lasts is then
            one impact, at the instant where the motions before it and after it would have met.
        prior_log_odds: of an impact in one step.
    """
    between = between_impacts(run, half_width)
    windows, smooth, noise, typical = between.windows, between.smooth, between.noise, between.acceleration
    half_width, weight, stiffness, base = (
        between.half_width,
        between.weight,
        between.stiffness,
        between.misfit,
    )
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
            value = np.where(possible_impact(here), gain, -np.inf)
            better = value > log_odds[:, j]
            log_odds[better, j] = value[better]
            kink[:, better, j] = here[:, better]
    told = np.zeros((steps, contacts))
    if sensor is not None and run.touch is not None:
        by_body = np.stack([sensor.log_odds(reading) for reading in run.touch[1:].T], axis=1)
        # Sensors of several bodies err independently. However good they are, a touch without any kink in the
        # motion is no impact to learn from.
        told = np.minimum(by_body @ scene.geometry.incidence.T, STRONGEST)
    log_odds = log_odds + prior_log_odds + told
    incidence = scene.geometry.incidence
    sharing = (incidence.astype(int) @ incidence.T.astype(int)) > 0
    # Beyond a contact that lasts, as much of the motion is looked at as the contact took.
    half_width += 2 * mask
    chosen = peaks_of(log_odds, half_width, sharing)
    smooth_gap = [_gap(candidate, scene, smooth.position) for candidate in scene.candidates]
    smooth_gap = np.stack(smooth_gap, axis=1) if smooth_gap else np.zeros((steps, 0))
    gap, before, after = kink
    peaks = Impacts(log_odds, chosen, gap, before, after, smooth_gap, noise, typical, half_width)
    return _at_best_neighbours(
        peaks,
        run,
        scene,
        told,
        masses_known=masses_known,
        stiffness=stiffness,
        half_width=half_width,
        mask=mask,
    )


def _at_best_neighbours(
    peaks: Impacts,
    run: Run,
    scene: Scene,
    told: Float[np.ndarray, "steps contacts"],
    *,
    masses_known: bool,
    stiffness: float,
    half_width: int,
    mask: int,
) -> Impacts:
    """Every found impact at the step, of its own and those within `REACH`, where a kink explains most.

    A contact that lasts hides `mask` samples either side, and its impact may be anywhere among them.

    Neighbouring steps are compared within one window, that of the step where the impact was found, since
    gains over different windows do not compare: each leaves out what another must explain. The log-odds of
    the neighbours are set by the same comparison. The gap and its rates at a new step are those of the best
    kink there, or those at the old step where that kink is none that an impact could make. `told` is what a
    touch sensor adds to the log-odds of every step.
    """
    log_odds, chosen = peaks.log_odds.copy(), peaks.chosen.copy()
    kink = np.stack([peaks.gap, peaks.before, peaks.after])
    weight, steps, reach = 1 / peaks.noise**2, len(log_odds), REACH + mask
    shifts = np.arange(-reach, reach + 1)
    for j, candidate in enumerate(scene.candidates):
        found = np.flatnonzero(peaks.chosen[:, j])
        if not len(found):
            continue
        windows = Windows(run, half_width, mask=mask, at=found)
        position = windows.filled_position
        directions = _directions(candidate, scene, position, masses_known)
        fits = [windows.fit(directions, p + shift, weight, stiffness) for shift in shifts for p in PLACES]
        explained = np.stack([-0.5 * fit.misfit(weight, stiffness) for fit in fits])
        explained = explained.reshape(len(shifts), len(PLACES), len(found))
        kinks: dict[int, np.ndarray] = {}  # those of all windows, for the fits that are asked for
        for row, old in enumerate(found):
            by_shift = explained[:, :, row].max(axis=1)
            near = old + shifts
            inside = (near >= 0) & (near < steps)
            reading = told[np.clip(near, 0, steps - 1), j] - told[old, j]
            gain = np.where(inside, by_shift - by_shift[reach] + reading, -np.inf)
            log_odds[near[inside], j] = peaks.log_odds[old, j] + gain[inside]
            best = int(np.argmax(gain))
            new = near[best]
            chosen[old, j] = False
            chosen[new, j] = True
            if new != old or mask:
                number = best * len(PLACES) + int(np.argmax(explained[best, :, row]))
                if number not in kinks:
                    kinks[number] = _kink(candidate, scene, position, fits[number])
                there = kinks[number][:, row]
                kink[:, new, j] = there if possible_impact(there[:, None])[0] else kink[:, old, j]
    return replace(peaks, log_odds=log_odds, chosen=chosen, gap=kink[0], before=kink[1], after=kink[2])


def _kink(candidate: Wall | Pair, scene: Scene, position, fit: WindowFit) -> Float[np.ndarray, "3 steps"]:
    """The gap at the kink of every window, and its rates before and after."""
    normal = _normal(candidate, scene, position)
    before, after = (np.einsum("nkd,nkd->n", normal, v) for v in (fit.velocity_before, fit.velocity_after))
    return np.stack([_gap(candidate, scene, fit.position), before, after])


def possible_impact(kink: Float[np.ndarray, "3 steps"]) -> Bool[np.ndarray, "steps"]:
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


def peaks_of(
    log_odds: np.ndarray, half_width: int, sharing: Bool[np.ndarray, "contacts contacts"]
) -> Bool[np.ndarray, "steps contacts"]:
    """Steps whose log-odds are positive and the greatest nearby, the greatest first.

    A window that holds the impact of another contact of the same body is explained by nothing smooth, so
    nearby steps of that contact are left out too, but for an impact passed on at once.
    """
    chosen = np.zeros(log_odds.shape, bool)
    left = log_odds.copy()
    positive = np.flatnonzero(left > 0)
    # Ties go to the first.
    for place in positive[np.argsort(-left.ravel()[positive], kind="stable")].tolist():
        step, contact = divmod(place, left.shape[1])
        if left[step, contact] == -np.inf:
            continue
        chosen[step, contact] = True
        near = np.arange(max(0, step - half_width + 1), min(len(left), step + half_width))
        apart = near[np.abs(near - step) > 1]
        left[np.ix_(apart, np.flatnonzero(sharing[contact]))] = -np.inf
        left[near, contact] = -np.inf
    return chosen
