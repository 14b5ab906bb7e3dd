"""Impacts: velocity jumps assigned to the candidate contacts of a scene.

The velocity jumps of all bodies are detected without regard to the scene. Jumps of several bodies in the same
step belong together. A contact explains them if its gap vanishes there within its uncertainty, if it closed
before and opens no faster after (0 ≤ e ≤ 1), and if impulses along its normal, with friction, reproduce the
velocity changes of its bodies. Several contacts may act at once, as in Newton's cradle or in a corner. A jump
that no contact explains breaks the motion: a hand, a lost track, a swap of two bodies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.estimation.detection.local_motion import INSTANTS, REACH, LocalMotion, fit_around, grid_around
from carom.estimation.detection.switching_filter import Jumps, Motion
from carom.estimation.detection.touch_sensor import STRONGEST, TouchSensor
from carom.estimation.detection.velocity_jumps import HAZARD, detect_velocity_jumps, sequences
from carom.mechanics import Scene

Surfaces = Literal["known", "common", "per run"]
TOGETHER = 1
"""Greatest number of steps between the jumps of two bodies in one impact."""
FAR = 6.0
"""Greatest gap at an impact, in standard deviations."""
GRID = 0.25
"""Uncertainty of the instant of an impact due to the grid of instants, as a fraction of a step."""
ROUGH = 0.5
"""Prior standard deviation of the tangential impulse, relative to the velocity change."""
UNEXPLAINED = 0.3
"""Greatest part of the velocity changes that the impulses may leave unexplained."""
TOLERANCE = 0.1
"""Tolerance of the conditions on restitution, relative to the closing speed; errors of measurement add."""
UNRESOLVED = 0.5
"""Error of the rates of a gap, relative to the closing speed, from which on bounces are too quick to tell."""
PRIOR = np.log(HAZARD / len(INSTANTS))
"""Prior log-odds of an impact at one of the instants of a step."""
EVIDENT = 3.0
"""Least log-odds of an impact."""
BREAK = 20.0
"""Log-odds from which on a jump of unknown cause breaks the motion; weaker ones are no more than misfit."""
MASKS, TOLERABLE = (2, 4, 8, 16, 32), 0.2
"""Masks that are tried, and the fraction of events without an explanation from which on they are."""
KEPT, HIDDEN = 0.8, 0.3
"""Least fraction of the impacts that a longer mask keeps, and the greatest of the samples that it hides."""
MARGIN = 4
"""Samples at either end of a run in which events do not count for the choice of a mask."""
SHORTEST = 6
"""Least number of samples of a part of a run: fewer hardly determine more than the state at its beginning."""
QUICK = 3.0
"""Least number of samples of a flight between two impacts that can be told apart."""
LONGER = 3
"""Greatest duration of a contact, in multiples of the mask."""
LEAST_FLIGHT, ENOUGH_FLIGHTS = 5, 3
"""Samples of a flight, and flights, from which on an acceleration is measured."""
AT_ONCE = 3
"""Greatest number of contacts in one impact."""


@dataclass(frozen=True, eq=False)
class Impacts:
    """Detected impacts of one run, per step and candidate contact."""

    log_odds: Float[np.ndarray, "steps contacts"]
    chosen: Bool[np.ndarray, "steps contacts"]
    """Steps with an impact."""
    gap: Float[np.ndarray, "steps contacts"]
    """The gap at the velocity jump, with the surfaces as stated in the scene."""
    before: Float[np.ndarray, "steps contacts"]
    after: Float[np.ndarray, "steps contacts"]
    """Rates of the gap before and after the jump."""
    least_gap: Float[np.ndarray, "contacts"]
    """The smallest gap in the run."""
    noise: Float[np.ndarray, "2"]
    """Standard deviations of positions and velocities."""
    acceleration: float
    """A typical magnitude of the acceleration between impacts."""
    pieces: tuple[tuple[int, int], ...]
    """First and last sample (excluded) of the parts of the run that one motion with these impacts explains:
    jumps of unknown cause lie between them, and samples at rest outside them."""
    outlier: Bool[np.ndarray, "samples bodies"]
    """Samples that are no measurement of the motion of a body."""
    explained: bool = True
    """Whether these impacts explain the run up to the noise."""
    mask: int = 0
    """Samples either side of an impact to leave out."""
    flight: Float[np.ndarray, "dimension"] | None = None
    """The acceleration between impacts, where it was measured."""


@dataclass(frozen=True, eq=False)
class _Event:
    """Jumps of some bodies in about the same step of a run."""

    run: int
    jumps: tuple[tuple[int, int], ...]
    """Step and body of every jump, in the order of time."""
    mask: int
    """Samples either side of its middle that are ignored."""
    jumping: tuple[int, ...]
    instants: Float[np.ndarray, "instants"]
    motions: dict[int, LocalMotion]
    """Of all bodies."""
    readings: Float[np.ndarray, "instants contacts"]
    kinematics: "_Kinematics"
    step_size: float

    @property
    def step(self) -> int:
        return _middle(self.jumps)


def find_impacts(
    runs: Sequence[Run],
    scene: Scene,
    *,
    sensor: TouchSensor | None = None,
    masses_known: bool = True,
    surfaces: Surfaces = "common",
    mask: int | None = 0,
) -> list[Impacts]:
    """Detect the velocity jumps of all runs, and assign them to the contacts of the scene.

    Arguments:
        runs: positions, with velocities where measured; NaN where a value is missing.
        scene: the candidate contacts.
        sensor: error rates of the touch sensor, all of them known; None to ignore its readings.
        masses_known: whether the ratio of the velocity changes of two bodies is known.
        surfaces: whether the surfaces lie where the scene says, elsewhere, or elsewhere in each run.
        mask: samples either side of an impact to ignore. A contact of finite duration is then one impact, at
            the instant where the motions before and after it meet. None for the shortest that leaves few
            jumps unexplained: such a contact is seen as several, and so is an impact in smoothed positions.
    """
    readings = [_readings(run, sensor) for run in runs]
    data = sequences(
        [run.time for run in runs],
        [run.position for run in runs],
        [run.velocity for run in runs],
        readings,
    )
    jumps, motion = detect_velocity_jumps(data)
    by_run = [jumps[index * scene.bodies : (index + 1) * scene.bodies] for index in range(len(runs))]

    def assign(mask: int, *, lasting: bool = False) -> tuple[list[tuple[_Event, list[_Assignment]]], float]:
        """Events with the contacts that explain them, and the fraction that none explains."""
        events = [
            event
            for index, (run, found) in enumerate(zip(runs, by_run, strict=True))
            for event in _events(index, run, found, scene, motion, readings[index], mask)
        ]
        places = _places(events, scene, motion, masses_known, surfaces)

        def assigned(event: _Event) -> list[_Assignment]:
            place = places[event.run]
            if event.mask > mask:  # a contact that lasts longer may be the first with this surface
                alone = _places([event], scene, motion, masses_known, surfaces)[event.run]
                known = np.isfinite(place[1])
                place = np.where(known, place[0], alone[0]), np.where(known, place[1], alone[1])
            return _assign(event, scene, motion, place, masses_known)

        def together(jumps: list[tuple[int, int]], event: _Event, mask: int) -> _Event:
            found = by_run[event.run]
            return _event(event.run, runs[event.run], jumps, found, scene, motion, readings[event.run], mask)

        pairs = [(one, assigned(one)) for one in events]
        pairs = _lasting(pairs, mask, together, assigned) if lasting else pairs
        # Smoothing ends a few samples before the ends of a run.
        counted = [
            found for one, found in pairs if found and MARGIN <= one.step < len(runs[one.run]) - MARGIN
        ]
        unexplained = sum(not found[-1].contacts for found in counted)
        return pairs, unexplained / max(len(counted), 1)

    chosen, samples = mask or 0, sum(len(run) for run in runs)
    assigned, fewest = assign(chosen, lasting=bool(mask))
    for longer in MASKS if mask is None and scene.contacts else ():
        if fewest < TOLERABLE:
            break
        trial, unexplained = assign(longer)
        kept, impacts = (sum(any(one.contacts for one in f) for _, f in part) for part in (assigned, trial))
        # A mask that takes several impacts for one explains few of them.
        loses = impacts < KEPT * kept or 2 * longer * impacts > HIDDEN * samples
        if unexplained < 0.5 * fewest and not loses:
            chosen, fewest = longer, unexplained
            assigned, _ = assign(longer, lasting=True)
    if mask is None and motion.width > 1:  # smoothing spreads impacts beyond the jumps that are found
        chosen += motion.width
    motion = _between_impacts(runs, assigned, motion)
    return [
        _of_run(run, scene, motion, [one for one in assigned if one[0].run == index], by_run[index], chosen)
        for index, run in enumerate(runs)
    ]


def _between_impacts(
    runs: Sequence[Run], assigned: Sequence[tuple[_Event, list["_Assignment"]]], motion: Motion
) -> Motion:
    """The motion with the acceleration of the flights from one impact to the next.

    Jumps alone do not tell flights from a hand, from sliding or from rest.
    """
    found = []
    for (event, before), (later, after) in pairwise(assigned):
        both = bool(before and after and before[-1].contacts and after[-1].contacts)
        run, low, high = runs[event.run], event.jumps[-1][0] + 1, later.jumps[0][0] + 1
        for body in {*event.jumping} & {*later.jumping} if both and event.run == later.run else ():
            position = run.position[low:high, body]
            known = np.isfinite(position).all(axis=1)
            if known.sum() > LEAST_FLIGHT:
                time = run.time[low:high][known]
                curve = 2 * np.polyfit(time - time.mean(), position[known], 2)[0]
                found.append((float(np.ptp(time)) ** 5, curve))
    if len(found) < ENOUGH_FLIGHTS:
        return motion
    weight, curves = np.array([w for w, _ in found]), np.array([c for _, c in found])

    def median(values: np.ndarray) -> np.ndarray:
        """Weighted by the precision of the accelerations."""
        order = np.argsort(values, axis=0)
        below = np.cumsum(weight[order], axis=0) / weight.sum()
        middle = order[np.argmax(below >= 0.5, axis=0), np.arange(values.shape[1])]
        return values[middle, np.arange(values.shape[1])]

    mean = median(curves)
    return motion._replace(acceleration=mean, deviation=1.4826 * median(np.abs(curves - mean)))


def _readings(run: Run, sensor: TouchSensor | None) -> Float[np.ndarray, "samples bodies"]:
    """Log-likelihood ratios of the touch readings for an impact in the step before a sample."""
    if sensor is None or run.touch is None:
        return np.zeros((len(run), run.position.shape[1]))
    # The bound leaves the last word to the motion: a touch without a velocity jump tells no restitution.
    return np.minimum(np.stack([sensor.log_odds(of_body) for of_body in run.touch.T], axis=1), STRONGEST)


def _events(
    index: int,
    run: Run,
    jumps: Sequence[Jumps],
    scene: Scene,
    motion: Motion,
    readings: np.ndarray,
    mask: int,
) -> list[_Event]:
    """Group the jumps of all bodies by their steps, and fit the motion of every body around each group."""
    listed = sorted((int(step), body) for body, found in enumerate(jumps) for step in found.step)
    groups: list[list[tuple[int, int]]] = []
    for step, body in listed:
        # With a mask, the two ends of a lasting contact are one impact.
        if groups and step - groups[-1][0][0] <= max(TOGETHER, 2 * mask):
            groups[-1].append((step, body))
        else:
            groups.append([(step, body)])
    return [_event(index, run, group, jumps, scene, motion, readings, mask) for group in groups]


def _middle(jumps: Sequence[tuple[int, int]]) -> int:
    return round(0.5 * (jumps[0][0] + jumps[-1][0]))


def _event(
    index: int,
    run: Run,
    group: Sequence[tuple[int, int]],
    jumps: Sequence[Jumps],
    scene: Scene,
    motion: Motion,
    readings: np.ndarray,
    mask: int,
) -> _Event:
    """Some jumps as one event, with the motion of every body around it up to its other jumps."""
    first, last = group[0][0], group[-1][0]
    instants = grid_around(_middle(group), len(run) - 1, mask=mask)
    motions = {}
    for body, found in enumerate(jumps):
        low = max((int(k) + 1 for k in found.step if k < first), default=0)
        high = min((int(k) + 1 for k in found.step if k > last), default=len(run))
        motions[body] = fit_around(run, body, instants, low, high, motion, mask=mask)
    by_body = readings[1:] @ scene.geometry.incidence.T.astype(float)
    near = np.minimum(by_body[instants.astype(int)], STRONGEST)
    bodies = tuple(sorted({b for _, b in group}))
    kinematics = _Kinematics.of(list(motions.values()), scene)
    step_size = float(np.median(np.diff(run.time)))
    return _Event(index, tuple(group), mask, bodies, instants, motions, near, kinematics, step_size)


def _lasting(
    pairs: Sequence[tuple[_Event, list["_Assignment"]]],
    mask: int,
    together: Callable[[list[tuple[int, int]], _Event, int], _Event],
    assigned: Callable[[_Event], list["_Assignment"]],
) -> list[tuple[_Event, list["_Assignment"]]]:
    """Successive events that nothing explains as one, if a contact that lasts longer than most explains them.

    The slower bodies meet, the longer soft ones touch.
    """

    def unexplained(found: Sequence[_Assignment]) -> bool:
        return not any(one.contacts for one in found)

    result, row = [], 0
    while row < len(pairs):
        event, found = pairs[row]
        end, merged = row + 1, (event, found)
        if unexplained(found):
            stop = end
            while (
                stop < len(pairs)
                and pairs[stop][0].run == event.run
                and pairs[stop][0].jumps[-1][0] - event.jumps[0][0] <= 2 * LONGER * mask
                and unexplained(pairs[stop][1])
            ):
                stop += 1
            for last in range(stop, end, -1):
                jumps = [jump for one, _ in pairs[row:last] for jump in one.jumps]
                wider = (jumps[-1][0] - jumps[0][0] + 1) // 2 + 1
                whole = together(jumps, event, max(wider, mask))
                explanation = assigned(whole)
                if not unexplained(explanation):
                    end, merged = last, (whole, explanation)
                    break
        result.append(merged)
        row = end
    return result


@dataclass(frozen=True, eq=False)
class _Assignment:
    """Contacts that explain an event, with the gap, its rates and the log-odds at every instant."""

    contacts: tuple[int, ...]
    log_odds: Float[np.ndarray, "instants"]
    gap: Float[np.ndarray, "instants contacts"]
    before: Float[np.ndarray, "instants contacts"]
    after: Float[np.ndarray, "instants contacts"]


@dataclass(frozen=True, eq=False)
class _Kinematics:
    """Gaps and their rates of all contacts in an event, at every instant, with variances."""

    normal: Float[np.ndarray, "instants contacts bodies dimension"]
    gap: Float[np.ndarray, "instants contacts"]
    gap_variance: Float[np.ndarray, "instants contacts"]
    before: Float[np.ndarray, "instants contacts"]
    after: Float[np.ndarray, "instants contacts"]
    rate_variance: Float[np.ndarray, "instants contacts"]

    @classmethod
    def of(cls, motions: Sequence[LocalMotion], scene: Scene) -> "_Kinematics":
        position, before, after = (
            np.stack([getattr(motion, name) for motion in motions], axis=1)
            for name in ("position", "before", "after")
        )
        rows = scene.geometry.rows
        normal = np.asarray(rows.jacobian(position))
        covariance = np.stack([motion.covariance for motion in motions], axis=1)
        of_gap = np.einsum("gckd,gk->gc", normal**2, covariance[:, :, 0, 0])
        of_rates = np.einsum(
            "gckd,gk->gc", normal**2, np.maximum(covariance[:, :, 1, 1], covariance[:, :, 2, 2])
        )
        closing, opening = (np.einsum("gckd,gkd->gc", normal, velocity) for velocity in (before, after))
        gap = np.asarray(rows.gap(position))
        return cls(normal, gap, of_gap, closing, opening, of_rates)

    def possible(self, instant: int, contact: int) -> bool:
        """Whether an impact with 0 ≤ e ≤ 1 could have these rates, up to their errors."""
        before, after = self.before[instant, contact], self.after[instant, contact]
        error = np.sqrt(self.rate_variance[instant, contact])
        slack = TOLERANCE * abs(before) + 2 * error
        resolved = error < UNRESOLVED * abs(before)
        return bool(resolved and before < 0 and after >= -slack and after <= -before + slack)


def _explained(
    event: _Event,
    kinematics: _Kinematics,
    contacts: Sequence[int],
    instant: int,
    scene: Scene,
    masses_known: bool,
) -> tuple[float, bool]:
    """χ² of the velocity changes that impulses at some contacts leave, and whether they explain them."""
    bodies = sorted({*event.jumping, *(b for j in contacts for b in scene.geometry.joined[j])})
    motions = [event.motions[body] for body in bodies]
    change = np.stack([m.after[instant] - m.before[instant] for m in motions])
    deviation = np.sqrt(np.array([m.change_variance[instant] for m in motions]))[:, None]
    mass = np.asarray(scene.masses)[bodies][:, None]
    size = float(np.linalg.norm(change))
    if size == 0:  # no samples on one side
        return 0.0, False
    columns, tangents = [], []
    for j in contacts:
        normal = kinematics.normal[instant, j][bodies]
        parts = [normal / mass]
        if not masses_known and len(scene.geometry.joined[j]) == 2:
            parts = [np.where((np.arange(len(bodies)) == k)[:, None], normal, 0) for k in range(len(bodies))]
            parts = [part for part in parts if np.any(part)]
        columns += parts
        unit = normal[np.argmax(np.abs(normal).sum(axis=1))]
        signs = normal @ unit
        tangents += [signs[:, None] * along[None] / mass for along in np.linalg.svd(unit[None])[2][1:]]
    stacked = np.array([(part / deviation).ravel() for part in columns + tangents])
    # Friction is weaker than the normal impulse: a weak prior on tangential impulses.
    ridge = np.diag([0.0] * len(columns) + [1.0] * len(tangents))
    scale = np.array([np.linalg.norm(part) for part in columns + tangents])
    ridge = ridge * np.diag((scale / (ROUGH * size)) ** 2)
    target = (change / deviation).ravel()
    matrix = stacked @ stacked.T + ridge
    impulse = np.linalg.lstsq(matrix, stacked @ target, rcond=None)[0]
    left = target - impulse @ stacked
    chi = float(left @ left + impulse @ ridge @ impulse)
    remaining = float(np.linalg.norm(left.reshape(change.shape) * deviation))
    # Bodies repel each other, up to the errors: a very heavy one may seem to stay at rest.
    errors = np.sqrt(np.maximum(np.diagonal(np.linalg.pinv(matrix)), 0))
    pushing = bool((impulse > -3 * errors)[: len(columns)].all())
    plenty = chi < 9 * max(change.size, 1) or remaining < UNEXPLAINED * size
    return chi, pushing and plenty


def _places(
    events: Sequence[_Event], scene: Scene, motion: Motion, masses_known: bool, surfaces: Surfaces
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Displacements of the surfaces from where the scene says, and their scatter, for each run with events.

    The densest cluster of the gaps at all jumps that the contact alone could explain by its direction.
    """
    runs = sorted({event.run for event in events})
    if surfaces == "known":
        return {run: (np.zeros(scene.contacts), np.zeros(scene.contacts)) for run in runs}
    seen: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        kinematics = event.kinematics
        for j, joined in enumerate(scene.geometry.joined):
            best = _best_instant(event, joined)
            if (
                set(joined) & set(event.jumping)
                and kinematics.possible(best, j)
                and _explained(event, kinematics, [j], best, scene, masses_known)[1]
            ):
                key = (event.run if surfaces == "per run" else -1, j)
                error = float(np.sqrt(kinematics.gap_variance[best, j]))
                seen.setdefault(key, []).append((float(kinematics.gap[best, j]), error))
    result: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for run in runs if surfaces == "per run" else [-1]:
        shift, scatter = np.zeros(scene.contacts), np.full(scene.contacts, np.inf)
        for j in range(scene.contacts):
            if (run, j) in seen:
                gaps, errors = np.array(seen[run, j]).T
                shift[j], scatter[j] = _densest(gaps, errors, motion)
        result[run] = shift, scatter
    return result if surfaces == "per run" else dict.fromkeys(runs, result[-1])


def _densest(gaps: np.ndarray, errors: np.ndarray, motion: Motion) -> tuple[float, float]:
    """Centre and scatter of the densest cluster of gaps, with their errors as widths."""
    width = np.maximum(errors, 1e-3 * motion.length)
    density = np.exp(-0.5 * ((gaps[:, None] - gaps[None, :]) / (2 * width[None, :])) ** 2) / width[None, :]
    centre = gaps[np.argmax(density.sum(axis=1))]
    near = np.abs(gaps - centre) < 4 * np.maximum(width, np.median(width))
    centre = float(np.median(gaps[near]))
    spread = 1.4826 * float(np.median(np.abs(gaps[near] - centre))) if near.sum() > 2 else 0.0
    # With few impacts their scatter is not known, and some of it must be expected.
    return centre, max(spread, 1e-3 * motion.length)


def _best_instant(event: _Event, bodies: Sequence[int]) -> int:
    involved = {*event.jumping, *bodies}
    return int(np.argmax(sum(event.motions[body].log_likelihood for body in involved)))


def _assign(
    event: _Event,
    scene: Scene,
    motion: Motion,
    place: tuple[np.ndarray, np.ndarray],
    masses_known: bool,
) -> list[_Assignment]:
    """The contacts that explain an event: for every group of bodies that they join, the likeliest set."""
    shift, scatter = place
    kinematics = event.kinematics
    # The grid of instants is coarser than the motion: its spacing times the change of speed adds to the gap.
    coarse = np.abs(kinematics.before - kinematics.after) * GRID * event.step_size
    deviation = np.sqrt(kinematics.gap_variance + coarse**2 + np.where(np.isfinite(scatter), scatter, 0) ** 2)
    away = (kinematics.gap - shift) / np.maximum(deviation, 1e-300)
    remaining, result = set(event.jumping), []
    while remaining:
        candidates = [
            j
            for j in range(scene.contacts)
            if set(scene.geometry.joined[j]) & remaining and np.abs(away[:, j]).min() < FAR
        ]
        best: tuple[float, tuple[int, ...], int, np.ndarray] | None = None
        for count in range(1, AT_ONCE + 1):
            for contacts in combinations(candidates, count):
                bodies = {b for j in contacts for b in scene.geometry.joined[j]}
                involved = bodies | remaining if count > 1 else bodies | (remaining & bodies)
                log = sum(event.motions[b].log_likelihood for b in involved)
                log = (
                    log
                    - 0.5 * np.sum(away[:, contacts] ** 2, axis=1)
                    + event.readings[:, contacts].sum(axis=1)
                )
                instant = int(np.argmax(log))
                part = _part(event, involved)
                chi, explains = _explained(part, kinematics, contacts, instant, scene, masses_known)
                possible = count > 1 or kinematics.possible(instant, contacts[0])
                near = bool((np.abs(away[instant, contacts]) < FAR).all())
                if not (explains and possible and near):
                    continue
                smooth = sum(event.motions[b].smooth for b in involved)
                score = float(log[instant]) - smooth - 0.5 * chi - 4.0 * count
                likely = log[instant] - smooth + PRIOR > EVIDENT
                if likely and (best is None or score > best[0]):
                    best = (score, contacts, instant, log - smooth)
            if best is not None:
                break
        if best is None:
            break
        _, contacts, _, log = best
        bodies = {b for j in contacts for b in scene.geometry.joined[j]}
        result.append(_Assignment(contacts, log + PRIOR, kinematics.gap, kinematics.before, kinematics.after))
        remaining -= bodies
    unknown = [event.motions[body] for body in remaining]
    if any(motion.log_likelihood.max() - motion.smooth > BREAK for motion in unknown):
        result.append(_Assignment((), np.zeros(len(event.instants)), *[kinematics.gap] * 3))
    return result


def _part(event: _Event, bodies: set[int]) -> _Event:
    return _Event(
        event.run,
        event.jumps,
        event.mask,
        tuple(b for b in event.jumping if b in bodies),
        event.instants,
        event.motions,
        event.readings,
        event.kinematics,
        event.step_size,
    )


def _of_run(
    run: Run,
    scene: Scene,
    motion: Motion,
    assigned: Sequence[tuple[_Event, Sequence[_Assignment]]],
    jumps: Sequence[Jumps],
    mask: int,
) -> Impacts:
    shape = (len(run) - 1, scene.contacts)
    log_odds, chosen = np.full(shape, -np.inf), np.zeros(shape, bool)
    gap, before, after = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    breaks = []
    for event, assignments in assigned:
        steps = event.instants.astype(int)
        for assignment in assignments:
            if not assignment.contacts:
                breaks.append(event.step)
            best = int(np.argmax(assignment.log_odds))
            for j in assignment.contacts:
                chosen[steps[best], j] = True
                for step in np.unique(steps):
                    rows = np.flatnonzero(steps == step)
                    top = rows[np.argmax(assignment.log_odds[rows])]
                    log_odds[step, j] = assignment.log_odds[top]
                    gap[step, j] = assignment.gap[top, j]
                    before[step, j], after[step, j] = assignment.before[top, j], assignment.after[top, j]
    gaps = np.asarray(scene.geometry.gap(np.where(np.isfinite(run.position), run.position, np.nan)))
    pieces = _pieces(chosen, breaks, _resting(run, scene, chosen, after, motion, jumps, breaks))
    fitted = np.zeros(len(chosen), bool)
    for start, end in pieces:
        fitted[start : end - 1] = True
    return Impacts(
        log_odds,
        chosen & fitted[:, None],
        gap,
        before,
        after,
        np.nan_to_num(np.nanmin(gaps, axis=0)) if len(run) else np.zeros(scene.contacts),
        motion.noise,
        float(np.linalg.norm(motion.acceleration) + np.linalg.norm(motion.deviation)),
        pieces,
        np.stack([found.outlier[: len(run)] for found in jumps], axis=1),
        mask=max([mask, *(one.mask for one, found in assigned if any(a.contacts for a in found))]),
        flight=motion.acceleration,
    )


def _resting(
    run: Run,
    scene: Scene,
    chosen: np.ndarray,
    after: np.ndarray,
    motion: Motion,
    jumps: Sequence[Jumps],
    breaks: Sequence[int],
) -> Bool[np.ndarray, "samples"]:
    """Samples at which all bodies are at rest, or bounce too quickly for the sampling rate.

    After an impact with rebound speed u against an acceleration a a body returns after 2u/a. Where that takes
    fewer than `QUICK` samples, or no impact is found when it should have returned, further impacts cannot be
    told apart, up to the next impact or break.
    """
    samples, step = len(run), float(np.median(np.diff(run.time)))
    resting = np.zeros((samples, len(jumps)), bool)
    known = np.isfinite(run.position).all(axis=(1, 2))
    pull = np.zeros(scene.contacts)
    if scene.contacts and known.any():
        # Towards the surface; two bodies are pulled alike, and do not return to each other.
        rows = np.asarray(scene.geometry.jacobian(run.position[int(np.argmax(known))]))
        pull = -np.einsum("ckd,d->c", rows, motion.acceleration)
    pull = np.where(pull > 2 * float(np.linalg.norm(motion.deviation)), pull, 0.0)
    back = np.where(chosen & (pull > 0), 2 * after / np.maximum(pull, 1e-300) / step, np.inf)
    for body, found in enumerate(jumps):
        own = [j for j, joined in enumerate(scene.geometry.joined) if body in joined]
        hits, still = np.flatnonzero(chosen[:, own].any(axis=1)), found.step[found.rest]
        ends = sorted({*hits.tolist(), *still.tolist(), *breaks})
        for at, end in pairwise([*ends, samples - 1]):
            returns = back[at, own].min(initial=np.inf)
            if at in still or returns < QUICK or (resting[at, body] and end - at < QUICK):
                resting[at + 1 : end + 1, body] = True
            elif end - at > 1.5 * returns + 2 * REACH:
                # The ascent determines the rebound; how long the flight lasts is what is not known.
                ascent = int(0.5 * returns) if returns > 2 * QUICK else 0
                resting[at + 1 + ascent : end + 1, body] = True
    together = np.asarray(resting.all(axis=1))
    # Bodies that turn round in a contact of finite duration are not at rest.
    edges = np.flatnonzero(np.diff(np.pad(together, 1).astype(int)))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        together[start:end] = end - start >= SHORTEST
    return together


def _pieces(
    chosen: Bool[np.ndarray, "steps contacts"], breaks: Sequence[int], resting: Bool[np.ndarray, "samples"]
) -> tuple[tuple[int, int], ...]:
    """Parts of a run between breaks, without the samples at rest.

    A part without impacts beside others with impacts is left out: most often a hand moves the body there.
    """
    samples = len(resting)
    label = np.zeros(samples, int)
    for step in breaks:
        label[step + 1 :] += 1
    label = np.where(resting, -1, label)
    edges = np.flatnonzero(np.diff(label)) + 1
    starts, ends = np.concatenate([[0], edges]), np.concatenate([edges, [samples]])
    found = [(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if label[a] >= 0]
    found = [(a, b) for a, b in found if b - a >= SHORTEST] or [(0, samples)]
    hit = [(a, b) for a, b in found if chosen[a : b - 1].any()]
    return tuple(hit or found)
