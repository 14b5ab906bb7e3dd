"""Last states, draws from a fit, and the bands they make."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.data import Run, hold_out
from carom.errors import InputError
from carom.estimation import fit_recordings, forecast_after, forecast_from
from carom.estimation.forecasting.last_state import last_states
from carom.estimation.forecasting.motions import stack_models
from carom.estimation.uncertainty.laplace import SAMPLES
from carom.evaluation import forecast_held_out
from carom.fits.model_file import load_posterior, save_posterior
from carom.forces import UniformGravity
from carom.models import CDLagrangeNetwork, Mechanism, ResNet
from carom.models.mechanism import learned_potentials
from carom.systems import BouncingBall
from carom.training import stack_models as stack_ensemble
from carom.types import State

SETTINGS = carom.Settings(learn=("restitution", "surfaces"))
SMALL = replace(SETTINGS, hidden=8, starts=1, horizons=(100,))


@pytest.fixture(scope="module")
def ball():
    """A ball with two bounces, and a fit of it, by the programs of the small fits in `test_stages`."""
    system = BouncingBall(restitution=0.8)
    recording = carom.simulate(system, steps=250, step_size=0.02, noise=0.05, seed=101)
    return system, recording, carom.fit(recording, settings=SMALL)


def free_fall(recording, gravity: float) -> Mechanism:
    return Mechanism.for_recording(
        recording, potential="none", forces=[UniformGravity(jnp.array([-gravity]))]
    )


def test_the_last_state_of_free_fall():
    """Positions alone, exact and at uneven steps: the state at the end is that of the parabola."""
    recording = carom.simulate(BouncingBall(), steps=40, step_size=0.02)
    model = free_fall(recording, 9.81)
    time = np.cumsum(0.02 * (1 + 0.3 * np.sin(np.arange(30))))
    height = 10 + 2 * time - 0.5 * 9.81 * time**2
    ahead = forecast_after(model, Run(time, height[:, None, None]), 10, noise=(1e-3, float("nan")))
    later = time[-1] + 0.02 * np.arange(11)
    np.testing.assert_allclose(ahead.position[:, 0, 0], 10 + 2 * later - 0.5 * 9.81 * later**2, atol=1e-3)
    np.testing.assert_allclose(ahead.velocity[:, 0, 0], 2 - 9.81 * later, atol=1e-2)
    assert ahead.low is None


def test_the_last_state_is_as_uncertain_as_a_straight_line_makes_it():
    """Least squares of a parabola of known curvature: the variance at its end has a closed form."""
    recording = carom.simulate(BouncingBall(), steps=40, step_size=0.02)
    model = free_fall(recording, 9.81)
    count, noise, step = 30, 0.1, 0.02
    time = step * np.arange(count)
    height = 50 - 0.5 * 9.81 * time**2
    noisy = height + noise * np.random.default_rng(0).standard_normal(count)
    spread = _spread_of_ends(model, Run(time, noisy[:, None, None]), noise)
    centred = time - time.mean()
    expected = noise * np.sqrt(1 / count + centred[-1] ** 2 / (centred @ centred))
    np.testing.assert_allclose(spread, expected, rtol=0.15)


def test_a_body_at_rest_stays_there():
    """The samples do not depend on where it came from, but the band must not be as wide as that."""
    recording = carom.simulate(BouncingBall(restitution=0.3), steps=300, step_size=0.02, noise=0.01, seed=3)
    model = Mechanism.for_recording(recording, potential="none", forces=[UniformGravity(jnp.array([-9.81]))])
    samples = jax.tree.map(lambda x: np.stack([x] * 64) if eqx.is_array(x) else x, model)
    ahead = forecast_after(model, recording.runs[0], 20, samples=samples, noise=(0.01, 0.01))
    assert np.abs(ahead.position).max() < 0.03
    assert (ahead.high - ahead.low)[0].max() < 0.1
    assert (ahead.low[0] >= -0.05).all()


def _spread_of_ends(model, run: Run, noise: float) -> float:
    """Standard deviation of the last position, each model drawing one."""
    models = stack_models(model, jax.tree.map(lambda x: np.stack([x] * 400) if eqx.is_array(x) else x, model))
    position, _ = last_states(models, 401, [run], np.array([noise, np.nan]), seed=1)
    return float(np.std(position[0, 1:]))


@pytest.mark.campaign
def test_draws_have_the_errors_that_are_reported(ball):
    _, _, fit = ball
    restitution, surface = fit.parameters
    drawn = np.asarray(fit.samples.restitution.value)[:, 0]
    assert len(drawn) == SAMPLES
    np.testing.assert_allclose(drawn.std(), restitution.standard_error, rtol=0.35)
    np.testing.assert_allclose(drawn.mean(), restitution.value, atol=restitution.standard_error)
    shifts = np.asarray(fit.samples.geometry.offset)[:, 0]
    np.testing.assert_allclose(shifts.std(), surface.standard_error, rtol=0.35)


def test_a_band_opens_from_a_known_start_and_holds_the_truth(ball):
    system, _, fit = ball
    ahead = forecast_from(fit.model, system.start, 120, samples=fit.samples)
    truth = system.exact(system.start, 0.02 * np.arange(121))
    widths = (ahead.high - ahead.low)[0, :, 0, 0]
    assert widths[0] == 0
    assert widths[30] < widths[60]
    away = np.abs(ahead.position - truth.position)[1:60, 0, 0]
    assert (away < 4 * widths[1:60] + 1e-6).all()


def test_a_band_without_doubt_has_no_width(ball):
    system, _, fit = ball
    one = forecast_from(fit.model, system.start, 20)
    assert (one.members, one.low) == (0, None)
    still = eqx.tree_at(
        lambda m: (m.forces[0].change, m.geometry.offset, m.restitution.value),
        fit.samples,
        (
            jax.tree.map(np.zeros_like, fit.samples.forces[0].change),
            np.repeat(np.asarray(fit.model.geometry.offset)[None], SAMPLES, axis=0),
            np.repeat(np.asarray(fit.model.restitution.value)[None], SAMPLES, axis=0),
        ),
    )
    ahead = forecast_from(fit.model, system.start, 80, samples=still)
    np.testing.assert_allclose(ahead.high, ahead.low, atol=1e-9)
    np.testing.assert_allclose(ahead.low[0], ahead.position, atol=1e-9)


def test_posterior_samples_survive_a_round_trip(ball, tmp_path):
    _, _, fit = ball
    path = tmp_path / "posterior.safetensors"
    save_posterior(fit.samples, path)
    loaded = load_posterior(path, fit.model)
    for old, new in zip(jax.tree.leaves(fit.samples), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(old, new)
    other = CDLagrangeNetwork(fit.model.scene, 0.02, hidden=4, key=jax.random.key(0))
    with pytest.raises(InputError, match="another kind of model"):
        load_posterior(path, other)
    wider = Mechanism.of(fit.model.scene, 0.02, forces=learned_potentials(fit.model.scene, "shared", 5))
    with pytest.raises(InputError, match="should be floating point of shape"):
        load_posterior(path, wider)


def test_an_ensemble_survives_a_round_trip(ball, tmp_path):
    scene = ball[2].model.scene
    members = [ResNet(scene, 0.02, hidden=4, key=jax.random.key(seed)) for seed in range(3)]
    path = tmp_path / "posterior.safetensors"
    save_posterior(stack_ensemble(members), path)
    loaded = load_posterior(path, members[0])
    ahead = forecast_from(members[0], State(jnp.ones((1, 1)), jnp.zeros((1, 1))), 5, samples=loaded)
    each = [
        np.asarray(carom.forecast(member, State(jnp.ones((1, 1)), jnp.zeros((1, 1))), 5).position)
        for member in members
    ]
    assert ahead.members == 3
    low, high = np.quantile(each, [0.05, 0.95], axis=0, method="weibull")
    np.testing.assert_allclose(ahead.low[0], low, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ahead.high[0], high, rtol=1e-4, atol=1e-6)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_bands_hold_what_they_should():
    """Over forty recordings, the truth lies in nine-of-ten bands about nine times of ten.

    Errors within one forecast go together, so that the share of one recording is anything from 0.3 to 1.
    """
    system = BouncingBall(restitution=0.9)
    seeds = range(400, 440)
    recordings = [carom.simulate(system, steps=400, step_size=0.02, noise=0.1, seed=seed) for seed in seeds]
    splits = [hold_out(recording, 0.25) for recording in recordings]
    fits = fit_recordings([split.training for split in splits], SETTINGS, seeds=list(seeds))
    truth = system.exact(system.start, recordings[0].runs[0].time)
    shares = []
    for split, fit in zip(splits, fits, strict=True):
        part = split.held_out[0]
        (ahead,) = forecast_held_out(fit.model, [part], samples=fit.samples, noise=fit.noise)
        true = truth.position[-len(part.future) :]
        shares.append(float(((true >= ahead.low) & (true <= ahead.high)).mean()))
    assert 0.8 < np.mean(shares) <= 0.97
