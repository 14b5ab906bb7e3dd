"""Impacts found in noisy motion: the right steps, no others, whatever the units, the place and the hour."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from carom.data import Run, simulate
from carom.estimation.detection import impacts
from carom.estimation.detection.touch_sensor import PERFECT, TouchSensor
from carom.mechanics import Pair, Scene, Wall
from carom.systems import BouncingBall, NewtonsCradle, Pendulum
from tests.campaign import shortened

H = 0.02
SENSOR = TouchSensor(missed=0.1, false=0.01, delay=1)
SEEDS = range(100, 103)
SEED = shortened(SEEDS, SEEDS[1:])
# As long as bounces of a ball dropped from 10 m are clearly apart and clearly above the noise of 0.2.
STEPS = {1.0: 500, 0.9: 460, 0.8: 470, 0.6: 250, 0.5: 190}


def find_impacts(run, scene, **options):
    """The impacts of a single run."""
    return impacts.find_impacts([run], scene, **options)[0]


def ball(restitution, seed, *, noise=0.2):
    """A noisy run of the exact ball, its scene, and the steps in which it hits the floor."""
    system = BouncingBall(restitution=restitution)
    recording = simulate(system, steps=STEPS[restitution], step_size=H, noise=noise, seed=seed)
    return recording.runs[0], recording.scene, steps_of(recording.runs[0].touch)


def pendulum(seed, noise=0.0):
    recording = simulate(Pendulum(), steps=200, step_size=H, noise=noise, seed=seed)
    return recording.runs[0], recording.scene


def steps_of(touch):
    """Touch at sample n + 1 is an impact in step n."""
    return np.flatnonzero(touch[1:].any(axis=1))


def found_steps(run, scene, contact=0, *, sensor=None, **options):
    return np.flatnonzero(find_impacts(run, scene, sensor=sensor, **options).chosen[:, contact])


@pytest.mark.parametrize("restitution", STEPS)
@pytest.mark.parametrize("seed", SEED)
def test_ball(restitution, seed):
    run, scene, true = ball(restitution, seed)
    found = find_impacts(run, scene, sensor=None)
    np.testing.assert_array_equal(np.flatnonzero(found.chosen[:, 0]), true)
    # The fit estimates the noise anew.
    np.testing.assert_allclose(found.noise, 0.2, rtol=0.25)
    # On the floor, at √(2 g · 10 m) eⁿ, reversed by e; a rate has an error of about 0.3.
    speed = np.sqrt(2 * 9.81 * 10) * restitution ** np.arange(len(true))
    np.testing.assert_allclose(found.before[true, 0], -speed, atol=1.2)
    np.testing.assert_allclose(found.after[true, 0], restitution * speed, atol=1.2)
    np.testing.assert_allclose(found.gap[true, 0], 0, atol=0.5)


@pytest.mark.parametrize("masses_known", [True, False])
@pytest.mark.parametrize("seed", SEED)
def test_cradle(seed, masses_known):
    recording = simulate(NewtonsCradle(), steps=540, step_size=0.01, noise=0.02, seed=seed)
    run = recording.runs[0]
    found = found_steps(run, recording.scene, masses_known=masses_known)
    np.testing.assert_array_equal(found, steps_of(run.touch))


def test_an_impact_that_passes_through_a_ball():
    """In a cradle of three both contacts carry the impulse at the same instant."""
    recording = simulate(NewtonsCradle(balls=3), steps=540, step_size=0.01, noise=0.02, seed=0)
    run = recording.runs[0]
    for contact in range(2):
        np.testing.assert_array_equal(found_steps(run, recording.scene, contact), steps_of(run.touch))


def straight(scene, position, velocity, impact, row, restitution, *, samples=120):
    """Bodies without forces that meet `impact` seconds after the first sample; `row` is G there."""
    masses = np.array(scene.masses)[:, None]
    rate, compliance = np.sum(row * velocity), np.sum(row**2 / masses)
    after = velocity - (1 + restitution) * rate / compliance * row / masses
    time = np.arange(samples) * H
    since = (time - impact)[:, None, None]
    touch = np.zeros((samples, scene.bodies), bool)
    touch[int(np.ceil(impact / H))] = True
    return Run(
        time,
        position + np.where(since < 0, velocity, after) * since,
        np.where(since < 0, velocity, after) + np.zeros_like(since),
        touch,
    )


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def oblique_wall(random, turn):
    """A body against a tilted wall, all turned by an angle."""
    normal = turn @ [0.6, 0.8]
    scene = Scene(1, 2, (Wall(0, tuple(normal), offset=0.4),))
    along = turn @ [0.8, -0.6]
    velocity = (-random.uniform(2, 4) * normal + random.normal() * along)[None]
    position = (0.4 * normal)[None]
    run = straight(scene, position, velocity, random.uniform(0.8, 1.6), normal[None], random.uniform(0.3, 1))
    return run, scene


def discs(random, turn):
    """Two discs of unlike mass that collide, all turned by an angle."""
    normal, along = turn.T
    scene = Scene(2, 2, (Pair(0, 1, 0.5),), masses=(1.0, 2.5))
    position = np.stack([0.25 * normal, -0.25 * normal]) + random.normal() * along
    velocity = np.stack([-random.uniform(2, 4) * normal + 0.3 * along, 0.5 * normal - 0.3 * along])
    row = np.stack([normal, -normal])
    run = straight(scene, position, velocity, random.uniform(0.8, 1.6), row, random.uniform(0.3, 1))
    return run, scene


@pytest.mark.parametrize("build", [oblique_wall, discs])
@pytest.mark.parametrize("seed", shortened(range(5), range(2, 5)))
def test_in_the_plane(build, seed):
    """Walls at a slope and discs of unlike mass, turned by any angle."""
    for angle in (0.0, 1.0):
        random, turn = np.random.default_rng(seed), rotation(angle)
        run, scene = build(random, turn)
        noise = 0.05 * random.normal(size=(2, *run.position.shape)) @ turn.T
        noisy = replace(run, position=run.position + noise[0], velocity=run.velocity + noise[1])
        for masses_known in (True, False):
            found = found_steps(noisy, scene, masses_known=masses_known)
            np.testing.assert_array_equal(found, steps_of(run.touch))


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_no_impacts_in_a_pendulum(noise):
    """A force that varies in place is no impact, over six swings."""
    for seed in range(6):
        run, scene = pendulum(seed, noise)
        assert not find_impacts(run, scene).chosen.any()


@pytest.mark.parametrize(
    ("position_noise", "velocity_noise"),
    shortened(
        [(0.1, 0.1), (0.02, 0.2), (0.2, 0.01), (0.001, 0.2), (0.001, 1.0)], [(0.02, 0.2), (0.001, 0.2)]
    ),
)
def test_no_impacts_whatever_the_noises(position_noise, velocity_noise):
    """Positions and velocities of unlike quality: neither false alarms nor a wrong estimate of the noise."""
    alarms, estimates = 0, []
    for seed in range(6):
        run, scene = pendulum(seed)
        random = np.random.default_rng(seed)
        position = run.position + position_noise * random.normal(size=run.position.shape)
        velocity = run.velocity + velocity_noise * random.normal(size=run.velocity.shape)
        found = find_impacts(replace(run, position=position, velocity=velocity), scene, sensor=None)
        alarms += found.chosen.sum()
        estimates.append(found.noise)
    assert alarms == 0
    larger = int(velocity_noise > position_noise)
    np.testing.assert_allclose(
        np.mean(estimates, axis=0)[larger], (position_noise, velocity_noise)[larger], rtol=0.15
    )


@pytest.mark.parametrize(("restitution", "noise"), [(1.0, 0.1), (1.0, 0.02), (0.9, 0.05), (0.9, 0.02)])
@pytest.mark.parametrize("seed", SEED)
def test_positions_alone(restitution, noise, seed):
    """Without velocities an impact is found within a step of where it is."""
    run, scene, true = ball(restitution, seed, noise=noise)
    run = Run(run.time[:401], run.position[:401])
    found, true = found_steps(run, scene), true[true < 390]
    assert len(found) == len(true)
    np.testing.assert_allclose(found, true, atol=1)


@pytest.mark.parametrize("seed", SEED)
def test_positions_alone_without_noise(seed):
    """Where nothing hides the kink, the step is the right one."""
    for restitution in (1.0, 0.9, 0.8):
        run, scene, true = ball(restitution, seed, noise=1e-4)
        found = found_steps(Run(run.time[:401], run.position[:401]), scene)
        np.testing.assert_array_equal(found, true[true < 390])


@pytest.mark.parametrize("restitution", [0.9, 0.8])
@pytest.mark.parametrize("seed", SEED)
def test_missing_samples(restitution, seed):
    """One in ten is missing: exact where the samples beside an impact are there, near where they are not."""
    run, scene, true = ball(restitution, seed)
    random = np.random.default_rng(seed)
    beside = np.isin(np.arange(len(run)), [true - 1, true, true + 1, true + 2])
    lost = random.uniform(size=(2, len(run), 1, 1)) < 0.1
    for keep, tolerance in ((beside, 0), (np.zeros(len(run), bool), 3)):
        gone = lost & ~keep[:, None, None]
        position, velocity = (
            np.where(g, np.nan, x) for g, x in zip(gone, (run.position, run.velocity), strict=True)
        )
        found = find_impacts(replace(run, position=position, velocity=velocity), scene, sensor=None)
        assert not np.isnan(found.log_odds).any()
        assert np.isfinite(found.noise).all()
        steps = np.flatnonzero(found.chosen[:, 0])
        assert len(steps) == len(true)
        np.testing.assert_allclose(steps, true, atol=tolerance)


@pytest.mark.parametrize("jitter", [0.2, 0.45])
@pytest.mark.parametrize("restitution", [1.0, 0.8])
@pytest.mark.parametrize("seed", SEED)
def test_steps_that_vary(restitution, jitter, seed):
    """Samples up to nearly half a step early or late: neighbouring steps are up to 19 times as long."""
    random, system = np.random.default_rng(seed), BouncingBall(restitution=restitution)
    time = H * (np.arange(STEPS[restitution]) + jitter * random.uniform(-1, 1, STEPS[restitution]))
    motion = system.exact(system.start, time)
    noise = 0.2 * random.normal(size=(2, len(time), 1, 1))
    run = Run(time, motion.position + noise[0], motion.velocity + noise[1])
    np.testing.assert_array_equal(found_steps(run, system.scene()), steps_of(motion.contact))


@pytest.mark.parametrize("lost", [slice(0, 20), slice(100, 140), slice(-20, None)])
def test_a_stretch_without_samples(lost):
    """Longer than the window, at the start, in between and at the end; other impacts are still found."""
    run, scene, true = ball(0.9, 100)
    position, velocity = run.position.copy(), run.velocity.copy()
    position[lost], velocity[lost] = np.nan, np.nan
    found = found_steps(replace(run, position=position, velocity=velocity), scene)
    np.testing.assert_array_equal(found, true)


@pytest.mark.parametrize("samples", [2, 3, 6, 9, 12])
def test_short_runs(samples):
    run, scene, _ = ball(1.0, 100)
    short = Run(run.time[:samples], run.position[:samples], run.velocity[:samples])
    found = find_impacts(short, scene, sensor=None)
    assert found.chosen.shape == (samples - 1, 1)
    assert np.isfinite(found.noise).all()


def test_log_odds_of_a_prompt_sensor():
    """Bayes' rule by hand: a reading has odds (0.9 + 0.1 · 0.01)/0.01, none has 0.1 · 0.99/0.99."""
    sensor = TouchSensor(missed=0.1, false=0.01, delay=0)
    silent, touched = np.log(0.1 * 0.99 / 0.99), np.log((0.9 + 0.1 * 0.01) / 0.01)
    reading = np.array([False, True, False, False, True, True])
    np.testing.assert_allclose(sensor.log_odds(reading), np.where(reading, touched, silent), rtol=1e-12)
    assert silent < 0 < touched
    # A coin says nothing, a perfect sensor much.
    coin = TouchSensor(missed=1.0, false=0.5, delay=0).log_odds(reading)
    np.testing.assert_allclose(coin, 0, atol=1e-6)
    certain = PERFECT.log_odds(reading)
    assert (certain[reading] > 10).all()
    assert (certain[~reading] < -10).all()


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_log_odds_by_enumeration(delay):
    """The ratio of the probabilities of all readings, with an impact in the middle and without.

    A sensor that notices the impact reads it at a sample drawn from those within `delay`; every other sample
    may read by mistake, and so may that one where the impact goes unnoticed.
    """
    missed, false = 0.2, 0.05
    sensor = TouchSensor(missed=missed, false=false, delay=delay)
    samples, middle = 7, 3

    def by_mistake(reading, skip=None):
        each = np.where(reading, false, 1 - false)
        return np.prod(np.delete(each, skip) if skip is not None else each)

    places = range(middle - delay, middle + delay + 1)
    for bits in product([False, True], repeat=samples):
        reading = np.array(bits)
        noticed = np.mean([reading[place] * by_mistake(reading, place) for place in places])
        with_impact = (1 - missed) * noticed + missed * by_mistake(reading)
        expected = np.log(with_impact / by_mistake(reading))
        np.testing.assert_allclose(sensor.log_odds(reading)[middle], expected, rtol=1e-9, atol=1e-12)


def imperfect(touch, random, *, missed=0.1, false=0.01, delay=1):
    """What a poor sensor would have recorded."""
    reading = random.uniform(size=len(touch)) < false
    for sample in np.flatnonzero(touch):
        if random.uniform() > missed:
            reading[np.clip(sample + random.integers(-delay, delay + 1), 0, len(touch) - 1)] = True
    return reading


@pytest.mark.parametrize("restitution", [1.0, 0.8, 0.6])
@pytest.mark.parametrize("seed", SEED)
def test_an_imperfect_sensor_does_not_mislead(restitution, seed):
    run, scene, true = ball(restitution, seed)
    reading = imperfect(run.touch[:, 0], np.random.default_rng(seed))
    touched = replace(run, touch=reading[:, None])
    found = find_impacts(touched, scene, sensor=SENSOR)
    np.testing.assert_array_equal(np.flatnonzero(found.chosen[:, 0]), true)
    # It weighs in: between impacts the log-odds rise beside a reading and fall elsewhere, by Bayes' rule.
    with_sensor = found.log_odds[:, 0]
    without = find_impacts(touched, scene, sensor=None).log_odds[:, 0]
    possible = np.isfinite(without) & (np.abs(np.arange(len(without))[:, None] - true).min(axis=1) > 5)
    np.testing.assert_allclose(
        with_sensor[possible] - without[possible], SENSOR.log_odds(reading)[1:][possible], atol=1e-6
    )


def test_a_perfect_sensor_allows_no_other_impact():
    """Slow bounces in much noise: impacts are where the sensor reads, and nowhere else."""
    system = BouncingBall()
    low = replace(system.start, position=system.start.position / 10)
    for seed in SEEDS:
        recording = simulate(system, steps=300, step_size=H, noise=1.0, seed=seed, starts=[low])
        run = recording.runs[0]
        found = found_steps(run, recording.scene, sensor=PERFECT)
        assert np.isin(found, steps_of(run.touch)).all()
        assert len(found) > 0


def moved(run, scene, *, length=1.0, time=1.0, shift=0.0, later=0.0):
    """The same experiment in other units, at another place and another hour."""
    (wall,) = scene.candidates
    there = Run(
        (run.time + later) * time,
        (run.position + shift) * length,
        None if run.velocity is None else run.velocity * length / time,
        run.touch,
    )
    return there, replace(scene, candidates=(replace(wall, offset=(wall.offset + shift) * length),))


@pytest.fixture(scope="module", params=[False, True], ids=["positions", "touch"])
def found_here(request):
    """A run with what is found in it, with and without touch, before it is moved or measured otherwise."""
    run, scene, true = ball(0.8, 100)
    sensor = SENSOR if request.param else None
    return run, scene, true, sensor, find_impacts(run, scene, sensor=sensor)


@pytest.mark.parametrize(
    "change",
    shortened(
        [
            {"later": 1000.0},
            {"later": -3.7},
            {"shift": 25.0},
            {"length": 1000.0},
            {"length": 1e-3},
            {"time": 1 / 60},
            {"time": 1000.0},
        ],
        [{"later": -3.7}, {"length": 1e-3}, {"time": 1 / 60}],
    ),
    ids=str,
)
def test_units_place_and_hour_do_not_matter(change, found_here):
    run, scene, true, sensor, here = found_here
    there = find_impacts(*moved(run, scene, **change), sensor=sensor)
    np.testing.assert_array_equal(np.flatnonzero(there.chosen[:, 0]), true)
    length, time = change.get("length", 1.0), change.get("time", 1.0)
    np.testing.assert_allclose(there.noise, here.noise * [length, length / time], rtol=1e-3)
    np.testing.assert_allclose(there.log_odds, here.log_odds, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(there.gap[true], here.gap[true] * length, rtol=1e-3, atol=1e-4 * length)
    np.testing.assert_allclose(there.before[true], here.before[true] * length / time, rtol=1e-3)


@pytest.mark.parametrize(("bodies", "dimension"), [(1, 1), (3, 3)])
def test_noise_of_free_motion(bodies, dimension):
    """Of positions alone; parabolas, with three parameters a coordinate, hide a part of it."""
    random, time = np.random.default_rng(0), np.arange(1500) * H
    position = 0.1 * random.normal(size=(len(time), bodies, dimension))
    found = find_impacts(Run(time, position), Scene(bodies, dimension), sensor=None)
    np.testing.assert_allclose(found.noise[0], 0.1, rtol=0.03)
