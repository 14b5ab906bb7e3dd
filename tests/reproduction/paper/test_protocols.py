"""The authors' code, fact by fact: which model gets what, and what it is trained on."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from carom.models import CDLagrangeNetwork, ContactResNet, NoContact, ResNet
from carom.reproduction.paper.data import motion_of, record, trajectory_starts
from carom.reproduction.paper.experiments import ALL, EXPERIMENTS, NO_TOUCH, OURS, POINTS, PROTOCOLS
from carom.reproduction.paper.run import paper_tasks, plan, untrained

PUBLISHED = [(name, model) for name, one in EXPERIMENTS.items() for model in one.trained]


@pytest.mark.parametrize(("name", "model"), PUBLISHED)
def test_published_settings_are_those_of_the_authors_code(name: str, model: str):
    one = EXPERIMENTS[name]
    settings, options = one.settings("published", model), one.options("published", model)
    assert options["activation"] == "softplus"
    strength = 5e-6 if "cradle" in name else 5e-3
    assert settings.l2 == (strength if model in (OURS, NO_TOUCH) else 0.0)
    assert settings.epochs == (2000 if "cradle" in name else 3000)
    assert (settings.learning_rate, settings.schedule) == (1e-2, "constant")
    assert (settings.batch_size, settings.horizon, settings.stride) == (32, 10, 1)
    assert (settings.reduction, settings.contact_inputs, settings.touch) == ("sum", "predicted", "observed")


@pytest.mark.parametrize(("name", "windows"), [("ball", 490), ("cradle", 530), ("pendulum", 189)])
def test_published_windows_are_as_many_as_the_authors(name: str, windows: int):
    (trial, *_) = plan([name], ("published",), (0,))
    (run,) = record(trial.experiment, "published", 0).runs
    assert trial.windows == windows == len(run) - trial.settings.horizon


def test_published_models_are_built_as_the_authors_are():
    ball, cradle, damped = (EXPERIMENTS[name] for name in ("ball", "cradle", "damped-pendulum"))
    recording = record(ball, "published", 0)
    made = {name: untrained(ball, "published", name, recording, 0) for name in ball.trained}
    assert isinstance(made[NO_TOUCH], CDLagrangeNetwork)
    assert isinstance(made[NO_TOUCH].contact, NoContact)
    assert made[OURS].contact.hidden == (100, 100)
    for name, kind in (("ResNet", ResNet), ("ResNetContact", ContactResNet)):
        network = made[name]
        assert isinstance(network, kind)
        assert (network.increment.activation, network.increment.hidden) == ("softplus", (500,))
    learned = untrained(damped, "published", OURS, record(damped, "published", 0), 0)
    assert isinstance(learned, CDLagrangeNetwork)
    assert learned.learned_damping is not None
    assert np.asarray(learned.learned_damping()).tolist() == [[0.0]]
    swung = untrained(cradle, "published", OURS, record(cradle, "published", 0), 0)
    assert isinstance(swung, CDLagrangeNetwork)
    assert swung.project_predicted


def test_the_published_pendulum_is_sampled_too_slowly():
    one = EXPERIMENTS["pendulum"]
    motion = motion_of(one, "published", one.system, one.start)
    exact = one.system.exact(one.start, np.linspace(0, 4, 200))
    np.testing.assert_allclose(motion.position, exact.position)
    np.testing.assert_allclose(motion.time, 0.02 * np.arange(200))


@pytest.mark.parametrize("name", ["ball", "cradle", "pendulum"])
def test_trajectories_of_the_text_are_independent(name: str):
    one = EXPERIMENTS[name]
    recording = record(one, "text", 0)
    assert [len(run) for run in recording.runs] == [POINTS] * one.trajectories
    pieces = record(one, "text-pieces", 0)
    assert [len(run) for run in pieces.runs] == [POINTS * one.trajectories]
    starts = trajectory_starts(one.system, 200, 1)
    energies = np.array([float(one.system.energy(start)) for start in starts])
    assert energies.max() <= float(one.system.energy(one.start))
    # Uniform over the states, not on the one curve of the pieces.
    assert np.quantile(energies, 0.5) < 0.9 * energies.max()
    gaps = [float(one.system.geometry.gap(start.position).min()) for start in starts]
    assert min(gaps) >= 0
    assert not np.array_equal(starts[0].position, trajectory_starts(one.system, 200, 2)[0].position)


def test_true_window_starts_have_no_noise_and_targets_do():
    one = replace(EXPERIMENTS["damped-pendulum"], true_window_starts=True)
    windows = record(one, "published", 0).runs
    truth = motion_of(one, "published", one.system, one.start)
    assert len(windows) == 489
    for begin in (0, 100):
        assert windows[begin].position[0] == truth.position[begin]
        assert (windows[begin].position[1:] != truth.position[begin + 1 : begin + 11]).all()


def test_trials_of_one_shape_are_one_task(tmp_path):
    """Both kinds of trajectories of the text train together; so do variants that differ in ℓ² or noise."""
    trials = plan(["ball", "ablation-damping"], PROTOCOLS, (0, 1))
    models = len(ALL["ball"].trained)
    assert len(trials) == 3 * models + len(ALL["ablation-damping"].trained)
    trained = [task.arguments[0] for task in paper_tasks(trials, tmp_path) if len(task.arguments) == 2]
    assert sum(map(len, trained)) == len(trials)
    assert sorted(len(group) for group in trained) == [1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4]


def test_learned_inertia_starts_from_the_masses_it_is_told():
    one = ALL["claim-inertia"]
    model = untrained(one, "published", "inertia learned from 1 : 2", record(one, "published", 0), 0)
    assert isinstance(model, CDLagrangeNetwork)
    assert model.learned_inertia is not None
    factor = model.learned_inertia().factor
    np.testing.assert_allclose(factor @ factor.T, np.diag([1.0, 2.0]), rtol=1e-6)
    assert jax.tree.leaves(model.learned_inertia)
