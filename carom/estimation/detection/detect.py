"""Impact detection for recordings of any kind.

Long runs are searched window by window, short runs as a whole. If the error rates of a touch sensor are not
known, they are estimated in alternation with the impacts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from carom.data import Recording, Run
from carom.estimation.detection.events import Surfaces
from carom.estimation.detection.impacts import Impacts, find_impacts
from carom.estimation.detection.sensor_rates import DELAYS, SensorEstimate, count_readings, estimate_rates
from carom.estimation.detection.short_runs import LONGEST, find_in_short_runs
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.mechanics import Scene

SENSOR_ROUNDS = 6
"""Greatest number of alternations between impacts and sensor rates."""


class Detected(NamedTuple):
    """Impacts of every run with their log-odds, and the estimated error rates of the touch sensor."""

    impacts: list[Impacts]
    sensor: SensorEstimate | None


def detect_impacts(
    recording: Recording,
    *,
    sensor: TouchSensor | None = None,
    masses_known: bool = True,
    surfaces: Surfaces = "common",
    rough: bool = False,
    mask: int | None = 0,
) -> Detected:
    """Detect the impacts of every run of a recording, whose scene names the candidate contacts.

    Arguments:
        sensor: error rates of the touch sensor, None to ignore its readings. Rates that are None are
            estimated in alternation with the impacts, starting from those that the motion shows without
            readings, until the impacts no longer change.
        masses_known: whether the ratio of the velocity jumps of two bodies is known.
        surfaces: whether the surfaces lie where the scene says, elsewhere, or elsewhere in each run.
        rough: whether there is friction.
        mask: samples either side of an impact to ignore, for contacts of finite duration; None to choose it.
    """
    scene = recording.scene
    assert scene is not None
    if short(recording) and sensor is None:
        found = find_in_short_runs(
            recording.runs,
            scene,
            masses_known=masses_known,
            surfaces_known=surfaces == "known",
            rough=rough,
        )
        return Detected(found, None)
    find = partial(
        find_impacts,
        recording.runs,
        scene,
        masses_known=masses_known,
        surfaces=surfaces,
        mask=mask,
    )
    return Detected(*_infer(recording, scene, sensor, find))


def _infer(
    recording: Recording,
    scene: Scene,
    sensor: TouchSensor | None,
    find: Callable[..., list[Impacts]],
) -> tuple[list[Impacts], SensorEstimate | None]:
    if sensor is None or sensor.known:
        return find(sensor=sensor), None
    delays = DELAYS if sensor.delay is None else (sensor.delay,)
    impacts, estimate = find(sensor=None), None
    for _ in range(SENSOR_ROUNDS):
        counts = [
            count_readings(run, found, scene, _in_motion(run, found), delays)
            for run, found in zip(recording.runs, impacts, strict=True)
        ]
        estimate = estimate_rates(sensor, counts)
        before, impacts = impacts, find(sensor=estimate.sensor)
        if all((a.chosen == b.chosen).all() for a, b in zip(before, impacts, strict=True)):
            break
    return impacts, estimate


def _in_motion(run: Run, found: Impacts) -> np.ndarray:
    """Samples at which not all bodies are at rest."""
    moving = np.zeros(len(run), bool)
    for start, end in found.pieces:
        moving[start:end] = True
    return moving


def short(recording: Recording) -> bool:
    """Whether all runs are so short that each is searched for impacts as a whole."""
    return max(len(run) for run in recording.runs) <= LONGEST


def _durations(impacts: Sequence[Impacts], restitution: np.ndarray) -> np.ndarray:
    """How long contacts last: the faster bodies meet, the deeper do their paths before and after meet.

    Arguments:
        impacts: of all runs.
        restitution: of every contact.
    """
    durations = np.zeros(len(restitution))
    for j, e in enumerate(restitution):
        gap, closing = (
            np.concatenate([part[found.chosen[:, j], j] for found, part in parts])
            for parts in ([(f, f.gap) for f in impacts], [(f, -f.before) for f in impacts])
        )
        if len(gap) > 2 and np.ptp(closing) > 0:
            durations[j] = max(-_median_slope(closing, gap) * (1 + e) / max(e, 0.05), 0.0)
    return durations


def _median_slope(x: np.ndarray, y: np.ndarray) -> float:
    """Theil and Sen's: the median of the slopes between all points."""
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    use = np.abs(apart) > 0.1 * np.ptp(x)
    return float(np.median((y[second] - y[first])[use] / apart[use]))


def first_guess(
    impacts: Sequence[Impacts], recording: Recording, *, lasting: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Initial guesses from the detected impacts: displacement of the surfaces, restitution, duration.

    Contacts are instantaneous unless they are `lasting`.
    """
    scene = recording.scene
    assert scene is not None
    shift, restitution = np.zeros(scene.contacts), np.full(scene.contacts, scene.restitution)
    for j in range(scene.contacts):
        gaps = np.concatenate([found.gap[found.chosen[:, j], j] for found in impacts])
        # Contacts that an impact passes through, as in Newton's cradle, need not have been closing.
        closing = [f.chosen[:, j] & (f.before[:, j] < 0) for f in impacts]
        ratios = [-(f.after[one, j] / f.before[one, j]) for f, one in zip(impacts, closing, strict=True)]
        if not len(gaps):
            # Without impacts the surface must lie beyond the smallest gap that occurs.
            least = min(float(found.least_gap[j]) for found in impacts)
            shift[j] = min(0.0, least - 5 * max(float(found.noise[0]) for found in impacts))
        else:
            shift[j] = np.median(gaps)
            # Values of exactly 0 or 1 would start the estimation on a bound.
            known = np.concatenate(ratios)
            restitution[j] = np.clip(np.median(known) if len(known) else scene.restitution, 0.05, 0.99)
    if not lasting:
        return shift, restitution, np.zeros(scene.contacts)
    durations = _durations(impacts, restitution)
    for j, delay in enumerate(restitution / (1 + restitution) * durations):
        depths = np.concatenate([-found.before[found.chosen[:, j], j] for found in impacts]) * delay
        shift[j] += np.median(depths) if len(depths) else 0.0
    return shift, restitution, durations
