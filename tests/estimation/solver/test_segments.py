"""Parts of a run that are fitted, against the closed form of a ball that bounces ever faster."""

import numpy as np
import pytest

import carom
from carom.estimation.detection.impacts import QUICK, find_impacts
from carom.estimation.solver.segments import partition

STEP = 0.02


@pytest.mark.parametrize("restitution", [0.6, 0.8])
@pytest.mark.parametrize("noise", [0.002, 0.02])
def test_bounces_too_quick_to_tell_apart_are_not_fitted(restitution, noise):
    ball = carom.systems.BouncingBall(restitution=restitution)
    recording = carom.simulate(ball, steps=500, step_size=STEP, noise=noise, seed=4)
    assert recording.scene is not None
    (found,) = find_impacts(recording.runs, recording.scene)
    # After the n-th bounce the flight lasts 2 eⁿ √(2H/g); from some bounce on that is too short.
    fall = np.sqrt(2 * float(ball.start.position[0, 0]) / ball.gravity)
    flights = 2 * fall * restitution ** np.arange(1, 40)
    bounces = fall + np.concatenate([[0], np.cumsum(flights)])
    too_quick = bounces[:-1][flights < QUICK * STEP]
    last = STEP * found.pieces[-1][1]
    assert bounces[3] < last < too_quick[1]


def test_every_sample_of_every_part_is_in_one_segment():
    recording = carom.simulate(carom.systems.BouncingBall(), steps=150, step_size=STEP, noise=0.02, seed=4)
    found = find_impacts(recording.runs, recording.scene)
    for length in (7, 40, None):
        parts = partition(found, length)
        samples = np.concatenate(
            [np.arange(start, start + size) for start, size in zip(parts.sample, parts.size, strict=True)]
        )
        np.testing.assert_array_equal(np.sort(samples), np.arange(151))
