"""Impacts: velocity jumps assigned to the candidate contacts of a scene.

The velocity jumps of all bodies are detected without regard to the scene, and grouped into events, which
contacts explain (`events.py`). A jump that no contact explains breaks the motion: a hand, a lost track, a
swap of two bodies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.estimation.detection.events import (
    Assignment,
    Event,
    Surfaces,
    assign_contacts,
    group_jumps,
    locate_surfaces,
    make_event,
    merge_lasting,
)
from carom.estimation.detection.local_motion import REACH
from carom.estimation.detection.switching_filter import Jumps, Motion
from carom.estimation.detection.touch_sensor import STRONGEST, TouchSensor
from carom.estimation.detection.velocity_jumps import detect_velocity_jumps, sequences
from carom.mechanics import Scene

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
LEAST_FLIGHT, ENOUGH_FLIGHTS = 5, 3
"""Samples of a flight, and flights, from which on an acceleration is measured."""


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
    width: int = 1
    """Samples over which a tracker has smoothed the positions, 1 if it has not."""
    flight: Float[np.ndarray, "dimension"] | None = None
    """The acceleration between impacts, where it was measured."""


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

    def assign(mask: int, *, lasting: bool = False) -> tuple[list[tuple[Event, list[Assignment]]], float]:
        """Events with the contacts that explain them, and the fraction that none explains."""
        events = [
            event
            for index, (run, found) in enumerate(zip(runs, by_run, strict=True))
            for event in group_jumps(index, run, found, scene, motion, readings[index], mask)
        ]
        places = locate_surfaces(events, scene, motion, masses_known, surfaces)

        def assigned(event: Event) -> list[Assignment]:
            place = places[event.run]
            if event.mask > mask:  # a contact that lasts longer may be the first with this surface
                alone = locate_surfaces([event], scene, motion, masses_known, surfaces)[event.run]
                known = np.isfinite(place[1])
                place = np.where(known, place[0], alone[0]), np.where(known, place[1], alone[1])
            return assign_contacts(event, scene, motion, place, masses_known)

        def together(jumps: list[tuple[int, int]], event: Event, mask: int) -> Event:
            found = by_run[event.run]
            return make_event(
                event.run, runs[event.run], jumps, found, scene, motion, readings[event.run], mask
            )

        pairs = [(one, assigned(one)) for one in events]
        pairs = merge_lasting(pairs, mask, together, assigned) if lasting else pairs
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
    runs: Sequence[Run], assigned: Sequence[tuple[Event, list[Assignment]]], motion: Motion
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


def _of_run(
    run: Run,
    scene: Scene,
    motion: Motion,
    assigned: Sequence[tuple[Event, Sequence[Assignment]]],
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
        width=motion.width,
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
