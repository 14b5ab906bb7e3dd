"""The oracle finds the true parameters, as well as the noise allows."""

from dataclasses import replace

import numpy as np
import pytest

from carom.data import simulate
from carom.errors import InputError
from carom.evaluation import fit_oracle, paper_rmse
from carom.systems import BouncingBall, NewtonsCradle, Pendulum

CASES = {
    "ball": (BouncingBall(), {"steps": 500, "step_size": 0.02}, 0.2, 0.02),
    "pendulum": (Pendulum(), {"steps": 200, "step_size": 0.02}, 0.2, 0.05),
    "cradle": (NewtonsCradle(), {"steps": 540, "step_size": 0.01}, 0.02, 0.002),
}


@pytest.mark.parametrize(
    "name", ["ball", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("pendulum", "cradle"))]
)
def test_gravity_from_noisy_data(name):
    """The error of the best possible learner: the figures of the oracle over noise seeds, with a margin."""
    system, sampling, noise, worst = CASES[name]
    clean = simulate(system, **sampling).runs[0]
    for seed in range(3):
        recording = simulate(system, **sampling, noise=noise, seed=seed)
        fit = fit_oracle(system, recording, bounds={"gravity": (9.0, 10.6)})
        best = simulate(fit.system, **sampling).runs[0]
        assert paper_rmse(best, clean) < worst
        expected = fit.squared_error / (2 * recording.samples * recording.bodies)
        assert np.sqrt(expected) == pytest.approx(noise, rel=0.1)


def test_two_parameters_at_once():
    ball = BouncingBall(restitution=0.83)
    recording = simulate(ball, steps=300, step_size=0.02, noise=0.1, seed=1)
    fit = fit_oracle(
        BouncingBall(), recording, bounds={"gravity": (9.0, 10.6), "restitution": (0.5, 1.0)}, grid=21
    )
    assert fit.parameters["gravity"] == pytest.approx(9.81, abs=0.02)
    assert fit.parameters["restitution"] == pytest.approx(0.83, abs=0.005)


def test_noise_free_scheme_data_gives_the_truth_back():
    cradle = NewtonsCradle(gravity=9.6)
    recording = simulate(cradle, steps=250, step_size=0.01, truth="scheme")

    def solve(candidate, start, steps):
        return candidate.scheme(start, steps=steps, step_size=0.01)

    fit = fit_oracle(NewtonsCradle(), recording, bounds={"gravity": (9.0, 10.6)}, solve=solve)
    assert fit.parameters["gravity"] == pytest.approx(9.6, abs=1e-3)


def test_missing_values_are_left_out_and_varying_steps_refused():
    recording = simulate(BouncingBall(), steps=300, step_size=0.02, noise=0.1, seed=2)
    (run,) = recording.runs
    assert run.velocity is not None
    lost = np.random.default_rng(2).random((2, *run.position.shape)) < 0.3
    position, velocity = (
        np.where(gone, np.nan, x) for gone, x in zip(lost, (run.position, run.velocity), strict=True)
    )
    holey = replace(recording, runs=(replace(run, position=position, velocity=velocity),))
    fit = fit_oracle(BouncingBall(), holey, bounds={"gravity": (9.0, 10.6)})
    assert fit.parameters["gravity"] == pytest.approx(9.81, abs=0.02)
    assert fit.squared_error == pytest.approx(0.01 * (~lost).sum(), rel=0.2)

    varying = replace(recording, runs=(replace(run, time=run.time**1.1),))
    with pytest.raises(InputError, match="constant step"):
        fit_oracle(BouncingBall(), varying, bounds={"gravity": (9.0, 10.6)})


def test_unknown_parameters_are_refused():
    recording = simulate(Pendulum(), steps=20, step_size=0.02)
    with pytest.raises(InputError, match="gravity"):
        fit_oracle(Pendulum(), recording, bounds={"gravitas": (9.0, 10.6)})
