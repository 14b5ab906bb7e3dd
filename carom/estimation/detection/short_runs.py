"""Impacts of many short runs, looked for in all runs at once.

A run of a few samples has no room for windows around every step (`contacts`), and hundreds of runs leave no
time for it. Here a whole run is one window. Every coordinate moves on a parabola, and impacts add jumps of
velocity along the normals of candidate contacts. They are found one after another, the one that explains most
first (matching pursuit), until none explains more than chance would: so a ball that hits a wall and then
another ball within one run has both of its impacts.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Run
from carom.data.recording import channels
from carom.estimation.detection.impacts import OFFSETS, Impacts
from carom.estimation.detection.jump_fits import ContactArrays, JumpFits, Jumps, RunStack
from carom.mechanics import Scene

LONGEST = 9
"""Samples of a run up to which it is looked at as a whole."""
PRIOR_LOG_ODDS = -10.0
"""Of an impact of one contact in one step, with what its free size and instant can explain by chance."""
MOST = 6
"""Impacts of one run at most."""
AT_ONCE = 2
"""Impacts of one step at most: the cost of a step grows with the square of this number."""
COARSE_VELOCITY, COARSE_POSITION = 0.02, 0.1
"""What instants and normals leave unexplained: of a typical speed, and of the way gone in a step."""
FAR = 30.0
"""How many times what is known of a gap a contact may seem open when it happens."""
SURFACE = 0.1
"""How well surfaces are known before they are estimated, as a share of half the range of the motion."""
BEYOND = 6.0
"""Standard deviations of a sum of squares beyond which no impacts that were found explain a run."""


def find_in_short_runs(
    runs: Sequence[Run], scene: Scene, *, masses_known: bool, surfaces_known: bool, rough: bool = False
) -> list[Impacts]:
    """The impacts of every run, none longer than `LONGEST` samples.

    Arguments:
        scene: the candidate contacts.
        masses_known: whether the share of each body in a jump is known.
        surfaces_known: whether the surfaces are where the scene has them.
        rough: whether there is friction.
    """
    noise, acceleration = _roughness(runs)
    found: dict[int, Impacts] = {}
    for length in sorted({len(run) for run in runs}):
        rows = [index for index, run in enumerate(runs) if len(run) == length]
        alike = [runs[index] for index in rows]
        if length < 3:
            results = [_nothing(run, scene, noise, acceleration) for run in alike]
        else:
            results = _pursue(alike, scene, noise, acceleration, masses_known, surfaces_known, rough)
        found.update(zip(rows, results, strict=True))
    return [found[index] for index in range(len(runs))]


def _nothing(run: Run, scene: Scene, noise: np.ndarray, acceleration: np.ndarray) -> Impacts:
    """No impact at any step."""
    shape = (len(run) - 1, scene.contacts)
    return Impacts(
        log_odds=np.full(shape, -np.inf),
        chosen=np.zeros(shape, bool),
        gap=np.zeros(shape),
        before=np.zeros(shape),
        after=np.zeros(shape),
        smooth_gap=np.full(shape, np.inf),
        noise=noise,
        acceleration=float(np.linalg.norm(acceleration)),
        spacing=1,
    )


def _pursue(
    runs: Sequence[Run],
    scene: Scene,
    noise: Float[np.ndarray, "2"],
    acceleration: Float[np.ndarray, "dimension"],
    masses_known: bool,
    surfaces_known: bool,
    rough: bool,
) -> list[Impacts]:
    """Runs of one length, one more impact in every turn."""
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
    contact, instant = np.full((count, MOST), -1), np.zeros((count, MOST), int)
    normal = np.zeros((count, MOST, dimension))
    banned = np.zeros((count, scene.contacts), bool)
    active = np.arange(count)
    # A turn finds an impact or rules one out.
    for _ in range(3 * MOST):
        search = JumpFits(whole.take(active), contacts, shares, masses_known, rough)
        used = int((contact >= 0).sum(axis=1).max())
        jumps = Jumps(contact[active, :used], instant[active, :used])
        motion, normal[active, :used] = search.settled(jumps, normal[active, :used])
        gain, gap = search.gains(motion)
        value = gain - 0.5 * (gap / spread) ** 2 + PRIOR_LOG_ODDS
        value = np.where((np.abs(gap) > FAR * spread) | banned[active][:, None], -np.inf, value)
        flat = value.reshape(len(active), -1)
        best = np.argmax(flat, axis=1) if flat.shape[1] else np.zeros(len(active), int)
        strength = flat[np.arange(len(active)), best] if flat.shape[1] else np.full(len(active), -np.inf)
        slot = np.sum(contact[active] >= 0, axis=1)
        going = (strength > 0) & (slot < MOST)
        active, best, slot = active[going], best[going], slot[going]
        if not len(active):
            break
        time, which = np.divmod(best, scene.contacts)
        contact[active, slot], instant[active, slot] = which, time
        banned[active, which] = True
        tried = JumpFits(whole.take(active), contacts, shares, masses_known, rough)
        used = int(slot.max()) + 1
        jumps = Jumps(contact[active, :used], instant[active, :used])
        normal[active, slot] = contacts.gaps_and_normals(motion.position(search.runs.instants))[1][
            np.flatnonzero(going), time, which
        ]
        moved, normal[active, :used] = tried.settled(jumps, normal[active, :used])
        _, _, before, after = (part[np.arange(len(active)), slot] for part in tried.at(moved, jumps))
        slack = 4 * coarse[1] + 0.1 * np.abs(before)
        wrong = (before > slack) | (after < -slack) | (after > -before + slack)
        contact[active[wrong], slot[wrong]] = -1
        # What was ruled out may have been so for want of the impact that now is there.
        banned[active[~wrong]] = _listed(contact[active[~wrong]], scene.contacts)
    search = JumpFits(whole, contacts, shares, masses_known, rough)
    jumps = Jumps(contact, instant)
    motion, _ = search.settled(jumps, normal)
    freedom = np.maximum(whole.counts - 2 * scene.coordinates, 1)
    squares = np.sum(motion.left**2, axis=(1, 2, 3))
    explained = squares < freedom + BEYOND * np.sqrt(2 * freedom)
    here = search.at(motion, jumps)
    return [
        _described(run, scene, noise, acceleration, row, jumps, here, explained)
        for row, run in enumerate(runs)
    ]


def _listed(contact: Int[np.ndarray, "runs found"], count: int) -> Bool[np.ndarray, "runs contacts"]:
    """Which of all contacts a run has already."""
    return (contact[:, :, None] == np.arange(count)).any(axis=1)


def _described(run, scene, noise, acceleration, row: int, jumps: Jumps, here, explained) -> Impacts:
    """What was found in one run."""
    found = _nothing(run, scene, noise, acceleration)
    gap, _, before, after = here
    for slot in np.flatnonzero(jumps.contact[row] >= 0):
        j, step = int(jumps.contact[row, slot]), int(jumps.instant[row, slot]) // len(OFFSETS)
        found.chosen[step, j] = True
        found.gap[step, j], found.before[step, j], found.after[step, j] = (
            x[row, slot] for x in (gap, before, after)
        )
    if found.chosen.sum(axis=1).max() > AT_ONCE:
        return replace(_nothing(run, scene, noise, acceleration), explained=False)
    return replace(allow_neighbours(found), explained=bool(explained[row]))


def allow_neighbours(found: Impacts) -> Impacts:
    """The same impacts with log-odds that leave their neighbouring steps as likely.

    In so few samples none is ruled out for good.
    """
    odds = np.full(found.log_odds.shape, -np.inf)
    for step, contact in np.argwhere(found.chosen):
        odds[max(step - 1, 0) : step + 2, contact] = 0.0
    return replace(found, log_odds=odds)


def _typical_speed(runs: Sequence[Run]) -> float:
    """The root mean square of velocities, or of differences of positions where none were measured."""

    def speeds(run: Run) -> np.ndarray:
        if run.velocity is not None:
            return run.velocity
        return np.diff(run.position, axis=0) / np.diff(run.time)[:, None, None]

    return float(np.sqrt(np.nanmean(np.concatenate([speeds(run) for run in runs]) ** 2)))


def _roughness(runs: Sequence[Run]) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "dimension"]]:
    """Noise of positions and velocities, and a typical acceleration along every axis.

    Each coordinate of each run is a parabola on its own. Those with an impact are the smaller part, so that
    medians do not see them.
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
    # The median of a mean square of so few values lies below its mean (Wilson and Hilferty).
    low = (1 - 2 / (9 * freedom)) ** 3
    loose = np.full(dimension, 1e-18)
    for _ in range(6):
        fitted = RunStack.of(long, noise, loose)
        left = fitted.smoothed(fitted.value)[..., :-1].reshape(*fitted.value.shape[:3], length, 2)
        variance = np.median(np.sum(left**2, axis=3), axis=(0, 1, 2)) / freedom / low
        noise = np.where(measured, np.maximum(noise * np.sqrt(variance), 1e-12), 1.0)
    fitted = RunStack.of(long, noise, loose)
    curvature = fitted.parabola(fitted.value)[..., 2]
    error = np.linalg.inv(fitted.triangle)[..., 2, :]
    square = np.median(curvature**2, axis=(0, 1)) / 0.455 - np.median(np.sum(error**2, -1), axis=(0, 1))
    lasting = float(np.median([run.time[-1] - run.time[0] for run in long]))
    least = COARSE_VELOCITY * _typical_speed(long) / lasting
    return noise, np.sqrt(np.maximum(square, least**2))
