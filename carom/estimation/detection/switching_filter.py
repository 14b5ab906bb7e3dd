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


def _flown(state: np.ndarray, h: np.ndarray, misfit: np.ndarray, drift: np.ndarray) -> np.ndarray:
    """Gaussian states [9, …] after a time h of dx = v dt, dv = a dt + √q dW, da = √p dW′: F P Fᵀ + Q."""
    x, v, a, xx, xv, xa, vv, va, aa = state
    moved, square = np.empty((9, *np.broadcast_shapes(x.shape, h.shape))), 0.5 * h**2
    of_x = xx + h * xv + square * xa, xv + h * vv + square * va, xa + h * va + square * aa
    of_v = vv + h * va, va + h * aa
    moved[X] = x + h * v + square * a
    moved[V] = v + h * a
    moved[A] = a
    moved[XX] = of_x[0] + h * of_x[1] + square * of_x[2] + misfit * h**3 / 3 + drift * h**5 / 20
    moved[XV] = of_x[1] + h * of_x[2] + misfit * square + drift * h**4 / 8
    moved[XA] = of_x[2] + drift * h**3 / 6
    moved[VV] = of_v[0] + h * of_v[1] + misfit * h + drift * h**3 / 3
    moved[VA] = of_v[1] + drift * square
    moved[AA] = aa + drift * h
    return moved


def _jump_map(motion: Motion) -> tuple[np.ndarray, np.ndarray]:
    """What a jump of each kind keeps of a state, and what it adds: [9, 1, kinds, 1, 1 or dimension]."""
    keep, add = np.ones((9, 1, KINDS, 1, 1)), np.zeros((9, 1, KINDS, 1, len(motion.acceleration)))
    keep[[V, VV, XV, VA]] = 0.0
    add[VV][:, ~_REST] = (WIDE * motion.speed) ** 2
    for kind in np.flatnonzero(~_IMPACT):
        keep[[A, XA, AA], :, kind] = 0.0
        if not _REST[kind]:
            add[A][:, kind], add[AA][:, kind] = motion.acceleration, motion.deviation**2
    return keep, add


def _first_state(data: Sequences, motion: Motion) -> Float[np.ndarray, "9 sequences 2 dimension"]:
    """What is known of every sequence at its first sample, and if that is an outlier."""
    count, dimension = data.position.shape[1:]
    state = np.zeros((9, count, 2, dimension))
    seen = np.isfinite(data.position[0])
    middle = 0.5 * (np.nanmax(data.position, axis=(0, 1)) + np.nanmin(data.position, axis=(0, 1)))
    state[X], state[XX] = middle, motion.length**2
    state[X, :, 0] = np.where(seen, data.position[0], middle)
    state[XX, :, 0] = np.where(seen, motion.noise[0] ** 2, motion.length**2)
    state[VV], state[AA] = (WIDE * motion.speed) ** 2, motion.deviation**2
    state[A] = motion.acceleration
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
    parent, last = np.full((samples, count, KINDS), -1), np.full((count, 2), -1)
    evidence, shares = np.zeros(count), np.log([1 - OUTLIERS, OUTLIERS])[:, None, None]
    weight = np.tile(shares[:, 0, 0], (count, 1))
    stays, jumps = -np.logaddexp(0, data.prior)[:, :, None], -np.logaddexp(0, -data.prior)[:, :, None]
    steps = np.diff(data.time, axis=0)[:, :, None, None]
    keep, add = _jump_map(motion)
    instant = np.where(_REST, 0.0, (WIDE * motion.speed) ** 2)[:, None, None]
    width = _WIDTH[:, None, None] ** 2 / 12
    q, p = (level[:, None, None] for level in (misfit, drift))
    history = []
    for k in range(1, samples):
        # Hypotheses are in the order of their weights.
        size, spawned, h = weight.shape[1], min(weight.shape[1], PARENTS), steps[k - 1]
        moving = state[AA] > 0  # nothing moves a body at rest
        moved = _flown(state, h, q * moving, p * moving)
        h, kinds = h[:, None], (slice(None), None)
        after = _flown(state[:, :, None, :spawned], h * _BEFORE[:, None, None], q[kinds], p[kinds])
        after[XX] += width * h**2 * (after[V] ** 2 + after[VV] + instant)
        after = _flown(after * keep + add, h * _AFTER[:, None, None], q[kinds], p[kinds])
        state = np.concatenate([moved, after.reshape(9, count, -1, dimension)], axis=2)
        jumped = (weight[:, :spawned] + jumps[k])[:, None] + _LOG_SHARE[:, None]
        weight = np.concatenate([weight + stays[k], jumped.reshape(count, -1)], axis=1)
        lost = np.zeros(weight.shape, bool)
        for row, values, finite, usual, variances in channels:
            known = finite[k]
            error = np.where(known, values[k] - state[row], 0.0)
            spread = state[XX if row == X else VV] + variances
            density = np.where(known, -0.5 * (error**2 / spread + np.log(2 * np.pi * spread)), 0.0)
            usual_weight, unusual_weight = density.sum(axis=-1) + shares
            if row == X:  # a sample is an outlier in all that is measured
                lost = unusual_weight > usual_weight
            weight = weight + np.where(lost, unusual_weight, usual_weight)
            # What was not measured has an infinite variance, and leaves the state as it was.
            variance = np.where(known & ~lost[..., None], usual, np.inf)
            covariances = state[[XX, XV, XA] if row == X else [XV, VV, VA]]
            gain = covariances / (covariances[row] + variance)
            state[:3] += gain * error
            state[3:] -= gain[_FIRST] * covariances[_SECOND]
        # Of several parents of a jump only the best is kept: the state after it hardly depends on the parent.
        by_parent = weight[:, size:].reshape(count, KINDS, spawned).argmax(axis=2)
        parent[k] = last[rows, by_parent]
        own = np.broadcast_to(np.arange(size), (count, size))
        kept = np.concatenate([own, size + np.arange(KINDS) * spawned + by_parent], axis=1)
        fresh = np.broadcast_to(k * KINDS + np.arange(KINDS), (count, KINDS))
        last = np.concatenate([last, fresh], axis=1)
        order = np.argsort(-weight[rows, kept], axis=1)[:, :HYPOTHESES]
        kept, last = kept[rows, order], last[rows, order]
        state, weight, lost = state[:, rows, kept], weight[rows, kept], lost[rows, kept]
        # Jumps inherit the outliers of the best hypothesis, which their parents hardly differ from.
        history.append((lost, np.where(kept < size, kept, 0)))
        evidence += weight[:, 0]
        weight = weight - weight[:, :1]
    outlier, index = np.zeros((count, samples), bool), np.zeros(count, int)
    for k in range(samples - 1, 0, -1):
        lost, source = history[k - 1]
        outlier[:, k], index = lost[rows[:, 0], index], source[rows[:, 0], index]
    outlier[:, 0] = index == 1
    return [_path(int(last[row, 0]), parent[:, row], outlier[row]) for row in range(count)], evidence


def _path(last: int, parent: Int[np.ndarray, "samples kinds"], outlier: Bool[np.ndarray, "samples"]) -> Jumps:
    found = []
    while last >= 0:
        sample, kind = divmod(last, KINDS)
        found.append((sample - 1, kind))
        last = int(parent[sample, kind])
    steps, kinds = np.array(found[::-1], int).reshape(-1, 2).T
    return Jumps(steps, _REST[kinds], outlier)
