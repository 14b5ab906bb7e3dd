"""Every nuisance of a camera has the size that it states, and all follow from the seed."""

import numpy as np
import pytest

from carom.data import Camera, Recording, Run, film, film_motions, read_camera
from carom.data.camera import PRESETS
from carom.errors import InputError
from carom.mechanics import Scene
from carom.systems import BouncingBall

FRAMES = 4000


@pytest.fixture(scope="module")
def exact():
    """Two bodies that move smoothly in the plane, a sample per frame at 100 Hz."""
    time = np.arange(FRAMES) / 100
    angle = 2 * np.pi * time[:, None] * np.array([0.5, 0.3])
    position = np.stack([np.cos(angle), np.sin(angle)], axis=-1) + np.array([[0.0, 0.0], [3.0, 0.0]])
    velocity = np.gradient(position, time, axis=0)
    return Recording((Run(time, position, velocity),), 0.01, Scene(bodies=2, dimension=2))


def filmed(exact, seed=0, **settings):
    return film_motions(exact, Camera(frame_rate=100, **settings), seed=seed)


def test_a_perfect_camera_changes_nothing(exact):
    recording, ideal = filmed(exact)
    for run in (recording.runs[0], ideal.runs[0]):
        np.testing.assert_allclose(run.position, exact.runs[0].position, atol=1e-12)
        np.testing.assert_array_equal(run.time, exact.runs[0].time)
    assert recording.runs[0].velocity is None


def test_noise_and_pixels(exact):
    recording, ideal = filmed(exact, noise=0.01, pixel=0.004)
    position = recording.runs[0].position
    np.testing.assert_allclose(position / 0.004, np.round(position / 0.004), atol=1e-6)
    error = position - ideal.runs[0].position
    # Rounding adds the variance of a uniform distribution.
    assert error.std() == pytest.approx(np.hypot(0.01, 0.004 / np.sqrt(12)), rel=0.03)
    assert abs(error.mean()) < 5e-4


@pytest.mark.parametrize(("smoothing", "gain"), [("average", 1 / 7), ("savitzky-golay", 1 / 3)])
def test_smoothing_leaves_less_and_correlated_noise(exact, smoothing, gain):
    """White noise keeps Σ c² of its variance: 1/7 of a mean of 7, 1/3 of a quadratic fit to 7."""
    plain, _ = filmed(exact, noise=0.01)
    smooth, _ = filmed(exact, noise=0.01, smoothing=smoothing, window=7)
    assert not np.array_equal(plain.runs[0].position, smooth.runs[0].position)
    without, _ = filmed(exact, smoothing=smoothing, window=7)
    error = (smooth.runs[0].position - without.runs[0].position)[10:-10]  # filters are linear
    assert error.var() == pytest.approx(gain * 1e-4, rel=0.05)
    neighbours = np.mean(error[1:] * error[:-1]) / error.var()
    assert neighbours > 0.5


def test_repeated_and_dropped_frames_and_jitter(exact):
    recording, ideal = filmed(exact, noise=0.001, repeated=0.05, dropped=0.1, jitter=0.001)
    run = recording.runs[0]
    assert 1 - len(run) / FRAMES == pytest.approx(0.1, abs=0.02)
    jitter = run.time - ideal.runs[0].time
    assert jitter.std() == pytest.approx(0.001, rel=0.05)
    assert (np.diff(run.time) > 0).all()
    whole, _ = filmed(exact, noise=0.001, repeated=0.05)
    same = np.all(np.diff(whole.runs[0].position, axis=0) == 0, axis=(1, 2))
    assert same.mean() == pytest.approx(0.05, abs=0.01)


def test_outliers_and_swaps(exact):
    recording, ideal = filmed(exact, outliers=0.03, outlier_size=0.5)
    error = recording.runs[0].position - ideal.runs[0].position
    wrong = np.any(error != 0, axis=-1)
    assert wrong.mean() == pytest.approx(0.03, abs=0.006)
    assert error[wrong].std() == pytest.approx(0.5, rel=0.1)
    recording, ideal = filmed(exact, swapped=0.05)
    exchanged = np.all(recording.runs[0].position == ideal.runs[0].position[:, ::-1], axis=(1, 2))
    assert exchanged.mean() == pytest.approx(0.05, abs=0.015)


def test_lens_and_tilt(exact):
    camera = Camera(distortion=0.01, tilt=1.0)
    centre, edge = np.zeros(2), np.array([[[2.0, 0.0]]])
    seen = camera.view(edge, centre, 2.0)[0, 0]
    assert np.linalg.norm(seen) == pytest.approx(2.02)
    assert np.degrees(np.arctan2(seen[1], seen[0])) == pytest.approx(1.0)
    np.testing.assert_allclose(camera.view(np.zeros((1, 1, 2)), centre, 2.0), 0)


def test_the_hand_ends_where_and_as_fast_as_the_motion_begins(exact):
    recording, _ = filmed(exact, hand=0.3)
    run, start = recording.runs[0], exact.runs[0]
    assert len(run) == FRAMES + 30
    np.testing.assert_allclose(run.position[30:], start.position, atol=1e-12)
    velocity = (run.position[30] - run.position[29]) / 0.01
    np.testing.assert_allclose(velocity, start.velocity[0], atol=0.3)
    assert np.linalg.norm(run.position[1] - run.position[0], axis=-1).max() < 0.01


def test_one_seed_one_recording_and_nuisances_are_independent(exact):
    first, again, other = (filmed(exact, seed, noise=0.01, outliers=0.01)[0].runs[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.position, again.position)
    assert not np.array_equal(first.position, other.position)
    more = filmed(exact, 1, noise=0.01, outliers=0.01, dropped=0.1)
    kept = np.isin(exact.runs[0].time, more.ideal.runs[0].time)
    np.testing.assert_array_equal(more.recording.runs[0].position, first.position[kept])


@pytest.mark.parametrize("name", PRESETS)
def test_presets_film_a_ball(name):
    recording = film(BouncingBall(restitution=0.8), read_camera(name), frames=50, seed=3)
    assert recording.step_size == pytest.approx(1 / PRESETS[name].frame_rate)
    assert 40 < recording.samples <= 50


def test_files_are_read_and_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[camera]\nframe_rate = 60\nsmoothing = "average"\nwindow = 9\n')
    assert read_camera(str(path)) == Camera(frame_rate=60, smoothing="average", window=9)
    path.write_text("[camera]\ndroped = 0.1\n")
    with pytest.raises(InputError, match="did you mean dropped"):
        read_camera(str(path))
    with pytest.raises(InputError, match="phone-30fps"):
        read_camera("telephone")
