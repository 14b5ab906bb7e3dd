"""Impacts of long runs: log-odds of an impact in every step, from the motion, a prior and touch readings.

Two models of the motion around every step are compared: constant acceleration over a few samples either side,
and the same with a velocity jump along the normal of a candidate contact. Restitution is not known yet, so a
jump may be an impact if the gap closes before it and opens no faster after it (0 ≤ e ≤ 1). A touch sensor
adds the log-likelihood ratio of its readings, at most `STRONGEST`, so that the motion can overrule even a
sensor that is declared perfect.
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

INSTANTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Instants of trial impacts within a step, as fractions of it."""
PRIOR_LOG_ODDS = -15.0
"""Of an impact in one step."""
GUARD = 4
"""Contacts of a body closer to a surface than the noise, for this many samples either way, are unresolved."""
REACH = 2
"""Greatest number of steps by which a detected impact may be moved."""


@dataclass(frozen=True, eq=False)
class Impacts:
    """Detected impacts of one run, per step and candidate contact."""

    log_odds: Float[np.ndarray, "steps contacts"]
    chosen: Bool[np.ndarray, "steps contacts"]
    """Steps with an impact."""
    gap: Float[np.ndarray, "steps contacts"]
    """The gap at the fitted velocity jump, with the surfaces as stated in the scene."""
    before: Float[np.ndarray, "steps contacts"]
    after: Float[np.ndarray, "steps contacts"]
    """Rates of the gap before and after the jump."""
    smooth_gap: Float[np.ndarray, "steps contacts"]
    """The gap of the fitted motion without a jump."""
    noise: Float[np.ndarray, "2"]
    """Standard deviations of positions and velocities, from the residuals of smooth windows."""
    acceleration: float
    """A typical magnitude of the acceleration between impacts."""
    spacing: int
    """Least number of steps between impacts of one contact that can be distinguished."""
    explained: bool = True
    """Whether these impacts explain the run up to the noise."""


class SmoothFit(NamedTuple):
    """A run fitted without impacts, window by window: the null hypothesis of the detection."""

    windows: Windows
    half_width: int
    fit: WindowFit
    noise: Float[np.ndarray, "2"]
    acceleration: float
    """A typical magnitude of the acceleration."""
    stiffness: float
    """Precision of the prior that accelerations vanish."""
    cost: Float[np.ndarray, "steps"]
    """Weighted sum of squares of every window."""

    @property
    def weight(self) -> Float[np.ndarray, "2"]:
        return 1 / self.noise**2


def fit_smooth(run: Run, half_width: int | None = None, *, quiet: float = 0.5) -> SmoothFit:
    """Fit motion without jumps to the window around every step.

    Arguments:
        half_width: samples either side of a step; by default more if no velocities were measured.
        quiet: quantile over the windows from which noise and accelerations are estimated; less than the
            fraction of windows without an impact.
    """
    if half_width is None:
        half_width = 5 if run.velocity is not None and np.isfinite(run.velocity).any() else 12
    windows = Windows(run, half_width)
    # Initially velocities are weighted like positions per step, which makes the result independent of units.
    weight = np.array([1.0, np.median(windows.step) ** 2])
    smooth = windows.fit(None, None, weight)
    for _ in range(3):
        smooth = windows.fit(None, None, 1 / local_noise(smooth, quiet) ** 2)
    noise = local_noise(smooth, quiet)
    weight = 1 / noise**2
    typical = float(np.sqrt(np.quantile(np.sum(smooth.acceleration**2, axis=(1, 2)), quiet)))
    # Without this prior a sharp parabola would fit the motion through an impact.
    stiffness = 1 / (1.5 * max(typical, 1e-9)) ** 2
    cost = windows.fit(None, None, weight, stiffness).cost(weight, stiffness)
    return SmoothFit(windows, half_width, smooth, noise, typical, stiffness, cost)


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
    """Log-odds of an impact in every step of a run, and the steps at which they are positive and greatest.

    Arguments:
        run: positions, with velocities where measured; NaN where a value is missing.
        scene: the candidate contacts.
        sensor: error rates of the touch sensor, all of them known; None to ignore its readings.
        masses_known: whether the ratio of the velocity jumps of two bodies is known.
        half_width: samples either side of a step in a window; by default more without velocities.
        mask: samples either side of an impact to ignore. A contact of finite duration is then one impact, at
            the instant where the extrapolated motions before and after it meet.
        prior_log_odds: of an impact in one step.
    """
    smooth = fit_smooth(run, half_width)
    windows, weight, stiffness = smooth.windows, smooth.weight, smooth.stiffness
    steps, contacts = len(run) - 1, scene.contacts
    log_odds = np.full((steps, contacts), -np.inf)
    jump = np.zeros((3, steps, contacts))  # gap, rate before, rate after
    position = windows.filled_position
    for j in range(scene.contacts):
        directions = _directions(j, scene, position, masses_known)
        for instant in INSTANTS:
            with_jump = windows.fit(directions, instant, weight, stiffness)
            gain = 0.5 * (smooth.cost - with_jump.cost(weight, stiffness))
            trial = _jump(j, scene, position, with_jump)
            value = np.where(possible_impact(trial), gain, -np.inf)
            better = value > log_odds[:, j]
            log_odds[better, j] = value[better]
            jump[:, better, j] = trial[:, better]
    readings = np.zeros((steps, contacts))
    if sensor is not None and run.touch is not None:
        by_body = np.stack([sensor.log_odds(reading) for reading in run.touch[1:].T], axis=1)
        # Sensors of several bodies err independently. The bound leaves the last word to the motion: a touch
        # without a velocity jump carries no information about restitution.
        readings = np.minimum(by_body @ scene.geometry.incidence.T, STRONGEST)
    log_odds = log_odds + prior_log_odds + readings
    incidence = scene.geometry.incidence
    sharing = (incidence.astype(int) @ incidence.T.astype(int)) > 0
    # Windows grow with the mask, so that enough samples remain either side of it.
    half_width = smooth.half_width + 2 * mask
    chosen = peaks_of(log_odds, half_width, sharing)
    smooth_gap = np.asarray(scene.geometry.gap(smooth.fit.position))
    gap, before, after = jump
    peaks = Impacts(
        log_odds, chosen, gap, before, after, smooth_gap, smooth.noise, smooth.acceleration, half_width
    )
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
    """Move every impact to the step within `REACH`, or within the mask, at which a jump explains most.

    Neighbouring steps are compared within one window, that of the detected step, since costs over different
    samples are not comparable. The log-odds of the neighbours follow from the same comparison. The gap and
    its rates at a new step are those of the best jump there, or those at the old step if no impact could have
    caused that jump. `readings` are the log-odds of the touch sensor at every step.
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
        fits = [windows.fit(directions, t + shift, weight, stiffness) for shift in shifts for t in INSTANTS]
        likelihood = np.stack([-0.5 * fit.cost(weight, stiffness) for fit in fits])
        likelihood = likelihood.reshape(len(shifts), len(INSTANTS), len(found))
        jumps: dict[int, np.ndarray] = {}  # of all windows, evaluated lazily: few of the fits are needed
        for row, old in enumerate(found):
            by_shift = likelihood[:, :, row].max(axis=1)
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
                number = best * len(INSTANTS) + int(np.argmax(likelihood[best, :, row]))
                if number not in jumps:
                    jumps[number] = _jump(j, scene, position, fits[number])
                moved = jumps[number][:, row]
                jump[:, new, j] = moved if possible_impact(moved[:, None])[0] else jump[:, old, j]
    return replace(peaks, log_odds=log_odds, chosen=chosen, gap=jump[0], before=jump[1], after=jump[2])


def _jump(contact: int, scene: Scene, position: np.ndarray, fit: WindowFit) -> Float[np.ndarray, "3 steps"]:
    """The gap at the velocity jump of every window, and its rates before and after."""
    normal = scene.geometry.jacobian(position)[:, contact]
    before, after = (np.einsum("nkd,nkd->n", normal, v) for v in (fit.velocity_before, fit.velocity_after))
    return np.stack([scene.geometry.gap(fit.position)[:, contact], before, after])


def possible_impact(jump: Float[np.ndarray, "3 steps"]) -> Bool[np.ndarray, "steps"]:
    """Whether an impact with 0 ≤ e ≤ 1 could have caused this jump, with a tolerance for noise."""
    _, before, after = jump
    slack = 0.1 * np.abs(before)
    return (before < 0) & (after >= -slack) & (after <= -before + slack)


def _directions(contact: int, scene: Scene, position: np.ndarray, masses_known: bool) -> np.ndarray:
    """Velocity changes by a unit impulse, M⁻¹ Gᵀ; those of each body separately if masses are not known."""
    normal, bodies = scene.geometry.jacobian(position)[:, contact], scene.geometry.joined[contact]
    if masses_known or len(bodies) == 1:
        change = normal / np.asarray(scene.masses)[None, :, None]
        return change.reshape(len(position), 1, -1)
    each = []
    for body in bodies:
        alone = np.zeros_like(normal)
        alone[:, body] = normal[:, body]
        each.append(alone.reshape(len(position), -1))
    return np.stack(each, axis=1)


def peaks_of(
    log_odds: np.ndarray, half_width: int, sharing: Bool[np.ndarray, "contacts contacts"]
) -> Bool[np.ndarray, "steps contacts"]:
    """Local maxima of positive log-odds, the greatest first (non-maximum suppression).

    A window that contains an impact of another contact of the same body has no smooth explanation either, so
    nearby steps of all contacts of that body are suppressed, except adjacent ones: an impact may be passed on
    at once, as in Newton's cradle.
    """
    chosen = np.zeros(log_odds.shape, bool)
    remaining = log_odds.copy()
    positive = np.flatnonzero(remaining > 0)
    # The stable sort resolves ties in favour of the earlier step.
    for index in positive[np.argsort(-remaining.ravel()[positive], kind="stable")].tolist():
        step, contact = divmod(index, remaining.shape[1])
        if remaining[step, contact] == -np.inf:
            continue
        chosen[step, contact] = True
        near = np.arange(max(0, step - half_width + 1), min(len(remaining), step + half_width))
        apart = near[np.abs(near - step) > 1]
        remaining[np.ix_(apart, np.flatnonzero(sharing[contact]))] = -np.inf
        remaining[near, contact] = -np.inf
    return chosen


def resolved(run: Run, found: Impacts, shift: Float[np.ndarray, "contacts"]) -> Bool[np.ndarray, "samples"]:
    """False where a gap stays within the noise for longer than around a detected impact."""
    clear = np.ones(len(run), bool)
    width = 2 * GUARD + 1
    if len(run) <= width:
        return clear
    for j in range(found.chosen.shape[1]):
        if not found.chosen[:, j].any():
            continue
        clear &= ~_rapid_bounces(run, found, j)
        gap = np.abs(found.smooth_gap[:, j] - shift[j])
        near = np.concatenate([gap[:1], gap]) < 1.5 * found.noise[0]
        for first, second in pairwise(np.flatnonzero(found.chosen[:, j])):
            if second - first <= 3 * width:  # a short flight between two detected impacts
                near[first + 1 : second + 1] = False
        lasting = np.convolve(near, np.ones(width), "same") >= width
        clear &= ~(np.convolve(lasting, np.ones(width), "same") > 0)
    return clear


def _rapid_bounces(run: Run, found: Impacts, contact: int) -> Bool[np.ndarray, "samples"]:
    """True after an impact whose rebound returns sooner than two impacts can be distinguished.

    Unresolved bounces follow, until the body rises higher than that rebound could take it.
    """
    rapid = np.zeros(len(run), bool)
    step = float(np.median(np.diff(run.time)))
    for impact in np.flatnonzero(found.chosen[:, contact]):
        rebound = max(float(found.after[impact, contact]), 0.0)
        # The flight after a rebound at speed u lasts 2u/a and reaches u²/2a; the height below is twice that.
        if 2 * rebound < found.acceleration * step * found.spacing:
            gap = found.smooth_gap[impact:, contact] - found.gap[impact, contact]
            height = rebound**2 / max(found.acceleration, 1e-12) + 3 * found.noise[0]
            higher = np.flatnonzero(gap > height)
            rapid[impact + 1 : impact + 1 + (higher[0] if len(higher) else len(run))] = True
    return rapid
