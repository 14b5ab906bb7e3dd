"""Events: velocity jumps that belong together, assigned to the candidate contacts of a scene.

Jumps of several bodies in the same step belong together. A contact explains them if its gap vanishes there
within its uncertainty, if it closed before and opens no faster after (0 ≤ e ≤ 1), and if impulses along its
normal, with friction, reproduce the velocity changes of its bodies. Several contacts may act at once, as in
Newton's cradle or in a corner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from jaxtyping import Float

from carom.data import Run
from carom.estimation.detection.local_motion import INSTANTS, LocalMotion, fit_around, grid_around
from carom.estimation.detection.switching_filter import Jumps, Motion
from carom.estimation.detection.touch_sensor import STRONGEST
from carom.estimation.detection.velocity_jumps import HAZARD
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
WEAK = 0.05
"""Velocity jump, relative to the root-mean-square speed, up to which it is misfit however evident."""
LONGER = 3
"""Greatest duration of a contact, in multiples of the mask."""
AT_ONCE = 3
"""Greatest number of contacts in one impact."""


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


@dataclass(frozen=True, eq=False)
class Event:
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
    kinematics: _Kinematics
    step_size: float

    @property
    def step(self) -> int:
        return _middle(self.jumps)


@dataclass(frozen=True, eq=False)
class Assignment:
    """Contacts that explain an event, with the gap, its rates and the log-odds at every instant."""

    contacts: tuple[int, ...]
    log_odds: Float[np.ndarray, "instants"]
    gap: Float[np.ndarray, "instants contacts"]
    before: Float[np.ndarray, "instants contacts"]
    after: Float[np.ndarray, "instants contacts"]


def group_jumps(
    index: int,
    run: Run,
    jumps: Sequence[Jumps],
    scene: Scene,
    motion: Motion,
    readings: np.ndarray,
    mask: int,
) -> list[Event]:
    """Group the jumps of all bodies by their steps, and fit the motion of every body around each group."""
    listed = sorted((int(step), body) for body, found in enumerate(jumps) for step in found.step)
    groups: list[list[tuple[int, int]]] = []
    for step, body in listed:
        # With a mask, the two ends of a lasting contact are one impact.
        if groups and step - groups[-1][0][0] <= max(TOGETHER, 2 * mask):
            groups[-1].append((step, body))
        else:
            groups.append([(step, body)])
    return [make_event(index, run, group, jumps, scene, motion, readings, mask) for group in groups]


def make_event(
    index: int,
    run: Run,
    group: Sequence[tuple[int, int]],
    jumps: Sequence[Jumps],
    scene: Scene,
    motion: Motion,
    readings: np.ndarray,
    mask: int,
) -> Event:
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
    return Event(index, tuple(group), mask, bodies, instants, motions, near, kinematics, step_size)


def _middle(jumps: Sequence[tuple[int, int]]) -> int:
    return round(0.5 * (jumps[0][0] + jumps[-1][0]))


def locate_surfaces(
    events: Sequence[Event], scene: Scene, motion: Motion, masses_known: bool, surfaces: Surfaces
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


def _best_instant(event: Event, bodies: Sequence[int]) -> int:
    involved = {*event.jumping, *bodies}
    return int(np.argmax(sum(event.motions[body].log_likelihood for body in involved)))


def assign_contacts(
    event: Event,
    scene: Scene,
    motion: Motion,
    place: tuple[np.ndarray, np.ndarray],
    masses_known: bool,
) -> list[Assignment]:
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
        result.append(Assignment(contacts, log + PRIOR, kinematics.gap, kinematics.before, kinematics.after))
        remaining -= bodies
    if any(_breaks(event.motions[body], motion) for body in remaining):
        result.append(Assignment((), np.zeros(len(event.instants)), *[kinematics.gap] * 3))
    return result


def _breaks(local: LocalMotion, motion: Motion) -> bool:
    """Whether a jump of unknown cause ends the motion before it."""
    best = int(np.argmax(local.log_likelihood))
    change = float(np.linalg.norm(local.after[best] - local.before[best]))
    return bool(local.log_likelihood[best] - local.smooth > BREAK and change > WEAK * motion.speed)


def _explained(
    event: Event,
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


def _part(event: Event, bodies: set[int]) -> Event:
    return Event(
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


def merge_lasting(
    pairs: Sequence[tuple[Event, list[Assignment]]],
    mask: int,
    together: Callable[[list[tuple[int, int]], Event, int], Event],
    assigned: Callable[[Event], list[Assignment]],
) -> list[tuple[Event, list[Assignment]]]:
    """Successive events that nothing explains as one, if a contact that lasts longer than most explains them.

    The slower bodies meet, the longer soft ones touch.
    """

    def unexplained(found: Sequence[Assignment]) -> bool:
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
