"""The recipe `carom` end to end: parameters within their errors, and what is not determined."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.data import Recording, Run, disturb_touch
from carom.estimation import Settings, fit_recordings
from carom.mechanics import Pair, Scene, Wall
from carom.types import State
from tests.campaign import shortened

RESTITUTION = ("restitution", "surfaces")
SMALL = Settings(learn=RESTITUTION, hidden=8, starts=1, horizons=(100,))
"""A small network from one start, in two stages: few programs to compile, which several tests share."""


def ball(seed: int, *, restitution: float = 0.8, steps: int = 250, noise: float = 0.1) -> Recording:
    system = carom.systems.BouncingBall(restitution=restitution)
    return carom.simulate(system, steps=steps, step_size=0.02, noise=noise, seed=seed)


def assert_within(parameter, truth: float, errors: float = 4.0) -> None:
    assert parameter.value is not None
    assert abs(parameter.value - truth) < errors * parameter.standard_error, parameter.words


@pytest.fixture(scope="module")
def plain():
    return carom.fit(ball(3), learn=RESTITUTION)


def test_restitution_floor_and_noise_without_touch(plain):
    restitution, surface = plain.parameters
    assert_within(restitution, 0.8)
    assert_within(surface, 0.0)
    assert restitution.standard_error < 0.005
    np.testing.assert_allclose(plain.noise, 0.1, rtol=0.15)
    assert not plain.diagnostics.messages
    assert plain.by_gap
    assert not plain.failed


@pytest.mark.parametrize("unit", shortened([1.0, 1e-4], [1e-4]))  # in metres, in tenths of millimetres
def test_exact_data_are_no_reason_to_doubt(unit):
    """Without any noise the noise that is left is a small share of the data, whatever their unit."""
    exact = ball(0, restitution=0.9, noise=0.0)
    (run,) = exact.runs
    assert run.velocity is not None
    position, velocity = run.position * unit + 2 * unit, run.velocity * unit
    fit = carom.fit(
        replace(exact, runs=(replace(run, position=position, velocity=velocity),)), learn=RESTITUTION
    )
    restitution, surface = fit.parameters
    assert restitution.value == pytest.approx(0.9, abs=1e-5)
    assert surface.value == pytest.approx(2 * unit, abs=1e-4 * unit)
    assert not fit.failed
    assert fit.by_gap
    assert not fit.diagnostics.messages
    assert fit.noise[0] < 1e-4 * unit
    forecast = carom.forecast(
        fit.model, State(*(jnp.asarray(part[0], jnp.float32) for part in (position, velocity))), steps=250
    )
    np.testing.assert_allclose(forecast.position, position, atol=2e-3 * unit)


@pytest.mark.campaign
def test_several_recordings_together_are_each_as_if_alone(plain):
    together = fit_recordings([ball(4), ball(3)], Settings(learn=RESTITUTION), seeds=[1, 0])
    assert together[1].parameters[0].value == pytest.approx(plain.parameters[0].value, abs=2e-4)
    assert_within(together[0].parameters[0], 0.8)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [100, 101])
def test_twenty_bounces_are_followed_to_the_end(seed):
    """Segments that grew from 20 samples to 2000 at once lost their phase, and the fit its optimum."""
    fit = carom.fit(ball(seed, restitution=1.0, steps=2854, noise=0.2))
    assert fit.model.stepper.name == "constraint_exact"
    assert fit.by_gap
    np.testing.assert_allclose(fit.noise, 0.2, rtol=0.05)
    (surface,) = fit.parameters
    assert_within(surface, 0.0)


def test_segments_grow_by_whole_numbers():
    with pytest.raises(carom.InputError, match="multiple of the previous"):
        carom.fit(ball(0), settings=Settings(horizons=(20, 50)))


def test_missing_samples_are_left_out():
    generator = np.random.default_rng(8)
    run = ball(5).runs[0]
    assert run.velocity is not None
    position = np.where(generator.random(run.position.shape) < 0.2, np.nan, run.position)
    velocity = np.where(generator.random(run.position.shape) < 0.3, np.nan, run.velocity)
    holey = replace(ball(5), runs=(replace(run, position=position, velocity=velocity),))
    assert_within(carom.fit(holey, settings=SMALL).parameters[0], 0.8)


def uneven(seed: int, *, jitter: float = 0.4, steps: int = 250, noise: float = 0.1) -> Recording:
    """The ball at times that are up to `jitter` steps early or late."""
    generator, system = np.random.default_rng(seed), carom.systems.BouncingBall(restitution=0.8)
    time = 0.02 * (np.arange(steps + 1) + jitter * generator.uniform(-1, 1, steps + 1))
    motion = system.exact(system.start, time)
    position, velocity = (
        x + noise * generator.standard_normal(x.shape) for x in (motion.position, motion.velocity)
    )
    return Recording((Run(time, position, velocity),), 0.02, system.scene(velocity_grid="half"))


def test_steps_may_vary():
    fit = carom.fit(uneven(9), settings=SMALL)
    for parameter, truth in zip(fit.parameters, (0.8, 0.0), strict=True):
        assert_within(parameter, truth)
    assert fit.model.stepper.name == "constraint_exact"
    np.testing.assert_allclose(fit.noise, 0.1, rtol=0.15)


def test_the_cd_lagrange_step_needs_a_constant_step():
    with pytest.raises(carom.InputError, match="constant time between samples"):
        carom.fit(uneven(9), settings=Settings(stepper="cd_lagrange"))


@pytest.mark.parametrize("touch", ["observed", "imperfect"])
def test_touch_perfect_or_not(touch):
    recording = ball(6)
    if touch == "imperfect":
        recording = disturb_touch(recording, missed=0.1, false=0.01, shift=1, seed=6)
    fit = carom.fit(recording, settings=replace(SMALL, touch=touch))
    assert_within(fit.parameters[0], 0.8)
    rates = fit.parameters[2:]
    assert len(rates) == (3 if touch == "imperfect" else 0)
    for parameter, rate in zip(rates, (0.1, 0.01), strict=False):
        assert_within(parameter, rate)
        assert 0 < parameter.low < parameter.value < parameter.high < 1
        assert "touch" in parameter.words


@pytest.mark.campaign
def test_a_contact_that_was_not_seen_is_not_determined():
    recording = ball(7)
    assert recording.scene is not None
    ceiling = Wall(0, (-1.0,), offset=-30.0)
    scene = replace(recording.scene, candidates=(*recording.scene.candidates, ceiling))
    fit = carom.fit(recording.with_scene(scene), learn=RESTITUTION)
    found = {parameter.name: parameter for parameter in fit.parameters}
    assert_within(found["restitution of body 1 at wall 1"], 0.8)
    unseen, place = (found[f"{what} of body 1 at wall 2"] for what in ("restitution", "surface"))
    assert unseen.value is None
    assert place.value is None
    assert "no such impact was seen" in unseen.words


@pytest.mark.campaign
def test_masses_and_gap_of_two_riders_from_positions_alone():
    """Closed form: uniform motion, one impact; masses 1 and 2.5, e = 0.6, contact at distance 0.1."""
    generator = np.random.default_rng(3)
    time, runs = np.arange(101) * 0.01, []
    for _ in range(6):
        start = np.array([generator.uniform(0.3, 0.6), generator.uniform(-0.6, -0.3)])
        before = np.array([generator.uniform(-1.5, -0.5), generator.uniform(0.2, 1.0)])
        instant = (start[0] - start[1] - 0.1) / (before[1] - before[0])
        impulse = -1.6 * (before[0] - before[1]) / (1 + 1 / 2.5)
        after = before + impulse * np.array([1.0, -1 / 2.5])
        path = start + before * np.minimum(time, instant)[:, None]
        path += after * np.maximum(time - instant, 0)[:, None]
        runs.append(Run(time, path[:, :, None] + 0.002 * generator.standard_normal((101, 2, 1))))
    scene = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),))
    fit = carom.fit(Recording(tuple(runs), 0.01, scene), learn=("restitution", "surfaces", "masses"))
    for parameter, truth in zip(fit.parameters, (0.6, 0.1, 2.5), strict=True):
        assert_within(parameter, truth)


@pytest.mark.campaign
def test_the_cd_lagrange_step_finds_its_impacts_from_positions_alone():
    """Parabolas place them a step off, and that step resolves impacts nowhere else than at its end."""
    system = carom.systems.BouncingBall(radius=0.01)
    recording = carom.simulate(
        system, steps=300, step_size=0.02, noise=0.1, seed=8, truth="scheme", velocity_grid="sample"
    )
    (run,) = recording.runs
    assert run.touch is not None
    blind = replace(recording, runs=(replace(run, velocity=None, touch=None),))
    fit = carom.fit(blind, settings=Settings(stepper="cd_lagrange"), starts=[system.start])
    found = np.flatnonzero(fit.impacts[0].chosen[:, 0]) + 1
    np.testing.assert_array_equal(found, np.flatnonzero(run.touch[:, 0]))
    assert not fit.failed


def test_damping_of_a_pendulum():
    system = carom.systems.Pendulum(damping=0.8)
    recording = carom.simulate(system, steps=99, step_size=0.04, noise=0.05, seed=100)
    fit = carom.fit(recording, settings=replace(SMALL, learn=("damping",), horizons=()))
    damping = next(parameter for parameter in fit.parameters if parameter.name.startswith("damping"))
    assert_within(damping, 0.8)


@pytest.mark.campaign
def test_drag_that_the_model_does_not_have_is_diagnosed():
    system = carom.systems.Pendulum(damping=0.8)
    recording = carom.simulate(system, steps=200, step_size=0.02, noise=0.01, seed=100)
    fit = carom.fit(recording, learn=())
    assert any("drag" in message for message in fit.diagnostics.messages)
