"""Restitution and slip that scatter from impact to impact, which is told from noise and misfit."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.contact_laws import ImpactDeviations
from carom.data import Camera, Recording, Run, film_motions
from carom.estimation.detection.impacts import find_impacts
from carom.estimation.solver.segments import impacts_of, partition, prescribe
from carom.integrators import PRESCRIBED
from carom.mechanics import Scene, Wall
from carom.models import Mechanism
from carom.systems import BouncingBall, Laboratory
from carom.types import State

NOISE = 1e-3


def drops(scatter: float, seed: int, count: int = 12) -> Recording:
    """From heights of which all balls make two or three impacts, so that fits share their programs."""
    ball = Laboratory(BouncingBall(restitution=0.75), scatter=scatter, seed=seed)
    generator = np.random.default_rng(seed)
    runs = []
    for height in generator.uniform(0.93, 1.05, count):
        motion, _ = ball.motion(State(jnp.array([[height]]), jnp.zeros((1, 1))), np.arange(170) / 100)
        runs.append(Run(motion.time, motion.position))
    recording = Recording(tuple(runs), 0.01, ball.scene())
    return film_motions(recording, Camera(frame_rate=100, noise=NOISE), seed=seed).recording


def fitted(recording: Recording, *more: str) -> tuple[carom.estimation.Fit, dict]:
    learn = ("restitution", "surfaces", "gravity", *more)
    # By one scheme and in one stage: fewer programs to compile.
    settings = carom.Settings(learn=learn, potential="none", stepper="constraint_exact", horizons=())
    fit = carom.fit(recording, settings=settings)
    return fit, {parameter.name: parameter for parameter in fit.parameters}


def test_scatter_and_noise_are_told_apart():
    recording = drops(0.05, seed=100)
    fit, found = fitted(recording, "scatter")
    scatter = found["restitution, scatter from impact to impact"]
    assert scatter.value == pytest.approx(0.05 * 0.75, rel=0.25)
    assert fit.noise[0] == pytest.approx(NOISE, rel=0.1)
    e = found["restitution of body 1 at the wall"]
    assert abs(e.value - 0.75) < 4 * e.standard_error
    # What one value of e for all impacts cannot explain is no noise of the camera.
    plain, _ = fitted(recording)
    assert plain.noise[0] > 5 * NOISE


def test_no_scatter_is_hardly_any_and_costs_nothing():
    recording = drops(0.0, seed=101)
    with_scatter, found = fitted(recording, "scatter")
    _, plain = fitted(recording)
    assert found["restitution, scatter from impact to impact"].value < 1e-3
    assert with_scatter.noise[0] == pytest.approx(NOISE, rel=0.1)
    name = "restitution of body 1 at the wall"
    assert found[name].standard_error < 2 * plain[name].standard_error
    assert abs(found[name].value - plain[name].value) < 2 * found[name].standard_error


def test_deviations_are_those_of_the_law():
    """An impact with deviations δ and d leaves with e + δ along the normal, and d |u| more across it."""
    scene = Scene(1, 2, (Wall(0, (0.0, 1.0)),), restitution=0.5)
    model = Mechanism.of(scene, 0.1)
    deviations = ImpactDeviations(np.array([0.0, 0.2]), np.zeros(2), np.array([[0, 0], [0.3, 0.7]]))
    model = replace(model, deviations=deviations)
    start = State(jnp.array([[0.0, 0.05]]), jnp.array([[1.0, -2.0]]))
    for most in (None, 1):
        move = jax.jit(partial(model.move, most=most))
        for number, velocity in enumerate([(1.0, 1.0), (1.6, 1.4)]):
            after, *_ = move(start, 0.1, jnp.array([PRESCRIBED]), impact=jnp.array([number]))
            np.testing.assert_allclose(after.velocity[0], velocity, rtol=1e-6)


def test_impacts_of_segments_are_those_of_the_runs():
    recording = drops(0.05, seed=102, count=3)
    found = find_impacts(recording.runs, recording.scene)
    prescriptions = prescribe(found)
    whole = impacts_of(prescriptions, partition(found, None))
    assert [len(one) for one in whole] == [int(one.chosen.sum()) for one in found]
    parts = [impact for one in impacts_of(prescriptions, partition(found, 20)) for impact in one]
    # Those in the step between two segments belong to neither.
    assert set(parts) <= {impact for one in whole for impact in one}
    assert len(parts) >= 0.8 * sum(map(len, whole))


def test_posterior_of_the_law_is_unbiased_over_recordings():
    """Standardised errors of e over recordings have variance 1."""
    errors = []
    for seed in range(110, 118):
        _, found = fitted(drops(0.05, seed=seed, count=6), "scatter")
        e = found["restitution of body 1 at the wall"]
        errors.append((e.value - 0.75) / e.standard_error)
    # χ² with eight degrees of freedom, at probabilities of 0.1 % either side.
    assert 0.86 < np.sum(np.square(errors)) < 26.1
