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
    release: Bool[np.ndarray, "jumps"]
    """Whether its acceleration changes as well."""
    outlier: Bool[np.ndarray, "samples"]
    """Samples that are no measurement of the motion."""


class _Flights(NamedTuple):
    """Motion as a linear map of Gaussian states, x ↦ matrix x + noise, and what a jump in between adds."""

    whole: tuple[np.ndarray, np.ndarray]
    """Over a step: matrices [sequences, 9, 9] and noises [sequences, 9, 1]."""
    before: tuple[np.ndarray, np.ndarray]
    """Up to a jump of each kind within the step: [sequences, kinds, 9, 9 or 1]."""
    after: tuple[np.ndarray, np.ndarray]
    """From there to the end of the step."""
    late: np.ndarray
    """Variance of the instant of a jump of each kind, [sequences, kinds, 1, 1]."""


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


def _flights(h: np.ndarray, misfit: np.ndarray, drift: np.ndarray) -> _Flights:
    """Flights over a whole step, and up to and after a jump of each kind within it."""
    durations = h[:, None] * np.concatenate([[1.0], _BEFORE, _AFTER])
    powers = durations[..., None] ** np.arange(6)
    noise = misfit[:, None, None] * (powers @ _BY_MISFIT) + drift[:, None, None] * (powers @ _BY_DRIFT)
    matrix, noise = np.tensordot(powers, _MATRIX, 1), noise[..., None]
    before, after = slice(1, 1 + KINDS), slice(1 + KINDS, None)
    late = ((_WIDTH * h[:, None]) ** 2 / 12)[:, :, None, None]
    return _Flights(
        (matrix[:, 0], noise[:, 0]),
        (matrix[:, before], noise[:, before]),
        (matrix[:, after], noise[:, after]),
        late,
    )


def _jump_map(motion: Motion) -> tuple[np.ndarray, np.ndarray]:
    """What a jump of each kind keeps of a state, and what it adds: [kinds, 9, 1, 1 or dimension]."""
    keep, add = np.ones((KINDS, 9, 1, 1)), np.zeros((KINDS, 9, 1, len(motion.acceleration)))
    keep[:, [V, VV, XV, VA]] = 0.0
    add[~_REST, VV] = (WIDE * motion.speed) ** 2
    for kind in np.flatnonzero(~_IMPACT):
        keep[kind, [A, XA, AA]] = 0.0
        if not _REST[kind]:
            add[kind, A], add[kind, AA] = motion.acceleration, motion.deviation**2
    return keep, add


def _first_state(data: Sequences, motion: Motion) -> np.ndarray:
    """What is known of every sequence at its first sample."""
    count, dimension = data.position.shape[1:]
    state = np.zeros((count, 9, 1, dimension))
    seen = np.isfinite(data.position[0])
    middle = 0.5 * (np.nanmax(data.position, axis=(0, 1)) + np.nanmin(data.position, axis=(0, 1)))
    state[:, X, 0] = np.where(seen, data.position[0], middle)
    state[:, XX, 0] = np.where(seen, motion.noise[0] ** 2, motion.length**2)
    state[:, VV], state[:, AA] = (WIDE * motion.speed) ** 2, motion.deviation**2
    state[:, A] = motion.acceleration
    return state


def _channels(data: Sequences, motion: Motion) -> list[tuple[int, np.ndarray, np.ndarray, float, np.ndarray]]:
    """What is measured: its entry of the state, values, which of them are known, the variance of a usual one,
    and those of a usual one and of an outlier."""
    measured = [(X, data.position, motion.noise[0] ** 2, motion.length)]
    if np.isfinite(data.velocity).any():
        measured.append((V, data.velocity, motion.noise[1] ** 2, motion.speed))
    return [
        (
            row,
            np.nan_to_num(values)[:, :, None],
            np.isfinite(values)[:, :, None],
            noise,
            np.array([noise, (OUTLIER_SCALE * scale) ** 2]).reshape(2, 1, 1, 1),
        )
        for row, values, noise, scale in measured
    ]


def most_probable(
    data: Sequences,
    motion: Motion,
    misfit: Float[np.ndarray, "sequences"],
    drift: Float[np.ndarray, "sequences"],
) -> tuple[list[Jumps], Float[np.ndarray, "sequences"]]:
    """The most probable path of every sequence, and its log-likelihood, for trial misfits and drifts."""
    # One loop without calls of our own: with few sequences the calls of NumPy already take most of the time.
    samples, count, dimension = data.position.shape
    rows = np.arange(count)[:, None]
    state, channels = _first_state(data, motion), _channels(data, motion)
    weight, last = np.zeros((count, 1)), np.full((count, 1), -1)
    parent = np.full((samples, count, KINDS), -1)
    evidence = np.zeros(count)
    shares = np.log([1 - OUTLIERS, OUTLIERS])[:, None, None]
    stays, jumps = -np.logaddexp(0, data.prior)[:, :, None], -np.logaddexp(0, -data.prior)[:, :, None]
    steps = np.diff(data.time, axis=0)
    # Steps that differ by rounding alone are the same, which saves a part of the work.
    steps = np.where(np.abs(steps - np.median(steps)) < 1e-9 * np.median(steps), np.median(steps), steps)
    changed = np.append(False, (steps[1:] != steps[:-1]).any(axis=1))
    keep, add = _jump_map(motion)
    instant = np.where(_REST, 0.0, (WIDE * motion.speed) ** 2)[:, None, None]
    flights, history = _flights(steps[0], misfit, drift), []
    for k in range(1, samples):
        if changed[k - 1]:
            flights = _flights(steps[k - 1], misfit, drift)
        # Hypotheses are in the order of their weights.
        size, spawned = weight.shape[1], min(weight.shape[1], PARENTS)
        matrix, noise = flights.whole
        moved = (matrix @ state.reshape(count, 9, -1)).reshape(count, 9, size, dimension)
        moved += noise[..., None] * (state[:, AA : AA + 1] > 0)  # nothing moves a body at rest
        matrix, noise = flights.before
        after = matrix @ state[:, None, :, :spawned].reshape(count, 1, 9, -1) + noise
        after = after.reshape(count, KINDS, 9, spawned, dimension)
        after[:, :, XX] += flights.late * (after[:, :, V] ** 2 + after[:, :, VV] + instant)
        after = after * keep + add
        matrix, noise = flights.after
        after = (matrix @ after.reshape(count, KINDS, 9, -1) + noise).swapaxes(1, 2)
        state = np.concatenate([moved, after.reshape(count, 9, -1, dimension)], axis=2)
        jumped = (weight[:, :spawned] + jumps[k])[:, None] + _LOG_SHARE[:, None]
        weight = np.concatenate([weight + stays[k], jumped.reshape(count, -1)], axis=1)
        lost = np.zeros(weight.shape, bool)
        for row, values, finite, usual, variances in channels:
            known = finite[k]
            error = np.where(known, values[k] - state[:, row], 0.0)
            spread = state[:, XX if row == X else VV] + variances
            density = np.where(known, -0.5 * (error**2 / spread + np.log(2 * np.pi * spread)), 0.0)
            usual_weight, unusual_weight = density.sum(axis=-1) + shares
            if row == X:  # a sample is an outlier in all that is measured
                lost = unusual_weight > usual_weight
            weight = weight + np.where(lost, unusual_weight, usual_weight)
            # What was not measured has an infinite variance, and leaves the state as it was.
            variance = np.where(known & ~lost[..., None], usual, np.inf)
            covariances = state[:, 3:6] if row == X else state[:, [XV, VV, VA]]
            gain = covariances / (covariances[:, row : row + 1] + variance[:, None])
            change = gain[:, _FIRST] * covariances[:, _SECOND]
            state[:, :3] += gain * error[:, None]
            state[:, 3:] -= change
        # Of several parents of a jump only the best is kept: the state after it hardly depends on the parent.
        by_parent = weight[:, size:].reshape(count, KINDS, spawned).argmax(axis=2)
        parent[k] = last[rows, by_parent]
        own = np.broadcast_to(np.arange(size), (count, size))
        kept = np.concatenate([own, size + np.arange(KINDS) * spawned + by_parent], axis=1)
        fresh = np.broadcast_to(k * KINDS + np.arange(KINDS), (count, KINDS))
        last = np.concatenate([last, fresh], axis=1)
        order = np.argsort(-weight[rows, kept], axis=1)[:, :HYPOTHESES]
        kept, last = kept[rows, order], last[rows, order]
        state, weight, lost = state[rows, :, kept].swapaxes(1, 2), weight[rows, kept], lost[rows, kept]
        # Jumps inherit the outliers of the best hypothesis, which their parents hardly differ from.
        history.append((lost, np.where(kept < size, kept, 0)))
        evidence += weight[:, 0]
        weight = weight - weight[:, :1]
    outlier, index = np.zeros((count, samples), bool), np.zeros(count, int)
    for k in range(samples - 1, 0, -1):
        lost, source = history[k - 1]
        outlier[:, k], index = lost[rows[:, 0], index], source[rows[:, 0], index]
    return [_path(int(last[row, 0]), parent[:, row], outlier[row]) for row in range(count)], evidence


def _path(last: int, parent: Int[np.ndarray, "samples kinds"], outlier: Bool[np.ndarray, "samples"]) -> Jumps:
    found = []
    while last >= 0:
        sample, kind = divmod(last, KINDS)
        found.append((sample - 1, kind))
        last = int(parent[sample, kind])
    steps, kinds = np.array(found[::-1], int).reshape(-1, 2).T
    return Jumps(steps, _REST[kinds], ~_IMPACT[kinds] & ~_REST[kinds], outlier)
