"""Contacts that last, runs that scatter, riders that change: positions alone, in closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import Recording
from carom.errors import InputError
from carom.estimation import Settings, around_impact, fit_recording
from carom.estimation.detection.impacts import find_impacts
from carom.estimation.uncertainty.diagnostics import diagnose
from carom.mechanics import Pair, Scene
from tests.campaign import shortened
from tests.riders import Encounter, encounters

RIDERS = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),))
STEP, MASK, NOISE = 0.004, 8, 2e-5


def law(speed):
    return 0.65 - 0.15 * np.log(speed) - 0.04 * np.log(speed) ** 2


def recorded(cases, generator, *, step=STEP, noise=NOISE) -> tuple[Recording, list[float]]:
    """Contacts anywhere in runs of unequal length, and when they begin."""
    runs, begun = [], []
    for case in cases:
        before, after = generator.uniform(0.25, 0.5, 2)
        time = np.arange(0, before + after, step)
        runs.append(case.run(time, before, noise, generator))
        begun.append(before)
    return Recording(tuple(runs), step, RIDERS), begun


@pytest.mark.parametrize("seed", shortened(range(4), range(1, 4)))
@pytest.mark.parametrize("duration", [0.02, 0.05])
def test_a_contact_that_lasts_is_one_impact_where_the_motions_would_have_met(duration, seed):
    generator = np.random.default_rng(seed)
    speeds = generator.uniform(0.1, 2.0, 5)
    cases = encounters(
        speeds, lambda u: 0.6, scatter=0.1, generator=generator, mass_ratio=0.8, duration=duration
    )
    recording, begun = recorded(cases, generator, step=0.002)
    for run, case, start in zip(recording.runs, cases, begun, strict=True):
        (found,) = find_impacts([run], RIDERS, masses_known=False, mask=15)
        step = int(np.argmax(np.where(found.chosen[:, 0], found.log_odds[:, 0], -np.inf)))
        assert abs(run.time[step] + 0.001 - (start + case.met)) < 0.003
        # A first look: an impact is tried at a few places of a step only.
        u = case.closing_speed
        np.testing.assert_allclose(-found.before[step, 0], u, rtol=0.01, atol=0.005)
        np.testing.assert_allclose(found.after[step, 0], case.restitution * u, rtol=0.01, atol=0.005)
        np.testing.assert_allclose(found.gap[step, 0], case.gap - u * case.met, atol=0.0005)


def test_runs_are_trimmed_to_their_collision():
    generator = np.random.default_rng(5)
    cases = encounters(np.array([0.3, 1.0, 2.0]), law, scatter=0.0, generator=generator, mass_ratio=1.0)
    recording, begun = recorded(cases, generator)
    trimmed = around_impact(recording, 0.15, mask=MASK)
    for run, case, start in zip(trimmed.runs, cases, begun, strict=True):
        middle = 0.5 * (run.time[0] + run.time[-1])
        assert abs(middle - (start + case.met)) < 0.01
        assert 0.28 < run.time[-1] - run.time[0] <= 0.3
    with pytest.raises(InputError, match="positive"):
        around_impact(recording, 0.0)
    with pytest.raises(InputError, match="candidate contacts"):
        around_impact(recording.with_scene(RIDERS.without_contacts()), 0.1)


LEARNED = ("restitution-speed", "masses", "surfaces-per-run", "restitution-per-run")


def settings(learn: tuple[str, ...], mask: int = MASK) -> Settings:
    return Settings(
        learn=learn,
        stepper="constraint_exact",
        potential="none",
        horizons=(),
        mask=mask,
    )


@pytest.fixture(scope="module")
def riders() -> tuple[Recording, list[Encounter]]:
    """Sixteen collisions with pushes beforehand, trimmed to what surrounds them."""
    generator = np.random.default_rng(100)
    speeds = np.geomspace(0.15, 2.0, 16)
    cases = encounters(speeds, law, scatter=0.02, generator=generator, mass_ratio=0.9)
    recording, _ = recorded(cases, generator)
    return around_impact(recording, 0.13, mask=MASK), cases


@pytest.fixture(scope="module")
def fitted(riders):
    return fit_recording(riders[0], settings(LEARNED))


@pytest.mark.campaign
def test_a_law_of_restitution_about_which_runs_scatter(fitted, riders):
    *_, scatter, ratio = fitted.parameters
    assert "scatter" in scatter.name
    assert scatter.low < 0.02 < scatter.high
    assert abs(ratio.value - 0.9) < 4 * ratio.standard_error
    assert ratio.standard_error < 0.002
    for speed in (0.2, 0.6, 1.8):
        powers = np.log(speed) ** np.arange(3)
        error = np.sqrt(powers @ fitted.covariance_of("restitution-speed") @ powers)
        value = float(fitted.model.restitution_at(jnp.full((1,), -speed, jnp.float32))[0])
        assert abs(value - law(speed)) < 4 * error
        assert error < 0.02


def test_a_law_is_held_constant_beyond_the_speeds_of_its_impacts(fitted, riders):
    closing = [case.closing_speed for case in riders[1]]
    low, high = np.asarray(fitted.model.restitution.speeds)[0]
    np.testing.assert_allclose([low, high], [min(closing), max(closing)], rtol=0.1)
    assert np.all(np.asarray(fitted.samples.restitution.speeds) == [[low, high]])
    ends, beyond = (
        fitted.model.restitution_at(jnp.asarray([-speed], jnp.float32)) for speed in (high, 5 * high)
    )
    assert ends == beyond


def test_every_run_knows_its_own_gap_and_restitution(fitted, riders):
    for index, case in enumerate(riders[1]):
        model = fitted.in_run(index)
        met = case.gap - case.closing_speed * case.met
        np.testing.assert_allclose(float(model.geometry.offset[0]), met, atol=2e-4)
        value = float(model.restitution_at(jnp.full((1,), -case.closing_speed, jnp.float32))[0])
        np.testing.assert_allclose(value, case.restitution, atol=0.004)


def test_a_run_that_was_not_fitted_may_be_as_any_that_was(fitted, riders):
    met = np.array([case.gap - case.closing_speed * case.met for case in riders[1]])
    shared = float(fitted.model.geometry.offset[0])
    np.testing.assert_allclose(shared, np.median(met), atol=2e-4)
    drawn = np.asarray(fitted.samples.geometry.offset)[:, 0]
    assert np.abs(drawn[:, None] - met).min(axis=1).max() < 1e-3
    assert 0.5 < drawn.std() / met.std() < 1.5


def test_residuals_are_noise_where_the_contact_is_hidden(fitted):
    np.testing.assert_allclose(fitted.noise[0], NOISE, rtol=0.1)
    assert not fitted.diagnostics.messages
    assert [found.chosen.sum() for found in fitted.impacts] == [1] * 16


@pytest.mark.campaign
def test_a_contact_that_lasts_is_diagnosed_where_it_is_not_hidden(riders):
    """Such a fit has not failed: most of the motion is explained."""
    fit = fit_recording(riders[0], settings(LEARNED, mask=0))
    assert fit.diagnostics.near_impacts > 2
    assert any("contacts may last" in message for message in fit.diagnostics.messages)
    # The ends of a contact that no single impact explains are left out, and that is said first.
    assert "were not used" in fit.diagnostics.messages[0]
    assert not fit.failed


@pytest.mark.campaign
def test_riders_that_change_from_run_to_run():
    generator = np.random.default_rng(3)
    ratios = generator.uniform(0.3, 3.0, 6)
    cases = [
        Encounter(u, 0.7, ratio, drift=generator.uniform(-0.2, 0.2))
        for u, ratio in zip(generator.uniform(0.3, 1.5, 6), ratios, strict=True)
    ]
    recording, _ = recorded(cases, generator)
    learned = ("restitution", "surfaces-per-run", "masses-per-run")
    fit = fit_recording(around_impact(recording, 0.13, mask=MASK), settings(learned))
    models = [fit.in_run(index) for index in range(len(ratios))]
    found = np.exp([float(model.bodies.log_mass[1] - model.bodies.log_mass[0]) for model in models])
    errors = fit.per_run("masses")[1][:, 0]
    new_run = float(fit.model.bodies.log_mass[1] - fit.model.bodies.log_mass[0])
    np.testing.assert_allclose(new_run, np.median(np.log(ratios)), atol=0.02)
    assert np.all(np.abs(np.log(found / ratios)) < 4 * errors)
    assert errors.max() < 0.01
    (restitution,) = fit.parameters
    assert abs(restitution.value - 0.7) < 4 * restitution.standard_error


def test_what_is_unexplained_is_told_beside_the_range_of_motion():
    nothing = [np.zeros((10, 1))]
    near = [np.zeros(10, bool)]
    known = np.array([True, False])
    told = diagnose(nothing, near, np.array([0.02, 9.0]), np.array([0.01, 1.0]), known, np.array([4.0, 1.0]))
    assert told.unexplained == 0.02 / 4.0
    assert told.excess == 2.0


def test_a_fit_that_must_be_told_of_impacts_says_so():
    generator = np.random.default_rng(0)
    residuals, near = [generator.standard_normal((200, 1))], [np.zeros(200, bool)]
    known, ones = np.array([True, False]), np.ones(2)
    assert diagnose(residuals, near, ones, ones, known, ones).messages == ()
    (message,) = diagnose(residuals, near, ones, ones, known, ones, by_gap=False).messages
    assert "only with its impacts prescribed" in message
