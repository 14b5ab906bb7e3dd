"""Every model learns noise-free truth by the paper's recipe, forecasting the training span from its start."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from carom.data import simulate
from carom.evaluation import contact_score, paper_rmse
from carom.models import CDLagrangeNetwork, ResNet, VariationalIntegratorNetwork, forecast
from carom.systems import BouncingBall, NewtonsCradle, Pendulum
from carom.training import TrainingSettings, train
from carom.types import State
from tests.campaign import shortened

SETTINGS = TrainingSettings(epochs=500, learning_rate=1e-2, schedule="cosine", l2=0.0)
SHORT = replace(SETTINGS, epochs=200)
"""Enough for what is learned every day."""


def _learn(recording, kind, *, settings=SETTINGS, **options):
    model = kind.for_recording(recording, key=jax.random.key(0), **options)
    fit = train(model, recording, settings, seed=0)
    predicted = forecast(fit.model, recording.start, len(recording.runs[0]) - 1)
    error = paper_rmse(predicted, recording.runs[0], velocities=fit.model.predicts_velocity)
    return fit.model, predicted, error


@pytest.fixture(scope="module")
def pendulum():
    return simulate(Pendulum(), steps=200, step_size=0.02)


@pytest.mark.campaign
def test_cd_lagrange_on_the_pendulum(pendulum):
    """It forecasts, and its contact output stays below ½ everywhere: on the motion and around it."""
    model, predicted, error = _learn(pendulum, CDLagrangeNetwork)
    assert error < 0.05
    assert float(predicted.contact.max()) < 0.5
    generator = np.random.default_rng(0)
    angle, speed = generator.uniform(-1, 1, (2, 500, 1, 1)) * np.array([1.0, 3.1])[:, None, None, None]
    states = tuple(map(jax.numpy.asarray, (angle.astype("float32"), speed.astype("float32"))))
    logits = jax.vmap(lambda q, v: model.contact_logits(State(q, v)))(*states)
    assert float(logits.max()) < 0


@pytest.mark.parametrize("scheme", shortened(["velocity_verlet", "stormer_verlet"], ["velocity_verlet"]))
def test_variational_integrator_networks_on_the_pendulum(pendulum, scheme):
    _, _, error = _learn(pendulum, VariationalIntegratorNetwork, settings=SHORT, scheme=scheme)
    assert error < 0.05


def test_stormer_verlet_needs_no_velocities(pendulum):
    """Trained on positions alone it gives the same forecast as where velocities were recorded beside them."""
    bare = replace(pendulum, runs=tuple(replace(run, velocity=None) for run in pendulum.runs))
    short = TrainingSettings(epochs=5)
    fits = [
        train(
            VariationalIntegratorNetwork.for_recording(r, scheme="stormer_verlet", key=jax.random.key(0)),
            r,
            short,
        )
        for r in (pendulum, bare)
    ]
    np.testing.assert_array_equal(fits[0].model.potential.weight, fits[1].model.potential.weight)


def test_resnet_on_the_pendulum(pendulum):
    _, _, error = _learn(pendulum, ResNet, settings=SHORT)
    assert error < 0.3


def test_cd_lagrange_on_the_ball():
    recording = simulate(BouncingBall(), steps=500, step_size=0.02, truth="scheme", velocity_grid="sample")
    _, predicted, error = _learn(recording, CDLagrangeNetwork, settings=SHORT)
    assert error < 0.05
    bounces = contact_score(np.asarray(predicted.contact[:, 0]) > 0.5, recording.runs[0].touch[:, 0])
    assert bounces.true_events == 3
    assert bounces.missed == bounces.spurious == bounces.mistimed == 0


@pytest.mark.campaign
def test_cd_lagrange_on_the_cradle():
    recording = simulate(NewtonsCradle(), steps=540, step_size=0.01, truth="scheme")
    _, predicted, error = _learn(recording, CDLagrangeNetwork)
    assert error < 0.05
    impacts = contact_score(np.asarray(predicted.contact[:, 0]) > 0.5, recording.runs[0].touch[:, 0])
    assert impacts.true_events == 5
    assert impacts.missed == impacts.spurious == impacts.mistimed == 0


@pytest.mark.campaign
@pytest.mark.parametrize("learn_inertia", [False, True])
def test_damped_pendulum(learn_inertia):
    """M⁻¹C within 5 % from noisy data, with the inertia fixed and with it learned beside."""
    recording = simulate(Pendulum(damping=0.8), steps=499, step_size=0.01, noise=0.035, seed=0)
    model = CDLagrangeNetwork.for_recording(
        recording, learn_damping=True, learn_inertia=learn_inertia, hidden=100, key=jax.random.key(0)
    )
    settings = TrainingSettings(epochs=200, learning_rate=1e-2, schedule="cosine", l2=1e-5)
    learned = train(model, recording, settings).model
    inverse_inertia = float(learned.inertia().solve(jax.numpy.ones((1, 1)))[0, 0])
    damping = float(learned.learned_damping()[0, 0])
    assert abs(inverse_inertia * damping - 0.8) < 0.05 * 0.8
    assert (abs(inverse_inertia - 1) > 1e-3) == learn_inertia
