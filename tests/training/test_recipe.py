"""The paper's recipe: its loss written out by hand, its minibatches, and training many models at once."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import Recording, Run, simulate
from carom.errors import InputError
from carom.mechanics import Scene, Wall
from carom.models import CDLagrangeNetwork, ContactResNet, ResNet
from carom.systems import BouncingBall, NewtonsCradle
from carom.training import TrainingSettings, train, train_many
from carom.training.loss import window_losses
from carom.training.windows import recorded_windows

SHORT = TrainingSettings(epochs=4, learning_rate=1e-2, l2=1e-3)


def _all_windows(model, recording, settings):
    """Every window of a recording."""
    windows, count = recorded_windows(model, recording, settings)
    return windows.batch(jnp.arange(count), settings.horizon)


def _loss_by_hand(model, windows, index, *, predicted_inputs):
    """Theory §5 for one window, in a Python loop: q' = q + h v; v' = v − h ∇U, or −e v on contact."""
    h, e = model.step_size, model.scene.restitution
    q, v = windows.position[index, 0, 0, 0], windows.velocity[index, 0, 0, 0]
    squares, entropies = [], []
    for n in range(windows.position.shape[1] - 1):
        touch = bool(windows.touch[index, n + 1, 0])
        before = v
        q = q + h * v
        slope = float(model.potential.gradient(jnp.full((1, 1), q))[0, 0])
        v = -e * v if touch else v - h * slope
        target = windows.position[index, n + 1, 0, 0], windows.velocity[index, n + 1, 0, 0]
        squares.append(((q - target[0]) ** 2 + (v - target[1]) ** 2) / 2)
        seen = windows.position[index, n, 0, 0], windows.velocity[index, n, 0, 0]
        inputs = (q, before) if predicted_inputs else (seen[0] + h * seen[1], seen[1])
        logit = float(model.contact.network(jnp.array(inputs))[0])
        entropies.append(np.log1p(np.exp(-logit if touch else logit)))
    return np.array(squares), np.array(entropies)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("inputs", ["observed", "predicted"])
def test_loss_equals_the_formula(ball, reduction, inputs):
    with jax.enable_x64(True):
        model = CDLagrangeNetwork.for_recording(ball, hidden=6, contact_hidden=(5,), key=jax.random.key(0))
        settings = TrainingSettings(reduction=reduction, contact_inputs=inputs, l2=0.01)
        windows = _all_windows(model, ball, settings)
        losses = jax.jit(window_losses, static_argnums=2)(model, windows, settings, settings.l2)
        windows = jax.tree.map(np.asarray, windows)
        reduce = np.mean if reduction == "mean" else np.sum
        assert windows.touch.any()
        for index in (0, 62, 66, 70, 100, len(windows.position) - 1):
            squares, entropies = _loss_by_hand(model, windows, index, predicted_inputs=inputs == "predicted")
            np.testing.assert_allclose(losses.state[index], reduce(squares), rtol=1e-10)
            np.testing.assert_allclose(losses.contact[index], reduce(entropies), rtol=1e-8)
        kernels = float(jnp.sum(model.potential.weight**2) + jnp.sum(model.potential.output**2))
        np.testing.assert_allclose(losses.penalty, 0.01 * kernels, rtol=1e-12)


def test_first_step_of_adam(ball):
    """After one step on the full batch every weight has moved by the rate against its gradient's sign."""
    settings = TrainingSettings(epochs=1, batch_size=10_000, learning_rate=1e-3, l2=1e-3)
    model = CDLagrangeNetwork.for_recording(ball, hidden=6, contact_hidden=(5,), key=jax.random.key(0))
    result = train(model, ball, settings)
    batch = _all_windows(model, ball, settings)
    parameters, fixed = eqx.partition(model, eqx.is_inexact_array)

    def loss(parameters):
        losses = window_losses(eqx.combine(parameters, fixed), batch, settings, settings.l2)
        return sum(jnp.mean(part) for part in losses)

    value, gradient = jax.jit(jax.value_and_grad(loss))(parameters)
    for before, after, slope in zip(*map(jax.tree.leaves, (model, result.model, gradient)), strict=True):
        clear = np.abs(np.asarray(slope)) > 1e-4
        np.testing.assert_allclose((after - before)[clear], -1e-3 * np.sign(slope)[clear], rtol=1e-2)
    np.testing.assert_allclose(sum(float(part[0]) for part in result.history), float(value), rtol=1e-5)


def test_training_together_equals_training_alone():
    """Three models, each with its own recording and seed, in one program.

    In double precision: Adam moves a weight by its rate even where the gradient is rounding.
    """
    with jax.enable_x64(True):
        recordings = [
            simulate(BouncingBall(), steps=85, step_size=0.02, noise=0.1, seed=seed) for seed in range(3)
        ]
        models = [
            ContactResNet.for_recording(r, hidden=8, key=jax.random.key(i)) for i, r in enumerate(recordings)
        ]
        results = train_many(models, recordings, SHORT, seeds=[5, 6, 7])
        for model, recording, seed, result in zip(models, recordings, [5, 6, 7], results, strict=True):
            alone = train(model, recording, SHORT, seed=seed)
            for one, other in zip(*map(jax.tree.leaves, (alone.model, result.model)), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-9)
            np.testing.assert_allclose(alone.history.state, result.history.state, rtol=1e-9)


def test_history_progress_and_failure(ball):
    fractions = []
    model = ResNet.for_recording(ball, hidden=16, key=jax.random.key(0))
    result = train(model, ball, replace(SHORT, epochs=45), progress=fractions.append)
    assert result.history.state.shape == (45,)
    assert result.history.state[-1] < result.history.state[0]
    assert fractions[-1] == 1
    assert fractions == sorted(fractions)
    assert not result.failed
    assert train(model, ball, replace(SHORT, learning_rate=1e30)).failed


def test_without_touch_the_soft_signal_is_trained(ball):
    """Without labels the contact network still learns, through the impulses that it scales."""
    bare = replace(ball, runs=tuple(replace(run, touch=None) for run in ball.runs))
    model = CDLagrangeNetwork.for_recording(bare, hidden=8, contact_hidden=(8,), key=jax.random.key(0))
    result = train(model, bare, replace(SHORT, touch="none"))
    np.testing.assert_array_equal(result.history.contact, 0)
    moved = np.abs(np.asarray(result.model.contact.network.weights[0] - model.contact.network.weights[0]))
    assert moved.max() > 1e-4


@pytest.mark.campaign
def test_coupled_contacts_train():
    """A cradle of three balls, whose middle ball has two candidates, trains with touch given per body."""
    recording = simulate(NewtonsCradle(balls=3), steps=130, step_size=0.01, truth="scheme")
    model = CDLagrangeNetwork.for_recording(recording, hidden=16, key=jax.random.key(0))
    result = train(model, recording, replace(SHORT, epochs=20))
    assert not result.failed
    assert result.history.state[-1] < result.history.state[0]


def test_what_does_not_fit_together_is_refused(ball):
    model = CDLagrangeNetwork.for_recording(ball, hidden=4, key=jax.random.key(0))
    other = CDLagrangeNetwork.for_recording(ball, hidden=5, key=jax.random.key(0))
    with pytest.raises(InputError, match="same class"):
        train_many([model, other], [ball], SHORT, seeds=[0, 1])
    with pytest.raises(InputError, match="as many"):
        train_many([model, model], [ball], SHORT, seeds=[0])
    with pytest.raises(InputError, match="learning_rate and l2 only"):
        train_many([model, model], [ball], [SHORT, replace(SHORT, epochs=5)], seeds=[0, 1])
    with pytest.raises(InputError, match="number of windows"):
        train_many([model, model], [ball, replace(ball, runs=ball.runs[:1])], SHORT, seeds=[0, 1])
    run = ball.runs[0]
    still = Recording((Run(run.time, run.position),), 0.02, ball.scene)
    with pytest.raises(InputError, match="velocity"):
        train(model, still, SHORT)
    with pytest.raises(InputError, match="no scene"):
        CDLagrangeNetwork.for_recording(replace(ball, scene=None), key=jax.random.key(0))


def test_a_ball_between_two_walls_learns_both():
    """Touch is recorded per body; the position of the ball tells which wall it touched."""
    step, samples = 0.02, 240
    position, velocity, touch = np.empty(samples), np.empty(samples), np.zeros((samples, 1), bool)
    q, v = 0.5, 2.0
    for n in range(samples):
        position[n], velocity[n] = q, v
        q = q + step * v
        if n + 1 < samples and ((q < 0 and v < 0) or (q > 1 and v > 0)):
            v, touch[n + 1] = -v, True
    scene = Scene(1, 1, (Wall(0, (1.0,)), Wall(0, (-1.0,), -1.0)), velocity_grid="sample")
    shape = (samples, 1, 1)
    run = Run(np.arange(samples) * step, position.reshape(shape), velocity.reshape(shape), touch)
    recording = Recording((run,), step, scene)
    model = CDLagrangeNetwork.for_recording(recording, hidden=32, key=jax.random.key(0))
    result = train(model, recording, TrainingSettings(epochs=60))
    assert result.history.state[-1] < 1e-4
