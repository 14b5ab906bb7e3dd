"""A switching Kalman filter: the most probable jumps of bodies whose motion between them is linear in time.

A hypothesis is the time of the last jump; every one has a Kalman filter of its own, and at every sample the
most probable of them are kept (Adams and MacKay 2007, Bayesian online changepoint detection, here by the most
probable path). The coordinates of a body are independent, but jump together.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

HYPOTHESES, PARENTS = 16, 3
"""Hypotheses that are kept, and the best of them after which a further jump is considered."""
INSTANTS = (1 / 6, 1 / 2, 5 / 6)
"""Instants of a jump within a step, as fractions of it; the rest of the uncertainty is added as variance."""
OUTLIERS, REST, RELEASE = 0.01, 0.1, 0.05
"""Prior probabilities of an outlier, and that a jump brings a body to rest, or changes its acceleration."""
OUTLIER_SCALE = 0.3
"""Standard deviation of outliers, relative to the range of the motion: a lost track is anywhere."""
WIDE = 1.5
"""Standard deviation of the velocity after a jump, in units of the root-mean-square speed."""

# Kinds of jumps: at each of the instants, with another acceleration, and to rest.
KINDS = len(INSTANTS) + 2
_IMPACT = np.arange(KINDS) < len(INSTANTS)
_REST = np.arange(KINDS) == KINDS - 1
_BEFORE = np.array([*INSTANTS, 0.5, 0.5])
_AFTER = np.array([*(1 - np.array(INSTANTS)), 0.5, 0.0])
# Within its part of the step the instant of a jump is not known.
_WIDTH = np.where(_IMPACT, 1 / len(INSTANTS), 1.0)
_LOG_SHARE = np.log([*[(1 - REST - RELEASE) / len(INSTANTS)] * len(INSTANTS), RELEASE, REST])

# Entries of a Gaussian state: means, then covariances.
X, V, A, XX, XV, XA, VV, VA, AA = range(9)
_FIRST, _SECOND = [0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2]


class Motion(NamedTuple):
    """What is known of the motion of bodies between their jumps, from all runs; one value per coordinate."""

    noise: Float[np.ndarray, "2"]
    """Standard deviations of positions and velocities."""
    speed: float
    """Root-mean-square speed."""
    length: float
    """Range of the motion."""
    acceleration: Float[np.ndarray, "dimension"]
    deviation: Float[np.ndarray, "dimension"]
    """Mean and standard deviation of the acceleration between jumps."""
    misfit: float
    """Intensity q of white-noise acceleration."""
    drift: float
    """Intensity p of the random walk of the acceleration."""
    width: int = 1
    """Samples over which a tracker has smoothed the positions, 1 if it has not."""


@dataclass(frozen=True)
class Sequences:
    """Bodies of runs, each as one sequence; shorter ones end with samples without a measurement."""

    time: Float[np.ndarray, "samples sequences"]
    position: Float[np.ndarray, "samples sequences dimension"]
    velocity: Float[np.ndarray, "samples sequences dimension"]
    prior: Float[np.ndarray, "samples sequences"]
    """Log-odds of a jump in the step that ends at a sample, before the motion is considered."""

    def some(self, rows: np.ndarray) -> "Sequences":
        return replace(self, **{name: getattr(self, name)[:, rows] for name in self.__dataclass_fields__})


class Jumps(NamedTuple):
    """Jumps of one sequence in the order of time."""

    step: Int[np.ndarray, "jumps"]
    rest: Bool[np.ndarray, "jumps"]
    """Whether the body comes to rest."""
    outlier: Bool[np.ndarray, "samples"]
    """Samples that are no measurement of the motion."""


class _Flight(NamedTuple):
    """The motion over a duration as a linear map of Gaussian states: one row per sequence and duration."""

    matrix: Float[np.ndarray, "sequences durations 9 9"]
    noise: Float[np.ndarray, "sequences durations 9"]

    def __call__(self, state: np.ndarray, durations: slice) -> np.ndarray:
        """States [sequences, durations or 1, 9, hypotheses, dimension] at the end of the flight."""
        flat = state.reshape(*state.shape[:3], -1)
        moved = self.matrix[:, durations] @ flat + self.noise[:, durations, :, None]
        return moved.reshape(*moved.shape[:3], *state.shape[3:])


def _polynomials() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients of hⁿ in the map of a state, and in what q and p add to it."""
    matrix, by_misfit, by_drift = np.zeros((6, 9, 9)), np.zeros((6, 9)), np.zeros((6, 9))
    matrix[0] = np.eye(9)
    for row, column, power, value in [
        *[(X, V, 1, 1), (X, A, 2, 1 / 2), (V, A, 1, 1)],
        *[(XX, XV, 1, 2), (XX, XA, 2, 1), (XX, VV, 2, 1), (XX, VA, 3, 1), (XX, AA, 4, 1 / 4)],
        *[(XV, XA, 1, 1), (XV, VV, 1, 1), (XV, VA, 2, 3 / 2), (XV, AA, 3, 1 / 2)],
        *[(XA, VA, 1, 1), (XA, AA, 2, 1 / 2), (VV, VA, 1, 2), (VV, AA, 2, 1), (VA, AA, 1, 1)],
    ]:
        matrix[power, row, column] = value
    for row, power, value in [(XX, 3, 1 / 3), (XV, 2, 1 / 2), (VV, 1, 1)]:
        by_misfit[power, row] = value
    for row, power, value in [
        *[(XX, 5, 1 / 20), (XV, 4, 1 / 8), (XA, 3, 1 / 6)],
        *[(VV, 3, 1 / 3), (VA, 2, 1 / 2), (AA, 1, 1)],
    ]:
        by_drift[power, row] = value
    return matrix, by_misfit, by_drift


_MATRIX, _BY_MISFIT, _BY_DRIFT = _polynomials()


def _flights(h: np.ndarray, misfit: np.ndarray, drift: np.ndarray) -> _Flight:
    """Flights over a whole step, and up to and after a jump of each kind within it."""
    durations = h[:, None] * np.concatenate([[1.0], _BEFORE, _AFTER])
    powers = durations[..., None] ** np.arange(6)
    noise = misfit[:, None, None] * (powers @ _BY_MISFIT) + drift[:, None, None] * (powers @ _BY_DRIFT)
    return _Flight(np.tensordot(powers, _MATRIX, 1), noise)


def most_probable(
    data: Sequences,
    motion: Motion,
    misfit: Float[np.ndarray, "sequences"],
    drift: Float[np.ndarray, "sequences"],
) -> tuple[list[Jumps], Float[np.ndarray, "sequences"]]:
    """The most probable path of every sequence, and its log-likelihood, for trial misfits and drifts."""
    samples, count, dimension = data.position.shape
    rows = np.arange(count)[:, None]
    variance, wide = motion.noise**2, (WIDE * motion.speed) ** 2
    state = np.zeros((count, 9, 1, dimension))
    seen = np.isfinite(data.position[0])
    middle = 0.5 * (np.nanmax(data.position, axis=(0, 1)) + np.nanmin(data.position, axis=(0, 1)))
    state[:, X, 0] = np.where(seen, data.position[0], middle)
    state[:, XX, 0] = np.where(seen, variance[0], motion.length**2)
    state[:, VV], state[:, AA] = wide, motion.deviation**2
    state[:, A] = motion.acceleration
    weight, last = np.zeros((count, 1)), np.full((count, 1), -1)
    outlier = np.zeros((count, 1, samples), bool)
    parent = np.full((samples, count, KINDS), -1)
    evidence = np.zeros(count)
    measured = [(X, data.position, variance[0])]
    if np.isfinite(data.velocity).any():
        measured.append((V, data.velocity, variance[1]))
    steps = np.diff(data.time, axis=0)
    # Steps that differ by rounding alone are the same, which saves a part of the work.
    steps = np.where(np.abs(steps - np.median(steps)) < 1e-9 * np.median(steps), np.median(steps), steps)
    flights = _flights(steps[0], misfit, drift)
    for k in range(1, samples):
        if k > 1 and not np.array_equal(steps[k - 1], steps[k - 2]):
            flights = _flights(steps[k - 1], misfit, drift)
        odds = data.prior[k][:, None]
        best = np.argsort(-weight, axis=1)[:, :PARENTS]
        size, spawned = weight.shape[1], best.shape[1]
        parents = np.take_along_axis(state, best[:, None, :, None], axis=2)
        jumped = _after_jump(parents, steps[k - 1], flights, motion)
        state = np.concatenate([flights(state[:, None], slice(0, 1))[:, 0], jumped], axis=2)
        jump_weight = np.take_along_axis(weight, best, axis=1) - np.logaddexp(0, -odds)
        jump_weight = (jump_weight[:, None] + _LOG_SHARE[:, None]).reshape(count, -1)
        weight = np.concatenate([weight - np.logaddexp(0, odds), jump_weight], axis=1)
        origin = np.concatenate([last, np.tile(np.take_along_axis(last, best, axis=1), KINDS)], axis=1)
        fresh = np.repeat(k * KINDS + np.arange(KINDS), spawned)
        last = np.concatenate([last, np.broadcast_to(fresh, (count, len(fresh)))], axis=1)
        lost = np.zeros(weight.shape, bool)
        for row, values, noise in measured:
            known = np.isfinite(values[k])[:, None]
            error = np.where(known, np.nan_to_num(values[k])[:, None] - state[:, row], 0.0)
            spread = state[:, XX if row == X else VV]
            usual = _log_density(error, spread + noise, known) + np.log(1 - OUTLIERS)
            wild = (OUTLIER_SCALE * (motion.length if row == X else motion.speed)) ** 2
            unusual = _log_density(error, spread + wild, known) + np.log(OUTLIERS)
            if row == X:  # a sample is an outlier in all that is measured
                lost = unusual > usual
            weight = weight + np.where(lost, unusual, usual)
            # What was not measured has an infinite variance, and leaves the state as it was.
            state = _updated(state, row, error, np.where(known & ~lost[..., None], noise, np.inf))
        # Of several parents of a jump only the best is kept: the state after it hardly depends on the parent.
        by_parent = weight[:, size:].reshape(count, KINDS, spawned).argmax(axis=2)
        own = np.broadcast_to(np.arange(size), (count, size))
        kept = np.concatenate([own, size + np.arange(KINDS) * spawned + by_parent], axis=1)
        parent[k] = origin[rows, kept[:, size:]]
        kept = kept[rows, np.argsort(-weight[rows, kept], axis=1)[:, :HYPOTHESES]]
        state, weight, last = state[rows, :, kept].swapaxes(1, 2), weight[rows, kept], last[rows, kept]
        # Jumps inherit the outliers of the best hypothesis, which their parents hardly differ from.
        outlier = outlier[rows, np.where(kept < size, kept, 0)]
        outlier[..., k] = lost[rows, kept]
        evidence += weight[:, 0]
        weight = weight - weight[:, :1]
    return [_path(int(last[row, 0]), parent[:, row], outlier[row, 0]) for row in range(count)], evidence


def _after_jump(
    parents: Float[np.ndarray, "sequences 9 parents dimension"],
    h: Float[np.ndarray, "sequences"],
    flights: _Flight,
    motion: Motion,
) -> Float[np.ndarray, "sequences 9 jumps dimension"]:
    """States at the end of a step with a jump of each kind."""
    wide, other = (WIDE * motion.speed) ** 2, ~_IMPACT
    after = flights(parents[:, None], slice(1, 1 + KINDS))
    late = ((_WIDTH * h[:, None]) ** 2 / 12)[:, :, None, None]
    fresh = np.where(_REST, 0.0, wide)[:, None, None]
    after[:, :, XX] += late * (after[:, :, V] ** 2 + after[:, :, VV] + fresh)
    after[:, :, [V, XV, VA]] = 0.0
    after[:, :, VV] = fresh
    after[:, other, XA] = 0.0
    free = (~_REST[other]).astype(float)[:, None, None]
    after[:, other, A] = free * motion.acceleration
    after[:, other, AA] = free * motion.deviation**2
    result = flights(after, slice(1 + KINDS, None))
    return np.moveaxis(result, 2, 1).reshape(len(h), 9, -1, parents.shape[-1])


def _updated(state: np.ndarray, row: int, error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Gaussian states after a measurement of the position (row X) or the velocity (row V)."""
    covariances = state[:, [XX, XV, XA]] if row == X else state[:, [XV, VV, VA]]
    gain = covariances / (covariances[:, [row]] + variance[:, None])
    means = state[:, :3] + gain * error[:, None]
    return np.concatenate([means, state[:, 3:] - gain[:, _FIRST] * covariances[:, _SECOND]], axis=1)


def _log_density(error: np.ndarray, variance: np.ndarray, known: np.ndarray) -> np.ndarray:
    return np.where(known, -0.5 * (error**2 / variance + np.log(2 * np.pi * variance)), 0.0).sum(axis=-1)


def _path(last: int, parent: Int[np.ndarray, "samples kinds"], outlier: Bool[np.ndarray, "samples"]) -> Jumps:
    found = []
    while last >= 0:
        sample, kind = divmod(last, KINDS)
        found.append((sample - 1, kind == KINDS - 1))
        last = int(parent[sample, kind])
    steps, rest = np.array(found[::-1], int).reshape(-1, 2).T
    return Jumps(steps, rest.astype(bool), outlier)
