"""Rates of a touch sensor: closed forms, random sensors within their errors, and no harm by a useless one."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

import carom
from carom.data import Recording, disturb_touch, simulate
from carom.estimation.detection import detect_impacts
from carom.estimation.detection.sensor_rates import DELAYS, Counts, estimate_rates, sensor_parameters
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.systems import BouncingBall, NewtonsCradle
from carom.types import State
from tests.campaign import shortened

UNKNOWN = TouchSensor()


def assert_like(share, distribution) -> None:
    """A posterior on the grid against one in closed form."""
    assert share.mean == pytest.approx(distribution.mean(), rel=1e-3)
    assert share.deviation == pytest.approx(distribution.std(), rel=5e-3)
    np.testing.assert_allclose([share.low, share.high], distribution.ppf([0.025, 0.975]), rtol=0.05)


@pytest.mark.parametrize(("samples", "readings"), [(500, 0), (500, 7), (20, 19), (10**6, 10**4)])
def test_without_impacts_every_reading_is_false(samples, readings):
    counts = Counts(samples, readings, {0: np.zeros(2, int)})
    estimate = estimate_rates(TouchSensor(delay=0), [counts])
    assert_like(estimate.false, beta(readings + 0.5, samples - readings + 0.5))
    assert_like(estimate.missed, beta(0.5, 0.5))


@pytest.mark.parametrize(("seen", "unseen"), [(4, 0), (0, 4), (30, 12), (900, 100)])
def test_where_no_reading_is_false_impacts_count_alone(seen, unseen):
    counts = Counts(10**5, seen, {0: np.array([unseen, seen])})
    estimate = estimate_rates(TouchSensor(false=0.0, delay=0), [counts])
    assert_like(estimate.missed, beta(unseen + 0.5, seen + 0.5))
    assert estimate.sensor.false == 0.0


def test_runs_count_together():
    one = Counts(100, 3, {1: np.array([1, 2, 0, 0])})
    twice = Counts(200, 6, {1: np.array([2, 4, 0, 0])})
    sensor = TouchSensor(delay=1)
    assert estimate_rates(sensor, [one, one]).sensor == estimate_rates(sensor, [twice]).sensor


def test_random_sensors_within_their_errors():
    """Over 100 sensors: errors of the stated size, intervals that cover, and the right delay."""
    random, away, inside, right = np.random.default_rng(0), [], [], 0
    for _ in range(100):
        true = random.uniform(0, 0.6), 10 ** random.uniform(-3, -0.5)
        delay = int(random.integers(0, 4))
        reading = random.random(3000) < true[1]
        hits = random.choice(np.arange(10, 2990, 12), 40, replace=False)
        for hit in hits[random.random(40) >= true[0]]:
            reading[hit + random.integers(-delay, delay + 1)] = True
        # Counted here by hand, one impact at a time.
        near = {
            d: np.bincount([reading[hit - d : hit + d + 1].sum() for hit in hits], minlength=2 * d + 2)
            for d in DELAYS
        }
        estimate = estimate_rates(UNKNOWN, [Counts(3000, int(reading.sum()), near)])
        for share, rate in zip((estimate.missed, estimate.false), true, strict=True):
            away.append((share.mean - rate) / share.deviation)
            inside.append(share.low <= rate <= share.high)
        right += estimate.sensor.delay == delay
    assert 0.7 < np.std(away) < 1.3
    assert np.mean(inside) > 0.9
    assert right >= 90


def balls(seed: int, *, noise: float = 0.2, runs: int = 12, restitution: float = 0.9) -> Recording:
    """Balls dropped from several heights; some 30 impacts in all."""
    heights = np.random.default_rng(seed).uniform(4, 10, runs)
    starts = [State(jnp.full((1, 1), height), jnp.zeros((1, 1))) for height in heights]
    ball = BouncingBall(restitution=restitution)
    return simulate(ball, steps=200, step_size=0.02, starts=starts, noise=noise, seed=seed)


def true_steps(recording: Recording) -> list[np.ndarray]:
    return [run.touch[1:] for run in recording.runs if run.touch is not None]


def assert_found(impacts, true) -> None:
    for found, touch in zip(impacts, true, strict=True):
        np.testing.assert_array_equal(found.chosen, touch)


@pytest.mark.parametrize(
    ("missed", "false", "shift"),
    shortened(
        [(0.0, 0.0, 0), (0.3, 0.02, 1), (0.1, 0.1, 3), (0.6, 0.005, 2)], [(0.3, 0.02, 1), (0.6, 0.005, 2)]
    ),
)
def test_rates_and_impacts_together(missed, false, shift):
    recording = balls(1)
    readings = disturb_touch(recording, missed=missed, false=false, shift=shift, seed=1)
    impacts, estimate = detect_impacts(readings, sensor=UNKNOWN)
    assert_found(impacts, true_steps(recording))
    assert estimate.delays[shift] > 0.05
    for share, rate in ((estimate.missed, missed), (estimate.false, false)):
        assert abs(share.mean - rate) < 4 * share.deviation
        assert 0 < share.mean < 1


@pytest.mark.parametrize("rate", shortened([0.02, 0.2, 0.5, 0.95], [0.02, 0.5]))
def test_a_sensor_that_is_noise_does_no_harm(rate):
    recording, random = balls(2), np.random.default_rng(2)
    runs = [replace(run, touch=random.random(run.touch.shape) < rate) for run in recording.runs]
    noise = replace(recording, runs=tuple(runs))
    impacts, estimate = detect_impacts(noise, sensor=UNKNOWN)
    assert_found(impacts, true_steps(recording))
    # Whether it reads or not, it hardly changes the odds of an impact.
    odds = estimate.sensor.log_odds(runs[0].touch[:, 0])
    assert np.abs(odds).max() < 1.5


def test_a_good_sensor_helps_where_the_motion_alone_does_not_show_impacts():
    """Slow bounces in much noise: with readings that it was told nothing of, more true impacts are found."""
    right, wrong = {None: 0, UNKNOWN: 0}, {None: 0, UNKNOWN: 0}
    for seed in range(2):
        recording = balls(seed, noise=6.0)
        readings = disturb_touch(recording, missed=0.05, false=0.002, shift=0, seed=seed)
        true = true_steps(recording)
        for sensor in right:
            impacts, _ = detect_impacts(readings, sensor=sensor)
            right[sensor] += sum(int((i.chosen & t).sum()) for i, t in zip(impacts, true, strict=True))
            wrong[sensor] += sum(int((i.chosen & ~t).sum()) for i, t in zip(impacts, true, strict=True))
    assert right[UNKNOWN] > 1.1 * right[None]
    assert wrong[UNKNOWN] < 0.5 * wrong[None]


def test_both_bodies_of_a_pair_have_a_sensor():
    recording = simulate(NewtonsCradle(), steps=540, step_size=0.01, noise=0.02, seed=3)
    readings = disturb_touch(recording, missed=0.2, false=0.01, shift=1, seed=3)
    impacts, estimate = detect_impacts(readings, sensor=UNKNOWN)
    assert_found(impacts, [touch[:, :1] for touch in true_steps(recording)])
    assert estimate.impacts == 2 * impacts[0].chosen.sum()


def test_a_ball_at_rest_does_not_read_false():
    """On the floor it is touched at every sample, which says nothing of false readings."""
    ball = BouncingBall(restitution=0.5)
    recording = simulate(ball, steps=400, step_size=0.02, noise=0.05, seed=4)
    _, estimate = detect_impacts(recording, sensor=UNKNOWN)
    assert recording.runs[0].touch.mean() > 0.2
    assert estimate.sensor.false < 0.03


def test_what_is_given_is_kept_and_not_reported():
    recording = disturb_touch(balls(5), missed=0.1, false=0.01, shift=1, seed=5)
    given = TouchSensor(missed=0.25, delay=2)
    _, estimate = detect_impacts(recording, sensor=given)
    assert (estimate.sensor.missed, estimate.sensor.delay) == (0.25, 2)
    (parameter,) = sensor_parameters(estimate)
    assert parameter.name.startswith("fraction of samples")
    everything = replace(given, false=0.5)
    assert detect_impacts(recording, sensor=everything)[1] is None


@pytest.mark.parametrize(
    "rates", [{"missed": -0.1}, {"missed": 1.5}, {"false": float("nan")}, {"delay": -1}, {"delay": 1000}]
)
def test_impossible_sensors_are_refused(rates):
    with pytest.raises(carom.InputError, match=next(iter(rates))):
        TouchSensor(**rates)
