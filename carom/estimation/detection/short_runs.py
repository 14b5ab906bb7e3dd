"""Impacts of many short runs, detected in all runs at once by orthogonal matching pursuit.

A run of a few samples is too short for windows around every step, so the whole run is one window. Every
coordinate follows a parabola, and impacts add velocity jumps along the normals of candidate contacts. Impacts
are added one after another, the one with the greatest gain first, until none has positive log-odds: a ball
that hits a wall and then another ball within one run gets both impacts.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Run
from carom.data.recording import channels
from carom.estimation.detection.impacts import Impacts
from carom.estimation.detection.jump_fits import ContactArrays, JumpFits, Jumps, RunStack
from carom.estimation.detection.local_motion import INSTANTS
from carom.mechanics import Scene

LONGEST = 9
"""Greatest number of samples of a short run."""
PRIOR_LOG_ODDS = -10.0
"""Of an impact of one contact in one step, including the expected gain of a spurious jump."""
MAX_IMPACTS = 6
"""Greatest number of impacts in one run."""
MAX_PER_STEP = 2
"""Greatest number of impacts in one step, whose cost grows with the square of this number."""
COARSE_VELOCITY, COARSE_POSITION = 0.02, 0.1
"""Errors due to discrete instants and normals, relative to a typical speed and to the distance per step."""
FAR = 30.0
"""Greatest gap at an impact, in standard deviations."""
SURFACE = 0.1
"""Prior standard deviation of surface positions, relative to half the range of the motion."""
REJECTED = 6.0
"""Excess of a sum of squares, in standard deviations, above which the impacts do not explain a run."""


def find_in_short_runs(
    runs: Sequence[Run], scene: Scene, *, masses_known: bool, surfaces_known: bool, rough: bool = False
) -> list[Impacts]:
    """Detect the impacts of every run, none longer than `LONGEST` samples.

    Arguments:
        scene: the candidate contacts.
        masses_known: whether the ratio of the velocity jumps of two bodies is known.
        surfaces_known: whether the positions of the surfaces in the scene are exact.
        rough: whether there is friction.
    """
    noise, acceleration = _roughness(runs)
    found: dict[int, Impacts] = {}
    for length in sorted({len(run) for run in runs}):
        rows = [index for index, run in enumerate(runs) if len(run) == length]
        alike = [runs[index] for index in rows]
        if length < 3:
            results = [_no_impacts(run, scene, noise, acceleration) for run in alike]
        else:
            results = _matching_pursuit(
                alike, scene, noise, acceleration, masses_known, surfaces_known, rough
            )
        found.update(zip(rows, results, strict=True))
    return [found[index] for index in range(len(runs))]


def _no_impacts(run: Run, scene: Scene, noise: np.ndarray, acceleration: np.ndarray) -> Impacts:
    """A run without impacts."""
    shape = (len(run) - 1, scene.contacts)
    return Impacts(
        log_odds=np.full(shape, -np.inf),
        chosen=np.zeros(shape, bool),
        gap=np.zeros(shape),
        before=np.zeros(shape),
        after=np.zeros(shape),
        least_gap=np.full(scene.contacts, np.inf),
        noise=noise,
        acceleration=float(np.linalg.norm(acceleration)),
        pieces=((0, len(run)),),
        outlier=np.zeros((len(run), scene.bodies), bool),
    )


def _matching_pursuit(
    runs: Sequence[Run],
    scene: Scene,
    noise: Float[np.ndarray, "2"],
    acceleration: Float[np.ndarray, "dimension"],
    masses_known: bool,
    surfaces_known: bool,
    rough: bool,
) -> list[Impacts]:
    """Detect impacts in runs of one length, at most one more per run and iteration."""
    contacts = ContactArrays.of(scene)
    step = float(np.median(np.diff(runs[0].time)))
    speed = _typical_speed(runs)
    coarse = np.hypot(noise, speed * np.array([COARSE_POSITION * step, COARSE_VELOCITY]))
    reach = 0.5 * np.ptp(np.concatenate([run.position.ravel() for run in runs]))
    surface = 0.0 if surfaces_known else SURFACE * reach
    spread = np.sqrt(noise[0] ** 2 + (speed * step) ** 2 + surface**2)
    inverse = 1 / np.asarray(scene.masses)
    shares = np.stack([inverse[contacts.first], -inverse[contacts.second] * ~contacts.wall], axis=1)
    whole = RunStack.of(runs, coarse, 1 / np.maximum(1.5 * acceleration, 1e-9) ** 2)
    count, dimension = len(runs), scene.dimension
    contact, instant = np.full((count, MAX_IMPACTS), -1), np.zeros((count, MAX_IMPACTS), int)
    normal = np.zeros((count, MAX_IMPACTS, dimension))
    excluded = np.zeros((count, scene.contacts), bool)
    active = np.arange(count)
    # An iteration accepts an impact of a run or excludes a contact, so that more than one each is needed.
    for _ in range(3 * MAX_IMPACTS):
        search = JumpFits(whole.take(active), contacts, shares, masses_known, rough)
        used = int((contact >= 0).sum(axis=1).max())
        jumps = Jumps(contact[active, :used], instant[active, :used])
        motion, normal[active, :used] = search.with_normals(jumps, normal[active, :used])
        gain, gap = search.gains(motion)
        value = gain - 0.5 * (gap / spread) ** 2 + PRIOR_LOG_ODDS
        value = np.where((np.abs(gap) > FAR * spread) | excluded[active][:, None], -np.inf, value)
        flat = value.reshape(len(active), -1)
        best = np.argmax(flat, axis=1) if flat.shape[1] else np.zeros(len(active), int)
        strength = flat[np.arange(len(active)), best] if flat.shape[1] else np.full(len(active), -np.inf)
        slot = np.sum(contact[active] >= 0, axis=1)
        going = (strength > 0) & (slot < MAX_IMPACTS)
        active, best, slot = active[going], best[going], slot[going]
        if not len(active):
            break
        time, which = np.divmod(best, scene.contacts)
        contact[active, slot], instant[active, slot] = which, time
        excluded[active, which] = True
        trial = JumpFits(whole.take(active), contacts, shares, masses_known, rough)
        used = int(slot.max()) + 1
        jumps = Jumps(contact[active, :used], instant[active, :used])
        normal[active, slot] = contacts.gaps_and_normals(motion.position(search.runs.instants))[1][
            np.flatnonzero(going), time, which
        ]
        moved, normal[active, :used] = trial.with_normals(jumps, normal[active, :used])
        _, _, before, after = (part[np.arange(len(active)), slot] for part in trial.at(moved, jumps))
        slack = 4 * coarse[1] + 0.1 * np.abs(before)
        impossible = (before > slack) | (after < -slack) | (after > -before + slack)
        contact[active[impossible], slot[impossible]] = -1
        # After an accepted impact, contacts that were impossible without it are tried again.
        excluded[active[~impossible]] = _listed(contact[active[~impossible]], scene.contacts)
    search = JumpFits(whole, contacts, shares, masses_known, rough)
    jumps = Jumps(contact, instant)
    motion, _ = search.with_normals(jumps, normal)
    freedom = np.maximum(whole.counts - 2 * scene.coordinates, 1)
    squares = np.sum(motion.residual**2, axis=(1, 2, 3))
    explained = squares < freedom + REJECTED * np.sqrt(2 * freedom)
    at_jumps = search.at(motion, jumps)
    return [
        _impacts_of(run, scene, noise, acceleration, row, jumps, at_jumps, explained)
        for row, run in enumerate(runs)
    ]


def _listed(contact: Int[np.ndarray, "runs found"], count: int) -> Bool[np.ndarray, "runs contacts"]:
    """Contacts that already have an impact in a run."""
    return (contact[:, :, None] == np.arange(count)).any(axis=1)


def _impacts_of(run, scene, noise, acceleration, row: int, jumps: Jumps, at_jumps, explained) -> Impacts:
    """The impacts of one run."""
    found = _no_impacts(run, scene, noise, acceleration)
    gap, _, before, after = at_jumps
    for slot in np.flatnonzero(jumps.contact[row] >= 0):
        j, step = int(jumps.contact[row, slot]), int(jumps.instant[row, slot]) // len(INSTANTS)
        found.chosen[step, j] = True
        found.gap[step, j], found.before[step, j], found.after[step, j] = (
            x[row, slot] for x in (gap, before, after)
        )
    if found.chosen.sum(axis=1).max() > MAX_PER_STEP:
        return replace(_no_impacts(run, scene, noise, acceleration), explained=False)
    return replace(allow_neighbours(found), explained=bool(explained[row]))


def allow_neighbours(found: Impacts) -> Impacts:
    """The same impacts, with equal log-odds at their neighbouring steps.

    So few samples do not determine the step of an impact for certain.
    """
    odds = np.full(found.log_odds.shape, -np.inf)
    for step, contact in np.argwhere(found.chosen):
        odds[max(step - 1, 0) : step + 2, contact] = 0.0
    return replace(found, log_odds=odds)


def _typical_speed(runs: Sequence[Run]) -> float:
    """Root mean square of the velocities, or of difference quotients if none were measured."""

    def speeds(run: Run) -> np.ndarray:
        if run.velocity is not None:
            return run.velocity
        return np.diff(run.position, axis=0) / np.diff(run.time)[:, None, None]

    return float(np.sqrt(np.nanmean(np.concatenate([speeds(run) for run in runs]) ** 2)))


def _roughness(runs: Sequence[Run]) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "dimension"]]:
    """Noise of positions and velocities, and a typical acceleration along every axis.

    A parabola is fitted to each coordinate of each run; medians are robust to the minority with an impact.
    """
    long = [run for run in runs if len(run) > 3]
    length = max((len(run) for run in long), default=0)
    long = [run for run in long if len(run) == length]
    dimension = runs[0].position.shape[2]
    if not long:
        return np.ones(2), np.ones(dimension)
    measured = np.isfinite(np.stack([channels(run) for run in long])).any(axis=(0, 1, 3, 4))
    noise = np.array([1.0, 1.0 / float(np.median(np.diff(long[0].time)))])
    freedom = np.maximum(length * (1 - 3 / (length * max(measured.sum(), 1))), 1)
    # Ratio of the median of χ²/n to its mean (Wilson and Hilferty).
    low = (1 - 2 / (9 * freedom)) ** 3
    loose = np.full(dimension, 1e-18)
    for _ in range(6):
        fitted = RunStack.of(long, noise, loose)
        residual = fitted.smoothed(fitted.value)[..., :-1].reshape(*fitted.value.shape[:3], length, 2)
        variance = np.median(np.sum(residual**2, axis=3), axis=(0, 1, 2)) / freedom / low
        noise = np.where(measured, np.maximum(noise * np.sqrt(variance), 1e-12), 1.0)
    fitted = RunStack.of(long, noise, loose)
    curvature = fitted.parabola(fitted.value)[..., 2]
    error = np.linalg.inv(fitted.triangle)[..., 2, :]
    # 0.455 is the median of χ² with one degree of freedom; the variance of the estimate is subtracted.
    square = np.median(curvature**2, axis=(0, 1)) / 0.455 - np.median(np.sum(error**2, -1), axis=(0, 1))
    duration = float(np.median([run.time[-1] - run.time[0] for run in long]))
    least = COARSE_VELOCITY * _typical_speed(long) / duration
    return noise, np.sqrt(np.maximum(square, least**2))
