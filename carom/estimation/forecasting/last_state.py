"""The last states of recorded motions, estimated by fitting models to their final samples.

Between impacts a motion is followed backwards from its last state, so that all samples since the last impact
count, and neither those before it do nor a hand before the release (`robust_windows`). Where few samples are
left, or a body is in contact, the model with its contacts is fitted to earlier samples too, and the better
explanation of all samples is kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from carom.data import Run
from carom.errors import InputError
from carom.estimation.forecasting.motions import follow, follow_grid, one_model, steps_freely
from carom.estimation.forecasting.past import Past
from carom.estimation.forecasting.robust_windows import (
    CHANGE,
    COST,
    Fitted,
    fit_last_motion,
    inlier_probability,
    median_scale,
    robust_loss,
)
from carom.models import AbstractModel

LONGEST, REACHES = 512, (16, 64)
"""Greatest number of samples to which a motion is fitted, and those of the first fits, for models whose
motion depends on the state nonlinearly."""
WINDOW = 40
"""The same for motions with contacts in between, and for models with steps of their own."""
FLIGHT = 12
"""Number of samples after the last impact that suffice without those before it."""
LEAST = 3
"""Number of samples that determine a state."""
ITERATIONS = 12
PRIOR_VALUES = 8
"""Weight of the stated noise against the residuals in a window, in values."""
DIFFERENCE, PRIOR = 1e-6, 100.0
"""Step of finite differences and prior deviation of a state, relative to the extent of the motion."""


def last_states(
    models: AbstractModel, count: int, runs: Sequence[Run], noise: Float[np.ndarray, "2"], *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities [runs, models, bodies, dimension] at the last samples, by every model.

    Those of the first model are the likeliest, those of each other one a sample of its posterior (Laplace).

    Arguments:
        models: stacked, and similar to each other.
        count: their number.
        runs: recorded motions.
        noise: standard deviations of positions and velocities.
        seed: of the samples.
    """
    shortest = min(map(len, runs))
    if shortest < LEAST:
        raise InputError(
            f"A recording of {shortest} samples is too short to estimate its last state; use at least "
            f"{LEAST}."
        )
    first = one_model(models, 0)
    if steps_freely(models):
        past = Past.of(runs, noise, LONGEST)
        found = _with_contacts(first, past, *_flights(first, past))
    else:
        past = Past.of(runs, noise, WINDOW)
        found = _shots(first, past, _since_last_jump(past))
    normal = np.random.default_rng(seed).standard_normal((len(runs), count, found.state.shape[1]))
    # The first model has its likeliest state.
    normal[:, 0] = 0.0
    states = _sampled(models, past, found, normal)
    position, velocity = np.moveaxis(states.reshape(len(runs), count, *past.shape), 2, 0)
    return position, velocity


class _Fit(NamedTuple):
    """Fits of one model to the past of every run."""

    state: Float[np.ndarray, "runs state"]
    """At the last sample, or at the anchor."""
    anchor: Int[np.ndarray, "runs"]
    """The sample from which the model is followed with its contacts; −1 if backwards from the last one."""
    weight: Float[np.ndarray, "runs samples channels bodies"]
    residual: Float[np.ndarray, "runs samples channels bodies dimension"]
    """Over the noise, as the derivative."""
    derivative: Float[np.ndarray, "runs samples channels bodies dimension state"]
    cost: Float[np.ndarray, "runs"]
    """Of all samples, those left out included."""

    def better(self, other: "_Fit") -> "_Fit":
        """The fit of every run that costs less."""
        less = other.cost < self.cost
        pairs = zip(self, other, strict=True)
        return _Fit(*(np.where(less.reshape(-1, *[1] * (a.ndim - 1)), b, a) for a, b in pairs))

    def some(self, rows: np.ndarray) -> "_Fit":
        """The fits of some runs."""
        return _Fit(*(part[rows] for part in self))

    def replaced(self, rows: np.ndarray, other: "_Fit") -> "_Fit":
        """These fits, with those of some runs replaced."""
        for part, new in zip(self, other, strict=True):
            part[rows] = new
        return self

    @property
    def scale(self) -> Float[np.ndarray, "runs"]:
        """The mean square of the residuals, with that of the noise as a prior."""
        weight = self.weight[..., None]
        squares = np.sum(weight * self.residual**2, axis=(1, 2, 3, 4))
        values = np.sum(weight * (self.derivative != 0).any(axis=-1), axis=(1, 2, 3, 4))
        freedom = np.maximum(values - self.state.shape[1], 0)
        return (PRIOR_VALUES + squares) / (PRIOR_VALUES + freedom)

    def normal_equations(
        self, past: Past, damping: np.ndarray | float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """The Hessian, and the step towards the least squares."""
        count, size = self.state.shape
        root = np.sqrt(self.weight)[..., None]
        design = (root[..., None] * self.derivative).reshape(count, -1, size)
        prior = np.broadcast_to((PRIOR * past.unit) ** -2.0, past.shape).ravel()
        hessian = design.swapaxes(1, 2) @ design + np.diag(prior)
        gradient = design.swapaxes(1, 2) @ (root * self.residual).reshape(count, -1, 1)
        diagonal = np.einsum("raa->ra", hessian) * np.reshape(damping, (-1, 1))
        return hessian, np.linalg.solve(hessian + diagonal[:, :, None] * np.eye(size), gradient)[..., 0]


def _flights(model: AbstractModel, past: Past) -> tuple[_Fit, Int[np.ndarray, "runs bodies"]]:
    """Fits of the motion since the last change, followed backwards; the first sample of every body in it."""
    count, samples = past.time.shape
    bodies, anchor = past.shape[1], np.full(count, -1)
    state = _polynomials(past.last(REACHES[0]))
    for reach in (*(reach for reach in REACHES if reach < samples), samples):
        near = past.last(reach)
        predicted, derivative = _linearised(model, near, state, anchor)
        windows = _windows(near, predicted, derivative, near.known)
        state = state + _of_runs(windows.correction, bodies)
    first = windows.first.reshape(count, bodies)  # pyright: ignore
    cost = windows.cost.reshape(count, bodies).sum(axis=1)  # pyright: ignore
    inside = (np.arange(samples)[:, None, None] >= first[:, None, None]) & (past.measured > 0)
    derivative = derivative * past.known[..., None]  # pyright: ignore
    fit = _Fit(state, anchor, inside.astype(float), past.observed, derivative, cost)
    # The windows are those of single bodies with a common noise; now all bodies together, by their own.
    for _ in range(4):
        predicted = _predicted(model, past, fit.state[:, None], anchor)[:, 0]
        fit = fit._replace(residual=past.residual(predicted))
        # Smoothed positions scatter less than independent ones that tell as much: outliers stand out more.
        scale = _typical_square(fit.residual, past.known & (fit.weight > 0.5)[..., None])
        squares = np.sum(fit.residual**2, axis=-1) / scale[:, None, None, None]
        fit = fit._replace(weight=inside * inlier_probability(squares, past.measured))
        fit = fit._replace(state=fit.state + fit.normal_equations(past)[1])
    return fit, first


def _typical_square(residual: np.ndarray, used: np.ndarray) -> Float[np.ndarray, "runs"]:
    """A robust mean square of every run, with that of all runs as a prior, and theirs that of the noise."""
    squares, used = (part.reshape(len(residual), -1) for part in (residual**2, used))
    count, total = used.sum(axis=1), used.sum()
    common = median_scale(squares.ravel(), used.ravel())
    common = (PRIOR_VALUES + total * common) / (PRIOR_VALUES + total)
    return (PRIOR_VALUES * common + count * median_scale(squares, used)) / (PRIOR_VALUES + count)


def _shots(model: AbstractModel, past: Past, anchor: Int[np.ndarray, "runs"]) -> _Fit:
    """Fits of the samples from an anchor on, with the contacts of the model (Levenberg–Marquardt)."""
    inside = past.since(anchor)[..., 0] & (past.measured > 0)
    before = (past.known & ~past.since(anchor)).any(axis=(1, 2, 3, 4))
    near = past._replace(known=past.known & past.since(anchor) & ~past.since(anchor + FLIGHT))
    trial = _polynomials(near, anchor, ahead=True)
    best, damping = None, np.full(len(anchor), 1e-3)
    for _ in range(ITERATIONS):
        predicted, derivative = _linearised(model, past, trial, anchor)
        residual = past.residual(np.nan_to_num(predicted, nan=1e150, posinf=1e150, neginf=-1e150))
        derivative = (
            np.nan_to_num(derivative, posinf=0.0, neginf=0.0) * (past.known & inside[..., None])[..., None]
        )
        squares = np.sum(residual**2, axis=-1)
        loss = np.where(inside, robust_loss(squares, past.measured), COST * past.measured)
        each = squares / np.maximum(past.measured, 1)
        scale = np.maximum(median_scale(each.reshape(len(each), -1), inside.reshape(len(each), -1)), 1)
        scale = scale[:, None, None, None]
        weight = np.where(inside, inlier_probability(squares / scale, past.measured), 0.0)
        fit = _Fit(trial, anchor, weight, residual, derivative, loss.sum(axis=(1, 2, 3)) + CHANGE * before)
        lower = np.full(len(anchor), True) if best is None else fit.cost < best.cost
        best = fit if best is None else best.better(fit)
        damping = np.where(lower, 0.1, 10.0) * damping
        trial = best.state + best.normal_equations(past, damping)[1]
    assert best is not None
    return best


def _with_contacts(
    model: AbstractModel, past: Past, flights: _Fit, first: Int[np.ndarray, "runs bodies"]
) -> _Fit:
    """The fits of flights, or fits with contacts where these explain the samples better."""
    samples = past.time.shape[1]
    inside = np.arange(samples)[:, None] >= first[:, None]
    seen = np.asarray((past.measured > 0).any(axis=2))
    short = (np.sum(inside & seen, axis=1) < FLIGHT) & (~inside & seen).any(axis=1)
    # Outliers in the end may follow an impact.
    ends = seen & (np.cumsum(seen[:, ::-1], axis=1)[:, ::-1] <= 2)
    odd = ((flights.weight < 0.5).all(axis=2) & ends).any(axis=(1, 2))
    predicted = _predicted(model, past, flights.state[:, None], flights.anchor)[:, 0]
    late = first.max(axis=1)
    each = np.arange(len(late))
    onwards = _predicted(model, past, predicted[each, late].reshape(len(late), 1, -1), late)[:, 0]
    strikes = (np.abs(onwards - predicted)[:, :, :1] > 0.1 * past.noise[:1]) & past.since(late)
    strikes = strikes.any(axis=(1, 2, 3, 4))
    rows = np.flatnonzero(short.any(axis=1) | odd | strikes)
    if not len(rows):
        return flights
    part = past.some(rows)
    earlier = part.known & ~inside[rows][:, :, None, :, None]
    windows = _windows(part, predicted[rows], flights.derivative[rows], earlier)
    starts = np.where(short[rows], windows.first.reshape(len(rows), -1), first[rows]).min(axis=1)
    found = flights.some(rows)
    for anchor in (starts, np.maximum(samples - WINDOW, 0)):
        found = found.better(_shots(model, part, np.maximum(anchor, part.begin)))
    return flights.replaced(rows, found)


def _since_last_jump(past: Past) -> Int[np.ndarray, "runs"]:
    """The first sample after the last change of a motion that is smooth, or of all where these are few."""
    samples, bodies = past.time.shape[1], past.shape[1]
    windows = _polynomial_windows(past)
    first = windows.first.reshape(-1, bodies).max(axis=1)
    return np.maximum(np.where(samples - first >= FLIGHT, first, 0), past.begin)


def _sampled(
    models: AbstractModel, past: Past, found: _Fit, normal: Float[np.ndarray, "runs models state"]
) -> Float[np.ndarray, "runs models state"]:
    """Last states by all models: the same samples fitted by each, and a deviation from the posterior."""
    states = np.repeat(found.state[:, None], normal.shape[1], axis=1)
    hessian, _ = found.normal_equations(past)
    size, noise = found.state.shape[1], float(np.ravel(past.noise)[0])
    # Where a body comes to rest the samples do not depend on where it came from: the anchor is then known as
    # well as one sample tells.
    steps = np.diff(past.time, axis=1)
    step = float(np.median(steps[steps > 0]))
    own = np.broadcast_to(np.reshape([1.0, step], (2, 1, 1)) / noise, past.shape).ravel() ** 2
    inverse = np.linalg.inv(hessian + (found.anchor >= 0)[:, None, None] * np.diag(own))
    design = (found.weight[..., None, None] * found.derivative).reshape(len(states), -1, size)
    for _ in range(2):
        predicted = _predicted(models, past, states, found.anchor)
        residual = np.moveaxis(past.residual(np.moveaxis(predicted, 1, 0)), 0, 1)
        # The models differ little, so that the derivatives of the first one suffice.
        states = states + residual.reshape(*states.shape[:2], -1) @ design @ inverse
    root = np.linalg.cholesky(
        0.5 * (inverse + inverse.swapaxes(1, 2)) * np.maximum(found.scale, 1)[:, None, None]
    )
    states = states + normal @ root.swapaxes(1, 2)
    if (found.anchor < 0).all():
        return states
    ends = _predicted(models, past, states, found.anchor)[:, :, -1].reshape(states.shape)
    return np.where((found.anchor < 0)[:, None, None], states, ends)


def _linearised(
    model: AbstractModel, past: Past, state: Float[np.ndarray, "runs state"], anchor: Int[np.ndarray, "runs"]
) -> tuple[np.ndarray, np.ndarray]:
    """States by one model at all samples, and derivatives of what is measured of them, over the noise."""
    size = state.shape[1]
    steps = np.broadcast_to(DIFFERENCE * past.unit, past.shape).reshape(size)
    varied = state[:, None] + np.concatenate([np.zeros((1, size)), np.diag(steps)])
    predicted = _predicted(model, past, varied, anchor)
    change = np.moveaxis(predicted[:, 1:] - predicted[:, :1], 1, -1) / steps
    return predicted[:, 0], change[:, :, : len(past.noise)] / past.noise[..., None]


def _predicted(
    models: AbstractModel,
    past: Past,
    states: Float[np.ndarray, "runs variants state"],
    anchor: Int[np.ndarray, "runs"],
) -> Float[np.ndarray, "runs variants samples 2 bodies dimension"]:
    """Motions at all samples of the past from several states: by one model, or each by a model of its own.

    Samples before an anchor have no meaning.
    """
    runs, variants = states.shape[:2]
    start = states.reshape(runs, variants, *past.shape)
    result = np.zeros((runs, variants, past.time.shape[1], *past.shape))
    if not steps_freely(models):
        steps = past.time.shape[1] - 1
        moved = np.stack(follow_grid(models, start[:, :, 0], start[:, :, 1], steps)[:2], axis=3)
        after = np.maximum(np.arange(steps + 1) - anchor[:, None], 0)
        return np.take_along_axis(moved, after[:, None, :, None, None, None], axis=2)
    durations = np.diff(past.time, axis=1)
    for back in (True, False):
        rows = np.flatnonzero((anchor < 0) == back)
        if not len(rows):
            continue
        first = 0 if back else anchor[rows].min()
        waits = np.arange(durations.shape[1]) < anchor[rows, None]
        lengths = -durations[rows, ::-1] if back else np.where(waits, 0.0, durations[rows])[:, first:]
        moved = follow(models, start[rows, :, 0], start[rows, :, 1], lengths, contacts=not back)
        found = np.stack(moved[:2], axis=3)
        result[rows, :, first:] = found[:, :, ::-1] if back else found
    return result


def _windows(past: Past, predicted: np.ndarray, derivative: np.ndarray, known: np.ndarray) -> Fitted:
    """The last motions of all bodies of all runs; a body by itself, as others may have impacts in between."""
    _, bodies, dimension = past.shape
    parts = derivative.reshape(*derivative.shape[:-1], *past.shape)
    own = np.stack([parts[:, :, :, b, :, :, b] for b in range(bodies)], axis=3)
    design = _by_body(own.reshape(*own.shape[:5], 2 * dimension))
    return fit_last_motion(_by_body(past.residual(predicted)), design, _by_body(known), least=LEAST)


def _of_runs(corrections: Float[np.ndarray, "problems parameters"], bodies: int) -> np.ndarray:
    """States of runs from those of their bodies."""
    parts = corrections.reshape(-1, bodies, 2, corrections.shape[1] // 2)
    return np.swapaxes(parts, 1, 2).reshape(len(parts), -1)


def _polynomials(
    past: Past, at: Int[np.ndarray, "runs"] | None = None, *, ahead: bool = False
) -> Float[np.ndarray, "runs state"]:
    """States by parabolas: see `_polynomial_windows`."""
    correction = _polynomial_windows(past, at, ahead=ahead).correction
    return _of_runs(correction[:, : 2 * past.shape[2]], past.shape[1])


def _polynomial_windows(
    past: Past, at: Int[np.ndarray, "runs"] | None = None, *, ahead: bool = False
) -> Fitted:
    """Windows of parabolas x + v t + ½ a t² up to the last sample, or of those that follow a sample.

    Arguments:
        past: the samples.
        at: where t = 0, the last sample by default.
        ahead: whether the windows begin there.
    """
    runs, samples, channels, bodies, dimension = past.known.shape
    at = np.full(runs, samples - 1) if at is None else at
    t = past.time - past.time[np.arange(runs), at][:, None]
    rows = np.stack([np.ones_like(t), t, 0.5 * t**2, np.zeros_like(t), np.ones_like(t), t], axis=-1)
    rows = rows.reshape(runs, samples, 2, 3)[:, :, :channels] / past.noise[:, 0]
    # Parameters are x, v and a, each of all coordinates.
    design = np.einsum("rsck,de->rscdke", rows, np.eye(dimension))
    design = np.repeat(design.reshape(runs, samples, channels, dimension, -1), bodies, axis=0)
    residual, known = _by_body(past.observed / past.noise), _by_body(past.known)
    turn = slice(None, None, -1 if ahead else 1)
    return fit_last_motion(residual[:, turn], design[:, turn], known[:, turn], least=LEAST)


def _by_body(values: np.ndarray) -> np.ndarray:
    """Values [runs, samples, channels, bodies, …] with one problem for every body of every run."""
    moved = np.moveaxis(values, 3, 1)
    return moved.reshape(-1, *moved.shape[2:])
