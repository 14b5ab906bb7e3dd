"""Which steps touched: the log-odds of an impact in every step, from the motion, a prior and a touch reading.

Around every step the motion is compared with and without a jump: constant acceleration over a few samples
either side, and the same plus a jump of velocity along the normal of a candidate contact. Restitution is not
known yet, so a jump counts as an impact when the gap closes before it and opens no faster after it
(0 ≤ e ≤ 1). A touch sensor adds the log-likelihood ratio of its reading. A touch adds at most `STRONGEST`,
even by a perfect sensor, so that the motion has its say; a missing sensor says nothing.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.estimation.detection.local_fits import WindowFit, Windows, local_noise
from carom.estimation.detection.touch_sensor import STRONGEST, TouchSensor
from carom.mechanics import Scene

OFFSETS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where inside a step an impact is tried, as shares of it."""
PRIOR_LOG_ODDS = -15.0
"""Of an impact in one step."""
GUARD = 4
"""A body nearer to a surface than the noise, for this many samples either way, touches it in unseen ways."""
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
    """The gap by the motion without a jump."""
    noise: Float[np.ndarray, "2"]
    """Standard deviations of positions and velocities, from how rough the motion is."""
    acceleration: float
    """A typical size of the acceleration between impacts."""
    spacing: int
    """Impacts of one contact that are fewer steps apart cannot be readings from each other."""
    explained: bool = True
    """Whether these impacts explain the run, as far as could be seen."""


class Between(NamedTuple):
    """A run as it would be without impacts, window by window, to compare jumps with."""

    windows: Windows
    half_width: int
    smooth: WindowFit
    noise: Float[np.ndarray, "2"]
    acceleration: float
    """A typical size of the acceleration."""
    stiffness: float
    """The precision with which accelerations are expected to vanish."""
    misfit: Float[np.ndarray, "steps"]
    """What motion without a jump leaves unexplained around every step."""

    @property
    def weight(self) -> Float[np.ndarray, "2"]:
        return 1 / self.noise**2


def between_impacts(run: Run, half_width: int | None = None, *, quiet: float = 0.5) -> Between:
    """Noise, accelerations and misfits of a run without jumps.

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
    jump = np.zeros((3, steps, contacts))  # gap, rate before, rate after
    position = windows.filled_position
    for j in range(scene.contacts):
        directions = _directions(j, scene, position, masses_known)
        for place in OFFSETS:
            jumped = windows.fit(directions, place, weight, stiffness)
            gain = 0.5 * (base - jumped.misfit(weight, stiffness))
            here = _jump(j, scene, position, jumped)
            value = np.where(possible_impact(here), gain, -np.inf)
            better = value > log_odds[:, j]
            log_odds[better, j] = value[better]
            jump[:, better, j] = here[:, better]
    readings = np.zeros((steps, contacts))
    if sensor is not None and run.touch is not None:
        by_body = np.stack([sensor.log_odds(reading) for reading in run.touch[1:].T], axis=1)
        # Sensors of several bodies err independently. However good they are, a touch without any jump in the
        # motion is no impact to learn from.
        readings = np.minimum(by_body @ scene.geometry.incidence.T, STRONGEST)
    log_odds = log_odds + prior_log_odds + readings
    incidence = scene.geometry.incidence
    sharing = (incidence.astype(int) @ incidence.T.astype(int)) > 0
    # Beyond a contact that lasts, as much of the motion is looked at as the contact took.
    half_width += 2 * mask
    chosen = peaks_of(log_odds, half_width, sharing)
    smooth_gap = np.asarray(scene.geometry.gap(smooth.position))
    gap, before, after = jump
    peaks = Impacts(log_odds, chosen, gap, before, after, smooth_gap, noise, typical, half_width)
    return _at_best_neighbours(
        peaks,
        run,
        scene,
        readings,
        masses_known=masses_known,
        stiffness=stiffness,
        half_width=half_width,
        mask=mask,
    )


def _at_best_neighbours(
    peaks: Impacts,
    run: Run,
    scene: Scene,
    readings: Float[np.ndarray, "steps contacts"],
    *,
    masses_known: bool,
    stiffness: float,
    half_width: int,
    mask: int,
) -> Impacts:
    """Every found impact at the step, of its own and those within `REACH`, where a jump explains most.

    A contact that lasts hides `mask` samples either side, and its impact may be anywhere among them.

    Neighbouring steps are compared within one window, that of the step where the impact was found, since
    gains over different windows do not compare: each leaves out what another must explain. The log-odds of
    the neighbours are set by the same comparison. The gap and its rates at a new step are those of the best
    jump there, or those at the old step where that jump is none that an impact could make. `readings` is what
    a touch sensor adds to the log-odds of every step.
    """
    log_odds, chosen = peaks.log_odds.copy(), peaks.chosen.copy()
    jump = np.stack([peaks.gap, peaks.before, peaks.after])
    weight, steps, reach = 1 / peaks.noise**2, len(log_odds), REACH + mask
    shifts = np.arange(-reach, reach + 1)
    for j in range(scene.contacts):
        found = np.flatnonzero(peaks.chosen[:, j])
        if not len(found):
            continue
        windows = Windows(run, half_width, mask=mask, at=found)
        position = windows.filled_position
        directions = _directions(j, scene, position, masses_known)
        fits = [windows.fit(directions, p + shift, weight, stiffness) for shift in shifts for p in OFFSETS]
        explained = np.stack([-0.5 * fit.misfit(weight, stiffness) for fit in fits])
        explained = explained.reshape(len(shifts), len(OFFSETS), len(found))
        jumps: dict[int, np.ndarray] = {}  # those of all windows, for the fits that are asked for
        for row, old in enumerate(found):
            by_shift = explained[:, :, row].max(axis=1)
            near = old + shifts
            inside = (near >= 0) & (near < steps)
            reading = readings[np.clip(near, 0, steps - 1), j] - readings[old, j]
            gain = np.where(inside, by_shift - by_shift[reach] + reading, -np.inf)
            log_odds[near[inside], j] = peaks.log_odds[old, j] + gain[inside]
            best = int(np.argmax(gain))
            new = near[best]
            chosen[old, j] = False
            chosen[new, j] = True
            if new != old or mask:
                number = best * len(OFFSETS) + int(np.argmax(explained[best, :, row]))
                if number not in jumps:
                    jumps[number] = _jump(j, scene, position, fits[number])
                there = jumps[number][:, row]
                jump[:, new, j] = there if possible_impact(there[:, None])[0] else jump[:, old, j]
    return replace(peaks, log_odds=log_odds, chosen=chosen, gap=jump[0], before=jump[1], after=jump[2])


def _jump(contact: int, scene: Scene, position: np.ndarray, fit: WindowFit) -> Float[np.ndarray, "3 steps"]:
    """The gap at the velocity jump of every window, and its rates before and after."""
    normal = scene.geometry.jacobian(position)[:, contact]
    before, after = (np.einsum("nkd,nkd->n", normal, v) for v in (fit.velocity_before, fit.velocity_after))
    return np.stack([scene.geometry.gap(fit.position)[:, contact], before, after])


def possible_impact(jump: Float[np.ndarray, "3 steps"]) -> Bool[np.ndarray, "steps"]:
    """Whether an impact with 0 ≤ e ≤ 1 could have made this jump, with some slack for noise."""
    _, before, after = jump
    slack = 0.1 * np.abs(before)
    return (before < 0) & (after >= -slack) & (after <= -before + slack)


def _directions(contact: int, scene: Scene, position: np.ndarray, masses_known: bool) -> np.ndarray:
    """How an impulse moves the coordinates: M⁻¹ Gᵀ, or each body by itself where masses are not known."""
    normal, bodies = scene.geometry.jacobian(position)[:, contact], scene.geometry.joined[contact]
    if masses_known or len(bodies) == 1:
        moved = normal / np.asarray(scene.masses)[None, :, None]
        return moved.reshape(len(position), 1, -1)
    each = []
    for body in bodies:
        alone = np.zeros_like(normal)
        alone[:, body] = normal[:, body]
        each.append(alone.reshape(len(position), -1))
    return np.stack(each, axis=1)


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


def resolved(run: Run, found: Impacts, shift: Float[np.ndarray, "contacts"]) -> Bool[np.ndarray, "samples"]:
    """False where a gap stays within the noise for longer than a found impact would keep it there."""
    clear = np.ones(len(run), bool)
    width = 2 * GUARD + 1
    if len(run) <= width:
        return clear
    for j in range(found.chosen.shape[1]):
        if not found.chosen[:, j].any():
            continue
        clear &= ~_too_fast(run, found, j)
        gap = np.abs(found.smooth_gap[:, j] - shift[j])
        near = np.concatenate([gap[:1], gap]) < 1.5 * found.noise[0]
        impacts_at = np.flatnonzero(found.chosen[:, j])
        for first, second in pairwise(impacts_at):
            if second - first <= 3 * width:  # a short flight from one impact to the next
                near[first + 1 : second + 1] = False
        lasting = np.convolve(near, np.ones(width), "same") >= width
        clear &= ~(np.convolve(lasting, np.ones(width), "same") > 0)
    return clear


def _too_fast(run: Run, found: Impacts, contact: int) -> Bool[np.ndarray, "samples"]:
    """True after an impact whose rebound falls back sooner than two impacts can be told apart.

    What follows is a flurry of impacts, until the body is seen higher than that rebound could take it.
    """
    fast = np.zeros(len(run), bool)
    step = float(np.median(np.diff(run.time)))
    for impact_at in np.flatnonzero(found.chosen[:, contact]):
        rebound = max(float(found.after[impact_at, contact]), 0.0)
        if 2 * rebound < found.acceleration * step * found.spacing:
            gap = found.smooth_gap[impact_at:, contact] - found.gap[impact_at, contact]
            height = rebound**2 / max(found.acceleration, 1e-12) + 3 * found.noise[0]
            away = np.flatnonzero(gap > height)
            fast[impact_at + 1 : impact_at + 1 + (away[0] if len(away) else len(run))] = True
    return fast
