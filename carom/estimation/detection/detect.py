"""The one entry to impact detection, whatever the recording is like.

Long runs are searched window by window; of many short runs, each is searched as a whole. A touch sensor whose
rates are not known is estimated in turn with the impacts that its readings help to find.
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
"""How often impacts and the rates of a sensor are estimated in turn, at most."""


class Detected(NamedTuple):
    """Impacts of every run with their log-odds, and what was estimated of the touch sensor."""

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
    """The impacts of every run of a recording, whose scene names the candidate contacts.

    Arguments:
        sensor: how touch readings relate to impacts: a perfect one where they are observed, None where they
            are ignored. What it does not state is estimated in turn with the impacts, beginning with those
            that the motion alone shows, until these no longer change.
        masses_known: whether the share of each body in a velocity jump is known.
        surfaces_known: whether surfaces are where the scene has them.
        rough: whether there is friction.
        mask: samples either side of an impact that do not tell when it was, for contacts that last.
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
    """Samples that do not follow the last impact near a surface, where a body may have come to rest."""
    steps = np.flatnonzero(found.chosen.any(axis=1))
    last = steps[-1] + 1 + max(DELAYS) if len(steps) else 0
    return resolved(run, found, shift) | (np.arange(len(run)) <= last)


def short(recording: Recording) -> bool:
    """Whether all runs are so short that impacts are searched for in each as a whole."""
    return max(len(run) for run in recording.runs) <= LONGEST


def first_guess(impacts: Sequence[Impacts], recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """How far surfaces lie from where they are stated, and restitution, from the impacts that were found."""
    scene = recording.scene
    assert scene is not None
    shift, restitution = np.zeros(scene.contacts), np.full(scene.contacts, scene.restitution)
    for j in range(scene.contacts):
        gaps = np.concatenate([found.gap[found.chosen[:, j], j] for found in impacts])
        ratios = [-(f.after[f.chosen[:, j], j] / f.before[f.chosen[:, j], j]) for f in impacts]
        if not len(gaps):
            # No impact was seen: the surface lies out of reach of what was.
            reach = min(float(found.smooth_gap[:, j].min()) for found in impacts)
            shift[j] = min(0.0, reach - 5 * max(float(found.noise[0]) for found in impacts))
        else:
            shift[j] = np.median(gaps)
            restitution[j] = np.clip(np.median(np.concatenate(ratios)), 0.05, 0.99)
    return shift, restitution
