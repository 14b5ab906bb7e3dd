"""What projection does to the cradle's energy, measured on the scheme.

Two balls, e = 1, half grid, energy 2, the first 20 impacts; exact physics has the 20th at 20.61 s. "Resting"
is the energy of the ball that should hang still, in mid-swing; "drift" is the change of the total energy,
averaged over a swing, from before the first impact to before the 20th.

| h     | projection      | resting, after 1 | before the 20th | drift   | 20th impact |
|-------|-----------------|------------------|-----------------|---------|-------------|
| 0.01  | none            | 1.9e-3           | 1.4e-2          | 5e-6    | 20.64 s     |
| 0.01  | inverse_mass    | 4.8e-4           | 7.0e-3          | 1.3e-3  | 20.63 s     |
| 0.01  | reference_point | 0                | 0               | 5.3e-4  | 20.80 s     |
| 0.005 | none            | 4.6e-4           | 6.7e-3          | 1e-6    | 20.63 s     |
| 0.005 | inverse_mass    | 1.1e-4           | 2.7e-3          | 3.2e-4  | 20.62 s     |
| 0.005 | reference_point | 0                | 0               | 3.0e-4  | 20.70 s     |

So no mode wins everywhere: without projection the total is kept best and the resting ball worst; the
reference point keeps the resting ball at exactly zero, at a small drift of the total and the worst clock
(both balls restart from angle 0 at a sample, which rounds every half period up).
"""

import numpy as np
import pytest

from carom.systems import NewtonsCradle


def measure(projection, h):
    cradle = NewtonsCradle()
    motion = cradle.scheme(cradle.start, steps=round(21.5 / h), step_size=h, projection=projection)
    angle, rate = motion.position[:, :, 0], motion.velocity[:, :, 0]
    energy = 0.5 * rate**2 + 9.81 * (1 - np.cos(angle))
    impacts = np.flatnonzero(motion.contact[:, 0])[:20]
    middle = (impacts[:-1] + impacts[1:]) // 2
    resting = energy.min(axis=1)[middle]
    total = energy.sum(axis=1)
    drift = total[impacts[-2] + 1 : impacts[-1]].mean() - total[: impacts[0]].mean()
    return resting, drift, impacts[-1] * h


@pytest.fixture(scope="module")
def measured():
    return {mode: measure(mode, 0.01) for mode in ("none", "inverse_mass", "reference_point")}


def test_reference_point_keeps_the_resting_ball_at_rest(measured):
    resting, drift, _ = measured["reference_point"]
    np.testing.assert_array_equal(resting, 0.0)
    assert 0 < drift < 2e-3


def test_overlap_wakes_the_resting_ball_without_projection(measured):
    resting, drift, _ = measured["none"]
    assert 1e-3 < resting[0] < 3e-3
    assert resting[-1] > 5 * resting[0]
    assert abs(drift) < 5e-5


def test_inverse_mass_lies_between(measured):
    resting, drift, _ = measured["inverse_mass"]
    assert 3e-4 < resting[0] < 7e-4
    assert resting[-1] < 0.7 * measured["none"][0][-1]
    assert 0 < drift < 3e-3


def test_the_clock(measured):
    """Two modes are on time to 0.05 s in 20 s; the reference point is late by up to h per impact."""
    for mode in ("none", "inverse_mass"):
        assert abs(measured[mode][2] - 20.61) < 0.05
    assert 0.1 < measured["reference_point"][2] - 20.61 < 20 * 0.01


def test_everything_shrinks_with_the_step(measured):
    for mode in ("none", "inverse_mass"):
        resting, _, _ = measure(mode, 0.005)
        assert resting[0] < 0.5 * measured[mode][0][0]
