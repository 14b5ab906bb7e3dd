"""Impact detection for recordings of any kind.

Long runs are searched window by window, short runs as a whole. If the error rates of a touch sensor are not
known, they are estimated in alternation with the impacts.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from carom.data import Recording, Run
from carom.estimation.detection.impacts import Impacts, find_impacts, resolved
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
    surfaces_known: bool = False,
    rough: bool = False,
    mask: int = 0,
) -> Detected:
    """Detect the impacts of every run of a recording, whose scene names the candidate contacts.

    Arguments:
        sensor: error rates of the touch sensor, None to ignore its readings. Rates that are None are
            estimated in alternation with the impacts, starting from those that the motion shows without
            readings, until the impacts no longer change.
        masses_known: whether the ratio of the velocity jumps of two bodies is known.
        surfaces_known: whether the positions of the surfaces in the scene are exact.
        rough: whether there is friction.
        mask: samples either side of an impact to ignore, for contacts of finite duration.
    """
    scene = recording.scene
    assert scene is not None
    if short(recording) and sensor is None:
        found = find_in_short_runs(
            recording.runs,
            scene,
            masses_known=masses_known,
            surfaces_known=surfaces_known,
            rough=rough,
        )
        return Detected(found, None)
    return Detected(*_infer(recording, scene, sensor, masses_known=masses_known, mask=mask))


def _infer(
    recording: Recording,
    scene: Scene,
    sensor: TouchSensor | None,
    *,
    masses_known: bool,
    mask: int = 0,
) -> tuple[list[Impacts], SensorEstimate | None]:
    def find(sensor: TouchSensor | None) -> list[Impacts]:
        search = partial(find_impacts, scene=scene, sensor=sensor, masses_known=masses_known, mask=mask)
        return [search(run) for run in recording.runs]

    if sensor is None or sensor.known:
        return find(sensor), None
    delays = DELAYS if sensor.delay is None else (sensor.delay,)
    impacts, estimate = find(None), None
    for _ in range(SENSOR_ROUNDS):
        shift, _ = first_guess(impacts, recording)
        counts = [
            count_readings(run, found, scene, _in_motion(run, found, shift), delays)
            for run, found in zip(recording.runs, impacts, strict=True)
        ]
        estimate = estimate_rates(sensor, counts)
        before, impacts = impacts, find(estimate.sensor)
        if all((a.chosen == b.chosen).all() for a, b in zip(before, impacts, strict=True)):
            break
    return impacts, estimate


def _in_motion(run: Run, found: Impacts, shift: np.ndarray) -> np.ndarray:
    """Samples up to the last impact, and later ones away from surfaces, where no body can be at rest."""
    steps = np.flatnonzero(found.chosen.any(axis=1))
    last = steps[-1] + 1 + max(DELAYS) if len(steps) else 0
    return resolved(run, found, shift) | (np.arange(len(run)) <= last)


def short(recording: Recording) -> bool:
    """Whether all runs are so short that each is searched for impacts as a whole."""
    return max(len(run) for run in recording.runs) <= LONGEST


def first_guess(impacts: Sequence[Impacts], recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Initial guesses from the detected impacts: displacement of the surfaces, and restitution."""
    scene = recording.scene
    assert scene is not None
    shift, restitution = np.zeros(scene.contacts), np.full(scene.contacts, scene.restitution)
    for j in range(scene.contacts):
        gaps = np.concatenate([found.gap[found.chosen[:, j], j] for found in impacts])
        ratios = [-(f.after[f.chosen[:, j], j] / f.before[f.chosen[:, j], j]) for f in impacts]
        if not len(gaps):
            # Without impacts the surface must lie beyond the smallest gap that occurs.
            least = min(float(found.smooth_gap[:, j].min()) for found in impacts)
            shift[j] = min(0.0, least - 5 * max(float(found.noise[0]) for found in impacts))
        else:
            shift[j] = np.median(gaps)
            # Values of exactly 0 or 1 would start the estimation on a bound.
            restitution[j] = np.clip(np.median(np.concatenate(ratios)), 0.05, 0.99)
    return shift, restitution
