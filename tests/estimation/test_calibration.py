"""Bands hold although the model is wrong: a lens that bends lengths is unknown to it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import carom
from carom.data import Camera, HeldOut, Recording, Run, film_motions
from carom.evaluation import forecast_held_out
from carom.systems import BouncingBall
from carom.types import State


def drops(heights, distortion, seed):
    ball = BouncingBall(restitution=0.8)
    motions = [ball.exact(State(jnp.array([[h]]), jnp.zeros((1, 1))), np.arange(150) / 60) for h in heights]
    runs = tuple(Run(m.time, np.asarray(m.position, float), np.asarray(m.velocity, float)) for m in motions)
    exact = Recording(runs, 1 / 60, ball.scene())
    return film_motions(exact, Camera(frame_rate=60, noise=1e-3, distortion=distortion), seed=seed).recording


def coverage(distortion):
    """Of 90 % bands of runs left out, with and without calibration; and what these are widened by."""
    train, other = (drops(np.linspace(0.5, 1.2, n), distortion, n) for n in (8, 5))
    learn = ("restitution", "surfaces", "gravity")
    # By one scheme and in one stage: fewer programs to compile.
    settings = carom.Settings(learn=learn, potential="none", stepper="constraint_exact", horizons=())
    fit = carom.fit(train, settings=settings)
    parts = [
        HeldOut(i, run.part(slice(0, 12)), run.part(slice(12, None))) for i, run in enumerate(other.runs)
    ]
    shares = []
    for model in (fit.model, replace(fit.model, widening=np.array([1, 0], np.float32))):
        found = forecast_held_out(model, parts, samples=fit.samples, noise=fit.noise)
        shares.append(np.mean([one.covered for one in found]))
    return *shares, fit.model.widening


def test_bands_of_a_wrong_model_are_widened():
    calibrated, plain, (factor, length) = coverage(distortion=0.05)
    assert plain < 0.8 < calibrated
    assert factor > 1.5 or length > 1e-3


def test_bands_of_a_right_model_are_left():
    calibrated, plain, (factor, length) = coverage(distortion=0.0)
    assert 1.0 <= factor < 1.5
    assert length < 5e-4
    assert 0.8 < plain <= calibrated
