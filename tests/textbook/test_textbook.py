"""The textbook's regression recovers the truth where the textbook is right, and says what it chose."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from carom.data import Camera, Recording, Run, film_motions
from carom.evaluation import fit_textbook
from carom.mechanics import Pair, Scene, Wall
from carom.systems import Billiards, BouncingBall, Laboratory
from carom.textbook.velocity_jumps import find_jumps, noise_level, without_outliers
from carom.types import State


def filmed(system, starts, *, frames, **camera):
    """The recording, what an ideal tracker sees, and the true impacts."""
    camera = Camera(**camera)
    motions = [system.motion(start, np.arange(frames) / camera.frame_rate) for start in starts]
    runs = tuple(Run(motion.time, motion.position, motion.velocity) for motion, _ in motions)
    result = film_motions(Recording(runs, camera.step_size, system.scene()), camera, seed=0)
    return result, [[(hit.time, hit.contact) for hit in hits] for _, hits in motions]


def drops(count):
    return [State(jnp.full((1, 1), h), jnp.zeros((1, 1))) for h in np.linspace(0.8, 1.2, count)]


@pytest.fixture(scope="module")
def plain():
    ball = Laboratory(BouncingBall(restitution=0.8))
    return filmed(ball, drops(6), frames=180, frame_rate=120, noise=0.0005)


@pytest.mark.parametrize("given", [True, False])
def test_a_ball_in_free_fall(plain, given):
    (recording, ideal), impacts = plain
    model = fit_textbook(recording, impacts=impacts if given else None)
    assert model.variant.law == "constant"
    assert not model.variant.drag
    for name, truth in (
        ("acceleration along axis 1", -9.81),
        ("restitution of walls", 0.8),
        ("surface of body 1 at the wall", 0.0),
    ):
        value, error = model.parameters[name]
        assert abs(value - truth) < 4 * error
    assert model.noise == pytest.approx(0.0005, rel=0.1)
    assert "restitution of walls" in model.describe()
    history, true = recording.runs[2].part(slice(0, 30)), ideal.runs[2]
    error = model.forecast(history, true.time) - true.position
    assert np.sqrt(np.mean(error**2)) < 0.002


def test_the_floor_is_found_without_a_scene(plain):
    (recording, _), _ = plain
    model = fit_textbook(replace(recording, scene=None))
    (wall,) = model.scene.candidates
    assert isinstance(wall, Wall)
    assert wall.normal == (1.0,)
    assert abs(wall.offset) < 0.001


def test_drag_and_restitution_by_speed_are_chosen_where_they_are():
    ball = Laboratory(BouncingBall(restitution=0.85), drag=0.1, restitution_loss=0.03)
    (recording, _), impacts = filmed(ball, drops(8), frames=150, frame_rate=90, noise=0.0005)
    model = fit_textbook(recording, impacts=impacts)
    assert model.variant.drag
    assert model.variant.law == "linear"
    assert model.parameters["drag"].value == pytest.approx(0.1, abs=0.01)
    assert model.parameters["restitution of walls"].value == pytest.approx(0.85, abs=0.01)
    assert model.parameters["restitution of walls by speed"].value == pytest.approx(-0.03, abs=0.005)
    # Beyond the speeds that were seen e stays what it is at their ends.
    far = model.coefficient(np.array([20.0, 1e3]), np.zeros(2, int))
    assert far[0] == far[1] > 0.6


def test_two_pucks_between_walls():
    table = Billiards(size=(1.0, 0.6), radii=(0.07, 0.07), ball_masses=(1.0, 2.0), restitution=0.9)
    starts = [table.random_start(seed) for seed in range(8)]
    (recording, ideal), _ = filmed(Laboratory(table), starts, frames=120, frame_rate=120, noise=0.0003)
    model = fit_textbook(recording)
    assert model.parameters["restitution of walls"].value == pytest.approx(0.9, abs=0.005)
    assert model.parameters["restitution of pairs"].value == pytest.approx(0.9, abs=0.02)
    smooth = 0.0 if model.variant.sliding else 1.0
    assert model.tangential[0] == pytest.approx(smooth, abs=0.02)
    np.testing.assert_array_equal(model.acceleration, 0)
    start = State(starts[0].position, starts[0].velocity)
    path = model.predict(start, ideal.runs[0].time)
    assert np.abs(path - ideal.runs[0].position).max() < 0.03


def test_prediction_is_exact_up_to_its_steps_and_rests():
    ball = BouncingBall(restitution=0.5)
    times = np.linspace(0, 6, 301)
    exact = ball.exact(ball.start, times).position
    recording = Recording((Run(times[:150], exact[:150]),), 0.02, ball.scene())
    model = replace(fit_textbook(recording), acceleration=np.array([-9.81]), scene=ball.scene())
    model.restitution[0] = 0.5, 0.0
    path = model.predict(ball.start, times)
    assert np.abs(path - exact).max() < 0.01
    assert abs(path[-1, 0, 0]) < 1e-9


def test_jumps_and_outliers():
    time = np.arange(100) / 100
    position = np.where(time < 0.503, time, 0.503 - 0.6 * (time - 0.503))[:, None, None]
    noisy = position + 0.001 * np.random.default_rng(0).standard_normal(position.shape)
    noisy[20] += 0.2
    clean = without_outliers(Run(time, noisy))
    assert np.flatnonzero(np.isnan(clean.position).any(axis=(1, 2))).tolist() == [20]
    (jump,) = find_jumps(clean)
    assert jump.time == pytest.approx(0.503, abs=0.01)
    assert jump.change[0] == pytest.approx(-1.6, rel=0.05)
    assert noise_level(noisy[:, 0]) == pytest.approx(0.001, rel=0.4)


def test_riders_on_a_track_are_a_pair():
    scene = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1, 0.1),), masses=(1.0, 2.0))
    generator, runs = np.random.default_rng(1), []
    time = np.arange(120) / 60
    for speed in np.linspace(0.3, 0.8, 6):
        meet = 1.0
        before = np.array([0.0, speed])
        impulse = 1.8 * speed / (1 + 1 / 2)
        after = before + np.array([impulse, -impulse / 2])
        place = (
            np.array([0.6, 0.5]) + np.where((time < meet)[:, None], before, after) * (time - meet)[:, None]
        )
        runs.append(Run(time, (place + 0.0005 * generator.standard_normal(place.shape))[:, :, None]))
    model = fit_textbook(Recording(tuple(runs), 1 / 60, scene))
    assert model.parameters["restitution of pairs"].value == pytest.approx(0.8, abs=0.01)
    assert model.parameters["surface between bodies 1 and 2"].value == pytest.approx(0.1, abs=0.001)
