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
BLOCK = 512
"""Steps times sequences whose maps are made at once; those of one take 8 kB."""
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
_FIRST, _SECOND = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2])
_OF_MEASURED = {X: np.array([XX, XV, XA]), V: np.array([XV, VV, VA])}


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


def _flight(h: np.ndarray) -> Float[np.ndarray, "*times 9 9"]:
    """The map of Gaussian states over times h of dx = v dt, dv = a dt, to be multiplied from the right."""
    square, flight = 0.5 * h**2, np.zeros((*h.shape, 9, 9))
    flight[..., range(9), range(9)] = 1.0
    for source, target in ((V, X), (A, V), (VV, XV), (XA, XV), (VA, XA), (AA, VA)):
        flight[..., source, target] = h
    for source, target in ((XV, XX), (VA, VV)):
        flight[..., source, target] = 2 * h
    for source, target in ((A, X), (AA, XA)):
        flight[..., source, target] = square
    flight[..., XA, XX] = flight[..., VV, XX] = flight[..., AA, VV] = h**2
    flight[..., VA, XX], flight[..., AA, XX] = h**3, square**2
    flight[..., VA, XV], flight[..., AA, XV] = 1.5 * h**2, h * square
    return flight


def _diffusion(h: np.ndarray, misfit: np.ndarray, drift: np.ndarray) -> Float[np.ndarray, "*times 9"]:
    """What √q dW in dv and √p dW′ in da add to the covariances in a time h."""
    added = np.zeros((*h.shape, 9))
    added[..., XX] = misfit * h**3 / 3 + drift * h**5 / 20
    added[..., XV] = misfit * h**2 / 2 + drift * h**4 / 8
    added[..., XA] = drift * h**3 / 6
    added[..., VV] = misfit * h + drift * h**3 / 3
    added[..., VA] = drift * h**2 / 2
    added[..., AA] = drift * h
    return added


class _Steps(NamedTuple):
    """What some successive steps do to states [sequences, hypotheses, dimension, 9]."""

    flight: np.ndarray
    diffusion: np.ndarray
    """Without a jump: [steps, sequences, 9, 9] and [steps, sequences, 1, 1, 9]."""
    before: np.ndarray
    diffused: np.ndarray
    """Up to a jump of each kind: [steps, sequences, kinds, 9, 9] and [steps, sequences, kinds, 1, 9]."""
    unsure: np.ndarray
    """Square of the time by which a jump may be early or late: [steps, sequences, kinds, 1]."""
    after: np.ndarray
    added: np.ndarray
    """At the jump and after it: [steps, sequences, kinds, 9, 9] and
    [steps, sequences, kinds, 1, dimension, 9]."""


def _steps(h: Float[np.ndarray, "steps sequences"], motion: Motion, misfit, drift) -> _Steps:
    keep, add = _jump_map(motion)
    parts, q, p = h[:, :, None], misfit[:, None], drift[:, None]
    after = _flight(parts * _AFTER)
    return _Steps(
        _flight(h),
        _diffusion(h, misfit, drift)[:, :, None, None],
        _flight(parts * _BEFORE),
        _diffusion(parts * _BEFORE, q, p)[:, :, :, None],
        (parts**2 * (_WIDTH**2 / 12))[..., None],
        keep[:, :, None] * after,
        (add @ after + _diffusion(parts * _AFTER, q, p)[:, :, :, None])[:, :, :, None],
    )


def _jump_map(motion: Motion) -> tuple[np.ndarray, np.ndarray]:
    """What a jump of each kind keeps of a state, [kinds, 9], and what it adds, [kinds, dimension, 9]."""
    keep, add = np.ones((KINDS, 9)), np.zeros((KINDS, len(motion.acceleration), 9))
    keep[:, [V, VV, XV, VA]] = 0.0
    add[~_REST, :, VV] = (WIDE * motion.speed) ** 2
    keep[:, [A, XA, AA]] = _IMPACT[:, None]
    released = ~_IMPACT & ~_REST
    add[released, :, A], add[released, :, AA] = motion.acceleration, motion.deviation**2
    return keep, add


def _first_state(data: Sequences, motion: Motion) -> Float[np.ndarray, "sequences 2 dimension 9"]:
    """What is known of every sequence at its first sample, and if that is an outlier."""
    count, dimension = data.position.shape[1:]
    state = np.zeros((count, 2, dimension, 9))
    seen = np.isfinite(data.position[0])
    middle = 0.5 * (np.nanmax(data.position, axis=(0, 1)) + np.nanmin(data.position, axis=(0, 1)))
    state[..., X], state[..., XX] = middle, motion.length**2
    state[:, 0, :, X] = np.where(seen, data.position[0], middle)
    state[:, 0, :, XX] = np.where(seen, motion.noise[0] ** 2, motion.length**2)
    state[..., VV], state[..., AA] = (WIDE * motion.speed) ** 2, motion.deviation**2
    state[..., A] = motion.acceleration
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
    durations = np.diff(data.time, axis=0)
    instant = np.where(_REST, 0.0, (WIDE * motion.speed) ** 2)[:, None]
    block = max(1, BLOCK // count)
    steps, history = _steps(durations[:block], motion, misfit, drift), []
    for k in range(1, samples):
        if k > 1 and (k - 1) % block == 0:
            steps = _steps(durations[k - 1 : k - 1 + block], motion, misfit, drift)
        flight, diffusion, before, diffused, unsure, rest, added = (part[(k - 1) % block] for part in steps)
        # Hypotheses are in the order of their weights.
        size, spawned = weight.shape[1], min(weight.shape[1], PARENTS)
        moved = (state.reshape(count, -1, 9) @ flight).reshape(state.shape)
        moved += diffusion * (state[..., AA:] > 0)  # nothing moves a body at rest
        after = state[:, :spawned].reshape(count, 1, -1, 9) @ before + diffused
        uncertain = unsure * (after[..., V] ** 2 + after[..., VV] + instant)
        after = after @ rest
        after[..., XX] += uncertain
        after = after.reshape(count, KINDS, spawned, dimension, 9) + added
        state = np.concatenate([moved, after.reshape(count, -1, dimension, 9)], axis=1)
        jumped = (weight[:, :spawned] + jumps[k])[:, None] + _LOG_SHARE[:, None]
        weight = np.concatenate([weight + stays[k], jumped.reshape(count, -1)], axis=1)
        lost = np.zeros(weight.shape, bool)
        for row, values, finite, usual, variances in channels:
            known = finite[k]
            error = np.where(known, values[k] - state[..., row], 0.0)
            spread = state[..., XX if row == X else VV] + variances
            density = np.where(known, -0.5 * (error**2 / spread + np.log(2 * np.pi * spread)), 0.0)
            usual_weight, unusual_weight = density.sum(axis=-1) + shares
            if row == X:  # a sample is an outlier in all that is measured
                lost = unusual_weight > usual_weight
            weight = weight + np.where(lost, unusual_weight, usual_weight)
            # What was not measured has an infinite variance, and leaves the state as it was.
            variance = np.where(known & ~lost[..., None], usual, np.inf)
            covariances = state[..., _OF_MEASURED[row]]
            gain = covariances / (covariances[..., row] + variance)[..., None]
            state[..., :3] += gain * error[..., None]
            state[..., 3:] -= gain[..., _FIRST] * covariances[..., _SECOND]
        # Of several parents of a jump only the best is kept: the state after it hardly depends on the parent.
        by_parent = weight[:, size:].reshape(count, KINDS, spawned).argmax(axis=2)
        parent[k] = last[rows, by_parent]
        own = rows * 0 + np.arange(size)
        kept = np.concatenate([own, size + np.arange(KINDS) * spawned + by_parent], axis=1)
        fresh = rows * 0 + (k * KINDS + np.arange(KINDS))
        last = np.concatenate([last, fresh], axis=1)
        order = np.argsort(-weight[rows, kept], axis=1)[:, :HYPOTHESES]
        kept, last = kept[rows, order], last[rows, order]
        state, weight, lost = state[rows, kept], weight[rows, kept], lost[rows, kept]
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
