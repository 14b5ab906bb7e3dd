"""Balls in a box learned from short runs: laws, masses, radii, planes and normals, each within its error."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import Recording, Run, add_noise
from carom.errors import InputError
from carom.estimation import Settings, fit_recording
from carom.mechanics import Scene, Wall
from carom.models import Mechanism, forecast, in_scene
from carom.models.mechanism import learned_potentials
from carom.reproduction.bodies.run import short_trajectories
from carom.systems import Billiards

PLAIN = Settings(stepper="constraint_exact", potential="none", starts=1)


def by_name(fit) -> dict:
    return {parameter.name: parameter for parameter in fit.parameters}


@pytest.mark.campaign
def test_laws_masses_radii_planes_and_normals_together():
    """All of them unknown, and stated wrongly where they have to be stated."""
    truth = Billiards(
        radii=(0.1, 0.14), ball_masses=(1.0, 3.0), size=(1.0, 0.8), restitution=0.8, friction=0.25
    )
    recording, _ = short_trajectories(truth, seed=11, noise=0.003, count=400)
    scene, tilt = truth.scene(), 0.04
    stated = []
    for candidate in scene.candidates:
        if isinstance(candidate, Wall) and candidate.normal == (1.0, 0.0):
            candidate = replace(candidate, normal=(np.cos(tilt), np.sin(tilt)))
        if candidate.bodies == (0,) or candidate.bodies == (0, 1):
            candidate = replace(candidate, offset=candidate.offset - 0.01)
        stated.append(candidate)
    wrong = replace(scene, candidates=tuple(stated), masses=(), restitution=1.0, friction=0.0)
    learned = ("restitution", "friction", "radii", "normals", "masses")
    fit = fit_recording(recording.with_scene(wrong), replace(PLAIN, learn=learned, share="kind"))
    found = by_name(fit)
    expected = {
        "restitution at walls": 0.8,
        "restitution between bodies": 0.8,
        "friction at walls": 0.25,
        "friction between bodies": 0.25,
        "radius of body 1, change": 0.01,
        "radius of body 2, change": 0.0,
        "mass of body 2 over that of body 1": 3.0,
        "tilt of plane 1 with normal (0.9992, 0.0399893) towards (-0.0399893, 0.9992)": -np.tan(tilt),
    }
    for name, value in expected.items():
        (parameter,) = [p for key, p in found.items() if key.startswith(name)]
        assert parameter.determined, parameter.words
        away = abs(parameter.value - value) / parameter.standard_error
        assert away < 4.5, parameter.words
        assert parameter.standard_error < max(0.1 * abs(value), 0.02), parameter.words
    np.testing.assert_allclose(fit.noise, 0.003, rtol=0.05)
    assert not fit.failed


@pytest.mark.campaign
def test_a_model_of_two_balls_forecasts_five():
    """Laws learned on two serve five as those learned in place would; at another step too."""
    two, five = (Billiards(radii=(0.1,) * count, restitution=0.7) for count in (2, 5))
    recording, _ = short_trajectories(two, seed=12, noise=0.005, count=300)
    stated = replace(two.scene(), restitution=1.0)
    settings = replace(PLAIN, learn=("restitution",), share="kind")
    model = fit_recording(recording.with_scene(stated), settings).model
    moved = in_scene(model, five.scene(), step_size=0.02)
    start = five.random_start(8)
    predicted = forecast(moved, start, 15)
    truth = five.exact(start, 0.02 * np.arange(16))
    np.testing.assert_allclose(predicted.position, truth.position, atol=0.02)
    pairs = np.array([len(candidate.bodies) == 2 for candidate in five.scene().candidates])
    for kind in (pairs, ~pairs):
        assert np.asarray(truth.contact)[:, kind].any()


def springs(seed: int, *, noise: float, stiffness: float = 1.5) -> Recording:
    """Two bodies of mass 1 that pull each other by k r: they circle about a centre that moves straight on."""
    random = np.random.default_rng(seed)
    time, rate = 0.05 * np.arange(121), np.sqrt(2 * stiffness)
    runs = []
    for _ in range(3):
        center, drift = random.uniform(-1, 1, 2), random.uniform(-0.3, 0.3, 2)
        far, near = np.array([1.2, 0.0]), np.array([0.0, random.uniform(0.5, 0.9)])
        phase = rate * time[:, None]
        apart = far * np.cos(phase) + near * np.sin(phase)
        speed = rate * (near * np.cos(phase) - far * np.sin(phase))
        middle = center + drift * time[:, None]
        position = np.stack([middle + apart / 2, middle - apart / 2], axis=1)
        velocity = np.stack([drift + speed / 2, drift - speed / 2], axis=1)
        runs.append(Run(time, position, velocity, None))
    return add_noise(Recording(tuple(runs), 0.05, Scene(2, 2)), noise, seed=seed)


@pytest.mark.campaign
def test_a_pull_between_two_bodies_holds_for_three():
    """Learned from two, it is k r at the distances seen, conserves momentum and adds up for three bodies."""
    settings = replace(PLAIN, potential="pairs", hidden=16, learn=())
    model = fit_recording(springs(1, noise=0.01), settings).model
    for distance in (0.9, 1.0, 1.1):
        slope = model.slope(jnp.array([[0.0, 0.0], [distance, 0.0]]))
        np.testing.assert_allclose(slope[1, 0], 1.5 * distance, rtol=0.1)
    three = in_scene(model, Scene(3, 2))
    place = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.9]])
    pairs = three.forces[1].gradient(place, three.bodies.masses)
    np.testing.assert_allclose(np.sum(pairs, axis=0), 0, atol=1e-5)
    expected = sum(1.5 * (place[2] - place[other]) for other in (0, 1))
    np.testing.assert_allclose(pairs[2], expected, rtol=0.1, atol=0.15)


def test_what_does_not_move_to_another_scene():
    two, five = (Billiards(radii=(0.1,) * count) for count in (2, 5))
    joint = Mechanism.of(two.scene(), 0.01, forces=learned_potentials(two.scene(), "joint", 4))
    with pytest.raises(InputError, match="joint potential"):
        in_scene(joint, five.scene())
    single = Mechanism.of(Billiards(radii=(0.1,)).scene(), 0.01)
    with pytest.raises(InputError, match="no pairs"):
        in_scene(single, two.scene())
    space = Billiards(radii=(0.1, 0.1), size=(1.0, 1.0, 1.0))
    with pytest.raises(InputError, match="2 dimensions"):
        in_scene(Mechanism.of(two.scene(), 0.01), space.scene())
