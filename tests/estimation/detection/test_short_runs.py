"""Impacts of many short runs, against those that the exact motion had."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import Recording, Run
from carom.estimation import Settings, fit_recording
from carom.estimation.detection.short_runs import find_in_short_runs
from carom.estimation.solver.segments import local_state
from carom.reproduction.bodies.run import short_trajectories
from carom.systems import BallBox, Billiards
from carom.types import State


def jumps(system, recording: Recording) -> np.ndarray:
    """Changes of velocity (runs, steps, bodies) that no field explains."""
    field = np.zeros(2) if system.field is None else np.asarray(system.field)
    changes = np.stack([np.diff(run.velocity, axis=0) for run in recording.runs])
    return np.linalg.norm(changes - recording.step_size * field, axis=-1)


def struck(recording: Recording, found) -> np.ndarray:
    """Which bodies (runs, steps, bodies) were found to be struck."""
    incidence = recording.scene.geometry.incidence
    return np.stack([(impacts.chosen[:, :, None] & incidence).any(axis=1) for impacts in found])


@pytest.mark.parametrize("system", [Billiards(restitution=0.8), BallBox(size=(1.0, 1.0), restitution=0.9)])
@pytest.mark.parametrize("masses_known", [True, False])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_they_are_the_true_ones(system, masses_known, noise):
    clean, _ = short_trajectories(system, seed=5, noise=0.0, count=150)
    noisy, _ = short_trajectories(system, seed=5, noise=noise, count=150)
    found = find_in_short_runs(noisy.runs, noisy.scene, masses_known=masses_known, surfaces_known=True)
    size, ours = jumps(system, clean), struck(noisy, found)
    explained = np.array([impacts.explained for impacts in found])
    assert explained.mean() > 0.9
    clear = (size > 0.15).any(axis=1)[explained]
    at_all = (size > 1e-6).any(axis=1)[explained]
    assert np.mean(ours.any(axis=1)[explained][clear]) > 0.97  # those that noise does not hide
    assert np.sum(ours.any(axis=1)[explained] & ~at_all) <= 0.02 * at_all.sum()
    # At their steps, but for impacts so near to a sample that they may as well be in the next step.
    assert np.mean((ours & (size > 1e-6))[explained].sum() / ours[explained].sum()) > 0.97
    if noise:
        np.testing.assert_allclose(found[0].noise, noise, rtol=0.15)


def test_two_impacts_of_one_ball_in_one_run():
    """A ball hits the left wall, then a ball behind it: both are found, in their order."""
    system = Billiards(radii=(0.1, 0.1), size=(1.0, 1.0), restitution=1.0)
    time = 0.01 * np.arange(8)
    start = State(jnp.array([[0.115, 0.5], [0.36, 0.5]]), jnp.array([[-1.0, 0.0], [-0.8, 0.0]]))
    motion = system.exact(start, time)
    run = Run(time, motion.position, motion.velocity, None)
    # Among others, so that noise and typical speeds are known.
    others, _ = short_trajectories(system, seed=1, noise=0.0, count=40, steps=7)
    found = find_in_short_runs((run, *others.runs), system.scene(), masses_known=True, surfaces_known=True)[0]
    np.testing.assert_array_equal(found.chosen, motion.contact[1:])
    assert found.chosen.sum() == 2


def test_what_no_impacts_explain_is_set_aside():
    """A run whose velocities jump where nothing can be touched."""
    system = Billiards(radii=(0.1, 0.1))
    recording, _ = short_trajectories(system, seed=2, noise=0.01, count=60)
    odd = Run(
        recording.runs[0].time,
        np.full((6, 2, 2), 0.5) + np.array([[-0.2, 0.0], [0.2, 0.0]]),
        np.concatenate([np.zeros((3, 2, 2)), np.ones((3, 2, 2))]),
        None,
    )
    found = find_in_short_runs((odd, *recording.runs), system.scene(), masses_known=True, surfaces_known=True)
    assert not found[0].explained
    assert np.mean([impacts.explained for impacts in found[1:]]) > 0.95


def test_runs_of_unequal_length_and_missing_values():
    system = Billiards(restitution=0.9)
    long, _ = short_trajectories(system, seed=3, noise=0.01, count=60, steps=7)
    short, _ = short_trajectories(system, seed=4, noise=0.01, count=60, steps=4)
    holes = []
    for run in long.runs:
        position = run.position.copy()
        position[2, 0] = np.nan
        holes.append(Run(run.time, position, run.velocity, None))
    runs = (*short.runs, *holes)
    found = find_in_short_runs(runs, system.scene(), masses_known=True, surfaces_known=True)
    assert [len(impacts.chosen) for impacts in found] == [len(run) - 1 for run in runs]
    alone = find_in_short_runs(holes, system.scene(), masses_known=True, surfaces_known=True)
    agree = [np.array_equal(a.chosen, b.chosen) for a, b in zip(found[60:], alone, strict=True)]
    assert np.mean(agree) > 0.95


@pytest.mark.parametrize("velocities", [True, False])
def test_a_start_before_an_impact_has_the_speed_that_was_measured(velocities):
    """One sample is left of the impact in the first step: its velocity counts, if there is one."""
    time = 0.01 * np.arange(3)
    position = np.array([0.105, 0.1, 0.11])[:, None, None]
    velocity = np.array([-1.0, 1.0, 1.0])[:, None, None] if velocities else None
    found = local_state(Run(time, position, velocity, None), 0, 0, 1)
    np.testing.assert_allclose(found, [0.105, -1.0 if velocities else 0.0], atol=1e-12)


@pytest.mark.campaign
def test_hardly_a_run_without_noise_is_set_aside():
    """All have their true impacts but those in which a contact happens twice, or three in one step."""
    truth = Billiards(ball_masses=(1.0, 2.0, 6.0, 8.0, 10.0))
    recording, starts = short_trajectories(truth, seed=13, noise=0.0, count=200)
    scene = replace(truth.scene(), masses=())
    settings = Settings(
        learn=("restitution", "masses"),
        share="all",
        stepper="constraint_exact",
        potential="none",
        starts=1,
    )
    fit = fit_recording(recording.with_scene(scene), settings)
    time, kept = recording.step_size * np.arange(6), []
    for run, found in enumerate(fit.impacts):
        true = truth.exact(State(starts.position[run], starts.velocity[run]), time).contact[1:]
        if true.sum(axis=0).max() <= 1 and true.sum(axis=1).max() <= 2:
            kept.append(found.explained)
            assert not found.explained or np.array_equal(found.chosen, true)
    assert np.mean(kept) > 0.98
    masses = [p.value for p in fit.parameters if p.name.startswith("mass")]
    np.testing.assert_allclose(masses, [2.0, 6.0, 8.0, 10.0], rtol=1e-6)
