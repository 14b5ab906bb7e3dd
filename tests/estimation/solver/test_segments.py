"""Which samples of a run can be foretold, against the closed form of a ball that bounces ever faster."""

import numpy as np
import pytest

import carom
from carom.estimation.detection.impacts import find_impacts
from carom.estimation.solver.segments import resolved

STEP = 0.02


@pytest.mark.parametrize("restitution", [0.6, 0.8])
@pytest.mark.parametrize("noise", [0.002, 0.02])
def test_nothing_counts_after_bounces_too_fast_to_tell_apart(restitution, noise):
    ball = carom.systems.BouncingBall(restitution=restitution)
    recording = carom.simulate(ball, steps=500, step_size=STEP, noise=noise, seed=4)
    assert recording.scene is not None
    (run,) = recording.runs
    found = find_impacts(run, recording.scene, sensor=None)
    clear = resolved(run, found, np.zeros(1))
    # After the n-th bounce the flight lasts 2 eⁿ √(2H/g); from some bounce on that is too short.
    fall = np.sqrt(2 * float(ball.start.position[0, 0]) / ball.gravity)
    flights = 2 * fall * restitution ** np.arange(1, 40)
    bounces = fall + np.concatenate([[0], np.cumsum(flights)])
    too_fast = bounces[:-1][flights < found.spacing * STEP]
    assert not clear[run.time > too_fast[1]].any()
    assert clear[run.time < bounces[2]].all()
