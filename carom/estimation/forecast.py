"""Forecasts with a credible band from posterior samples of the model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.estimation.forecasting.last_state import last_states
from carom.estimation.forecasting.motions import (
    HITS,
    Motions,
    count_models,
    follow,
    follow_grid,
    stack_models,
    steps_freely,
)
from carom.estimation.forecasting.past import noise_of_runs
from carom.forces import AbstractLearnedPotential, LinearisedPotentialForce
from carom.models import AbstractModel, Mechanism
from carom.types import State

COVERAGE = 0.9
"""Probability that a band contains a value, at every instant."""
NORMAL_BOUND = 1.645
"""The 95th percentile of the standard normal distribution: 90 % lie within this many standard deviations."""
TOGETHER = 16
"""Runs whose forecasts are computed together."""
LONG = 1.5
"""Steps of a mechanism are at most so many times as long as those that it was fitted with."""


class BandedForecast(NamedTuple):
    """A forecast at some instants; the band is None without posterior samples.

    Arguments:
        position, velocity: the forecast of the model.
        contact: whether each contact was active since the instant before.
        low, high: 90 % credible band of positions and velocities.
        members: number of posterior samples behind the band.
    """

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]
    contact: Bool[np.ndarray, "samples signals"]
    low: Float[np.ndarray, "2 samples bodies dimension"] | None
    high: Float[np.ndarray, "2 samples bodies dimension"] | None
    members: int

    @property
    def finite(self) -> bool:
        """Whether the forecast of the model has not diverged."""
        return bool(np.isfinite(self.position).all() and np.isfinite(self.velocity).all())


def forecast_from(
    model: AbstractModel, start: State, steps: int, *, samples: AbstractModel | None = None
) -> BandedForecast:
    """Forecast from a state that is known exactly, on the sample grid.

    Arguments:
        model: the fitted model.
        start: positions and velocities.
        steps: number of steps.
        samples: posterior samples of the model, stacked along the first axis of all arrays, such as
            `Fit.samples`.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall()
        >>> recording = carom.simulate(ball, steps=250, step_size=0.02, noise=0.1, seed=1)
        >>> small = carom.Settings(learn=("restitution", "surfaces"), hidden=8, starts=1, horizons=(100,))
        >>> fit = carom.fit(recording, settings=small)
        >>> ahead = forecast_from(fit.model, ball.start, 50, samples=fit.samples)
        >>> width = (ahead.high - ahead.low)[0, :, 0, 0]
        >>> bool(width[0] == 0 < width[25] < width[50])
        True
    """
    models = _stacked(model, samples)
    parts = (np.asarray(part, float)[None, None] for part in (start.position, start.velocity))
    position, velocity = (np.repeat(part, count_models(models), axis=1) for part in parts)
    (ahead,) = _forecasts(models, position, velocity, [float(model.step_size) * np.arange(steps + 1)], None)
    return ahead


def forecast_after(
    model: AbstractModel,
    run: Run,
    steps: int,
    *,
    samples: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
) -> BandedForecast:
    """Forecast from the end of a recording, on the sample grid: `forecast_runs` of one run."""
    times = run.time[-1] + float(model.step_size) * np.arange(steps + 1)
    (ahead,) = forecast_runs(model, [run], [times], samples=samples, noise=noise, seed=seed)
    return ahead


def forecast_runs(
    model: AbstractModel,
    runs: Sequence[Run],
    times: Sequence[Float[np.ndarray, "_"]],
    *,
    samples: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> list[BandedForecast]:
    """Forecast from the ends of recordings, with the uncertainty of their last states.

    Restitution scatters from impact to impact as it did in the recordings that the model was fitted to.

    Mechanisms with the constraint-exact stepper are followed from one instant to the next. Other models step
    on their own grid, between the samples of which positions and velocities are interpolated.

    Arguments:
        model: the fitted model.
        runs: the recorded motions; only their final samples are used.
        times: the instants, for every run, none before its end.
        samples: posterior samples of the model, as in `forecast_from`.
        noise: standard deviations of positions and velocities; by default measured in the runs.
        seed: of the samples of last states, and of the scatter.
        progress: called with the share that is done.
    """
    models, deviations = _stacked(model, samples), noise_of_runs(runs, noise)
    count = count_models(models)
    scatter = None
    if isinstance(model, Mechanism) and model.scatter is not None:
        random = np.random.default_rng([seed, 1])
        size = (count, HITS, len(model.geometry))
        scatter = float(np.asarray(model.scatter)[0]) * random.standard_normal(size)
        scatter[0] = 0.0  # the model itself has the mean restitution
    found: list[BandedForecast] = []
    for first in range(0, len(runs), TOGETHER):
        some = slice(first, first + TOGETHER)
        position, velocity = last_states(models, count, runs[some], deviations, seed=seed + first)
        ahead = [at - run.time[-1] for at, run in zip(times[some], runs[some], strict=True)]
        found += _forecasts(models, position, velocity, ahead, scatter)
        if progress is not None:
            progress(len(found) / len(runs))
    return found


def _forecasts(
    models: AbstractModel,
    position: Float[np.ndarray, "runs models bodies dimension"],
    velocity: Float[np.ndarray, "runs models bodies dimension"],
    times: Sequence[Float[np.ndarray, "_"]],
    scatter: np.ndarray | None,
) -> list[BandedForecast]:
    """Forecasts at times after the states, by each model from its own."""
    step = float(np.ravel(models.step_size)[0])
    if steps_freely(models):
        stops = [_stops(at, step) for at in times]
        durations = np.zeros((len(times), max(len(stop) for stop, _ in stops)))
        for row, (stop, _) in enumerate(stops):
            durations[row, : len(stop)] = np.diff(stop, prepend=0.0)
        motions = follow(models, position, velocity, durations, deviations=scatter)
        each = [_picked(_one(motions, row), at) for row, (_, at) in enumerate(stops)]
    else:
        steps = max(1, int(np.ceil(max(at[-1] for at in times) / step - 1e-6)))
        motions = follow_grid(models, position, velocity, steps)
        each = [_interpolated(_one(motions, row), at / step, step) for row, at in enumerate(times)]
    widening = np.array([1.0, 0.0])
    if isinstance(models, Mechanism):
        widening = np.reshape(models.widening, (-1, 2))[0]
    return [_banded(motion, widening) for motion in each]


def _one(motions: Motions, row: int) -> Motions:
    return Motions(*(part[row] for part in motions))


def _stops(times: Float[np.ndarray, "_"], step: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of steps that reach all times, none much longer than `step`; and the numbers of the times."""
    gaps = np.diff(times, prepend=0.0)
    parts = np.maximum(np.ceil(gaps / (LONG * step)), 1).astype(int)
    shares = [
        before + gap * np.arange(1, n + 1) / n
        for before, gap, n in zip(times - gaps, gaps, parts, strict=True)
    ]
    return np.concatenate(shares), np.cumsum(parts)


def _picked(motions: Motions, at: np.ndarray) -> Motions:
    """The samples with these numbers."""
    return Motions(motions.position[:, at], motions.velocity[:, at], _contacts_until(motions.contact, at))


def _contacts_until(contact: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Which contacts were active at these samples, or since the ones before."""
    so_far = np.cumsum(contact, axis=1)[:, at]
    return np.diff(so_far, axis=1, prepend=0) > 0


def _interpolated(motions: Motions, at: Float[np.ndarray, "_"], step: float) -> Motions:
    """Cubic Hermite interpolation between the samples of a grid, linear across impacts; at these steps."""
    row = np.clip(np.floor(at + 1e-9).astype(int), 0, motions.position.shape[1] - 2)
    share = (at - row)[:, None, None]
    (q0, q1), (v0, v1) = ((part[:, row], part[:, row + 1]) for part in motions[:2])
    change = q1 - q0
    bend = (1 - share) * (step * v0 - change) - share * (step * v1 - change)
    smooth = ~np.asarray(motions.contact[:, row + 1].any(axis=-1))[..., None, None]
    position = q0 + share * change + np.where(smooth, share * (1 - share) * bend, 0.0)
    reached = np.ceil(at - 1e-9).astype(int)
    return Motions(position, v0 + share * (v1 - v0), _contacts_until(motions.contact, reached))


def _stacked(model: AbstractModel, samples: AbstractModel | None) -> AbstractModel:
    """The model followed by its samples along one axis, for one compiled program."""
    if isinstance(model, Mechanism) and isinstance(samples, Mechanism):
        # Samples have linearised potentials; that of the model has the perturbation 0.
        forces = tuple(
            LinearisedPotentialForce(force, jax.tree.map(jnp.zeros_like, force.network))
            if isinstance(force, AbstractLearnedPotential)
            else force
            for force in model.forces
        )
        model = replace(model, forces=forces)
    return stack_models(model, *([] if samples is None else [samples]))


def _banded(motions: Motions, widening: Float[np.ndarray, "2"]) -> BandedForecast:
    """The first of several forecasts, with a band from quantiles of the others, widened as calibrated."""
    low = high = None
    others = np.stack([motions.position[1:], motions.velocity[1:]], axis=1)
    # Samples whose forecasts diverge are left out: quantiles of them are not finite.
    others = others[np.isfinite(others).all(axis=(1, 2, 3, 4))]
    if len(others) > 1:
        # Weibull's plotting positions: the band has the right coverage on average, however few samples.
        ends = [0.5 * (1 - COVERAGE), 0.5 * (1 + COVERAGE)]
        middle = np.stack([motions.position[0], motions.velocity[0]])
        edges = np.quantile(others, ends, axis=0, method="weibull")
        added = np.reshape([widening[1], 0.0], (2, 1, 1, 1))  # a length, of positions alone
        low, high = middle + np.sign(edges - middle) * np.hypot(widening[0] * (edges - middle), added)
    position, velocity, contact = (part[0] for part in motions)
    return BandedForecast(position, velocity, contact, low, high, len(others))
