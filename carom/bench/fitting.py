"""Fits of the ball of the paper's Figure 5 from a bare process to a model, and the error of its forecast."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from carom.bench.cases import SETTINGS, SYSTEMS, record
from carom.data import simulate
from carom.estimation import LatentSettings, Learned, fit_latent
from carom.evaluation import paper_rmse
from carom.models import CDLagrangeNetwork, forecast
from carom.training import train
from carom.types import State

STEPS, STEP_SIZE, NOISE = 519, 0.02, 0.2
"""The ball of the paper's Figure 5."""


def fit_by_carom() -> dict[str, float]:
    """By the recipe `carom`: no touch; restitution and floor unknown, the start known."""
    ball = SYSTEMS["ball"]
    recording = simulate(ball, steps=STEPS, step_size=STEP_SIZE, noise=NOISE, seed=0)
    settings = LatentSettings(learned=Learned(restitution="constant"))
    fit = fit_latent(recording, settings, starts=[ball.start], seed=0)
    truth = ball.exact(ball.start, np.arange(STEPS + 1) * STEP_SIZE)
    return {"error": paper_rmse(forecast(fit.model, _single(ball.start), STEPS), truth)}


def fit_by_paper(*, epochs: int) -> dict[str, float]:
    """By the paper's recipe as published: touch, restitution and masses given."""
    ball, recording = SYSTEMS["ball"], record("ball")
    model = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0), activation="softplus")
    fit = train(model, recording, replace(SETTINGS, epochs=epochs))
    steps = recording.samples - 1
    truth = ball.scheme(ball.start, steps=steps, step_size=recording.step_size, velocity_grid="sample")
    error = paper_rmse(forecast(fit.model, _single(ball.start), steps), truth)
    return {"error": error, "epochs": float(epochs)}


def _single(state: State) -> State:
    return jax.tree.map(lambda part: jnp.asarray(part, jnp.float32), state)
