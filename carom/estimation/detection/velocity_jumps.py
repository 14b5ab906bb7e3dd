"""Velocity jumps of single bodies, detected by a switching Kalman filter.

Between jumps the acceleration of a body is constant, or varies slowly, up to white noise as a misfit:

    dx = v dt,   dv = a dt + √q dW,   da = √p dW′,        y = x + noise

At a jump the velocity is drawn anew, while the position is continuous, and so is the acceleration if forces
depend on the position. It is drawn anew as well if something else happens, such as a release, and a body may
come to rest. Accelerations and misfit are those under which all recordings together are most probable.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy
from jaxtyping import Float

from carom.estimation.detection.switching_filter import Jumps, Motion, Sequences, most_probable

HAZARD = 0.02
"""Prior probability of a jump in a step."""
MISFITS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Trial intensities q of the misfit, in units of speed³ / length."""
DRIFTS = (0.0, 1e-2, 1e-1, 1.0, 10.0)
"""Trial intensities p of the drift of the acceleration, in units of speed⁵ / length³."""
STRIDES, INDEPENDENT, SATURATED = (1, 2, 4, 8, 16), 1.25, 1.5
"""Strides at which the noise is measured; growth from the first to the second below which it is independent,
and from one to the next below which it has saturated."""
SLACK = 5.0
"""Loss of log-likelihood of a sequence that does not speak against the accelerations found."""
TRIM = 9.0
"""Greatest square of a coordinate's difference that counts as noise, relative to its variance."""
GAIN = 3.0
"""Least gain of the log-likelihood by a greater intensity: what gains nothing only blurs the jumps."""
CHUNK, OVERLAP = 256, 48
"""Samples of the parts of long sequences, and by which they overlap."""
EXACT = 1e-6
"""Least noise, relative to length and speed of the motion."""
ROUNDS = 3
"""Alternations between jumps and what is known of the motion between them."""
TRIALS = 24
"""Sequences from which the intensity of the misfit is chosen."""


def detect_velocity_jumps(data: Sequences) -> tuple[list[Jumps], Motion]:
    """The most probable jumps of every sequence, and the motion between them."""
    whole, data = data, _chunks(data)
    count = data.time.shape[1]
    some = np.linspace(0, count - 1, min(count, TRIALS)).astype(int)
    motion = _first_guess(data)
    best: tuple[list[Jumps], Motion] | None = None
    evidence = -np.inf
    for number in range(ROUNDS):
        tried = None
        if number < 2:
            motion, tried = _with_misfit(data.some(some), motion)
        if tried is None or len(some) < count:
            levels = np.full((2, count), [[motion.misfit], [motion.drift]])
            tried = most_probable(data, motion, *levels)
        parts, of_sequence = tried
        found, total = _joined(parts, whole), float(of_sequence.sum())
        # What the flights say of accelerations and noise is a better prior, unless it misleads: that of a few
        # pushes, say, or of contacts. Bounces too quick to tell apart cost either prior a little.
        if total < evidence - SLACK * count:
            break
        best, evidence = (found, motion), total
        motion = _from_flights(whole, found, motion)
    assert best is not None
    return best


def _chunks(data: Sequences) -> Sequences:
    """Long sequences cut into overlapping ones, which are filtered side by side."""
    samples = len(data.time)
    if samples <= CHUNK + 2 * OVERLAP:
        return data
    rows = np.arange(-OVERLAP, CHUNK + OVERLAP)[:, None] + np.arange(0, samples, CHUNK)[None]
    inside = (rows >= 0) & (rows < samples)
    rows = np.clip(rows, 0, samples - 1)

    def cut(values: np.ndarray, outside: float) -> np.ndarray:
        chunks = np.where(inside.reshape(*inside.shape, *[1] * (values.ndim - 1)), values[rows], outside)
        return np.swapaxes(chunks, 1, 2).reshape(len(rows), -1, *values.shape[2:])

    step = float(np.median(np.diff(data.time, axis=0)))
    # Outside the sequence time goes on, and nothing is measured.
    time = (
        data.time[rows]
        + step
        * (np.arange(-OVERLAP, CHUNK + OVERLAP)[:, None] + np.arange(0, samples, CHUNK) - rows)[..., None]
    )
    return Sequences(
        np.swapaxes(time, 1, 2).reshape(len(rows), -1),
        cut(data.position, np.nan),
        cut(data.velocity, np.nan),
        cut(data.prior, -np.inf),
    )


def _joined(found: Sequence[Jumps], whole: Sequences) -> list[Jumps]:
    """The jumps of whole sequences: each from the chunk in the middle of which it lies."""
    samples, count = whole.time.shape
    if samples <= CHUNK + 2 * OVERLAP:
        return list(found)
    chunks = len(found) // count
    result = []
    for row in range(count):
        parts = []
        for number, jumps in enumerate(found[row * chunks : (row + 1) * chunks]):
            step = jumps.step - OVERLAP
            own = (step >= 0) & (step < CHUNK)
            outlier = jumps.outlier[OVERLAP : OVERLAP + CHUNK]
            parts.append((step[own] + number * CHUNK, jumps.rest[own], outlier))
        steps, rest, outlier = (np.concatenate(part) for part in zip(*parts, strict=True))
        result.append(Jumps(steps, rest, outlier[:samples]))
    return result


def measured_noise(
    values: Float[np.ndarray, "samples sequences dimension"],
    time: Float[np.ndarray, "samples sequences"] | None = None,
) -> tuple[float, int]:
    """Noise of independent samples that would tell as much as these, and the width of a filter, or 1.

    Third divided differences vanish for constant acceleration. Their size does not depend on the stride
    between samples for independent noise, is proportional to it at a jump, and to its cube for a smooth
    motion. If a tracker has smoothed the positions it grows up to the width of the filter, and then no more:
    samples within that width tell as much as one. All of this is robust to jumps and outliers.
    """
    if time is None:
        time = np.broadcast_to(np.arange(len(values))[:, None], values.shape[:2]).astype(float)
    strides = [stride for stride in STRIDES if 24 * stride <= len(values) or stride == 1]
    levels = [_level(values, time, stride) for stride in strides]
    for stride, (level, wider) in zip(STRIDES, pairwise(levels), strict=False):
        if wider < (INDEPENDENT if stride == 1 else SATURATED) * level:
            return level * float(np.sqrt(stride)), stride
    return levels[0], 1


def _level(values: np.ndarray, time: np.ndarray, stride: int) -> float:
    """Standard deviation of a coordinate from third differences between samples some steps apart."""
    count = len(values) - 3 * stride
    if count <= 0:
        return 0.0
    t, x = (np.stack([part[k * stride : k * stride + count] for k in range(4)]) for part in (time, values))
    t = (t - t[0]) / (t[3] - t[0])
    apart = np.where(np.eye(4, dtype=bool)[..., None, None], 1.0, t[:, None] - t[None])
    weight = 1 / apart.prod(axis=1)
    difference = np.einsum("kns,knsd->nsd", weight / np.sqrt(np.sum(weight**2, axis=0)), x)
    squares = np.sum(difference**2, axis=2)
    squares = squares[np.isfinite(squares)]
    if not len(squares):
        return 0.0
    dimension, below, quantile = values.shape[2], scipy.special.chdtr, scipy.special.chdtri
    # The median is robust but has a large error: the mean of what lies within a multiple of it is better.
    limit = TRIM * np.median(squares) / float(quantile(dimension, 0.5))
    kept = np.mean(squares[squares <= limit]) if limit > 0 else 0.0
    # The mean of χ² below a limit is that of χ² with two more degrees of freedom, relative to it.
    share = float(below(dimension + 2, TRIM) / below(dimension, TRIM))
    # From a few samples the noise is often found too small, and false jumps would follow.
    return float(np.sqrt(kept / (dimension * share))) * (1 + 3 / len(squares))


def _first_guess(data: Sequences) -> Motion:
    noise, width = measured_noise(data.position, data.time)
    dimension = data.position.shape[2]
    low, high = np.nanpercentile(data.position, [0.5, 99.5], axis=(0, 1))  # lost tracks may be anywhere
    extent = high - low
    length = max(float(extent.max()), 1e-300)
    speed = _speed(data, max(noise, 1e-9 * length))
    of_velocity, _ = measured_noise(data.velocity, data.time)
    least = np.array([EXACT * length, EXACT * speed])
    wide = 3 * speed**2 / length
    return Motion(
        np.maximum([noise, of_velocity], least),
        speed,
        length,
        np.zeros(dimension),
        np.full(dimension, wide),
        0.0,
        0.0,
        width,
    )


def _speed(data: Sequences, noise: float) -> float:
    """Root-mean-square speed over the shortest time in which bodies move beyond the noise."""
    lag, speed = 1, 0.0
    while lag < len(data.time):
        moved = data.position[lag:] - data.position[:-lag]
        elapsed = data.time[lag:] - data.time[:-lag]
        squares = np.sum(moved**2, axis=2)
        # Without the steps to a lost track and back.
        squares = squares[squares <= np.nanpercentile(squares, 97)]
        square = float(np.mean(squares)) - 2 * moved.shape[2] * noise**2 if len(squares) else 0.0
        speed = np.sqrt(max(square, noise**2)) / float(np.median(elapsed))
        if square > moved.shape[2] * noise**2:  # some ten times its error for some hundred samples
            break
        lag *= 2
    return speed


def _with_misfit(
    data: Sequences, motion: Motion
) -> tuple[Motion, tuple[list[Jumps], Float[np.ndarray, "sequences"]]]:
    """The motion with the drift, and then the misfit, under which the data are most probable; its jumps."""
    rate, chosen = motion.speed / motion.length, motion._replace(drift=0.0, misfit=0.0)
    found: list[Jumps] = []
    of_sequence = np.zeros(0)
    for name, fractions, unit in (
        ("drift", DRIFTS, motion.speed**2 * rate**3),
        ("misfit", MISFITS, motion.speed**2 * rate),
    ):
        # All trials side by side, as if they were sequences of their own.
        count, trials = data.time.shape[1], unit * np.array(fractions)
        values = {"misfit": np.full(len(trials), chosen.misfit), "drift": np.full(len(trials), chosen.drift)}
        values[name] = trials
        each = {key: np.repeat(value, count) for key, value in values.items()}
        rows = np.tile(np.arange(count), len(trials))
        jumps, of_all = most_probable(data.some(rows), motion, **each)
        of_trials = of_all.reshape(len(trials), count)
        evidence, best = of_trials.sum(axis=1), 0
        for index in range(1, len(trials)):
            if evidence[index] > evidence[best] + GAIN:
                best = index
        chosen = chosen._replace(**{name: float(trials[best])})
        found, of_sequence = jumps[best * count : (best + 1) * count], of_trials[best]
    return chosen, (found, of_sequence)


def _from_flights(data: Sequences, found: Sequence[Jumps], motion: Motion) -> Motion:
    """The motion with the accelerations, and the noise, of all flights with five samples or more."""
    values, variances, squares, freedom = [], [], 0.0, 0
    for row, jumps in enumerate(found):
        ends = [-1, *jumps.step.tolist(), len(data.time) - 1]
        for low, high in pairwise(ends):
            t, x = data.time[low + 1 : high + 1, row], data.position[low + 1 : high + 1, row]
            ok = np.isfinite(x).all(axis=1) & ~jumps.outlier[low + 1 : high + 1]
            if ok.sum() < 5:
                continue
            t = t[ok] - t[ok].mean()
            unit = float(np.max(np.abs(t)))  # for the condition of the matrix
            t = t / unit
            design = np.stack([np.ones_like(t), t, 0.5 * t**2], axis=1)
            inverse = np.linalg.pinv(design.T @ design)
            solution = inverse @ design.T @ x[ok]
            values.append(solution[2] / unit**2)
            variances.append(inverse[2, 2] / unit**4)
            squares += float(np.sum((x[ok] - design @ solution) ** 2))
            freedom += (len(t) - 3) * x.shape[1]
    if not values:
        return motion
    mean = np.median(values, axis=0)
    spread = np.median(np.abs(np.array(values) - mean), axis=0) / 0.6745
    by_noise = np.median(np.sqrt(variances)) * motion.noise[0]
    least = 0.1 * np.linalg.norm(mean) + 0.02 * motion.speed**2 / motion.length
    # Third differences over many jumps overestimate the noise, and parabolas that misfit do so too.
    noise = motion.noise.copy()
    if motion.width == 1:
        noise[0] = np.clip(np.sqrt(squares / freedom), EXACT * motion.length, noise[0])
    return motion._replace(
        noise=noise,
        acceleration=mean,
        deviation=np.maximum(np.sqrt(np.maximum(spread**2 - by_noise**2, 0)), least),
    )


def sequences(
    time: Sequence[np.ndarray],
    position: Sequence[np.ndarray],
    velocity: Sequence[np.ndarray | None],
    prior: Sequence[np.ndarray] | None = None,
) -> Sequences:
    """Stack runs [samples, bodies, dimension] with one sequence per body; the shorter ones are padded."""
    longest = max(map(len, time))
    bodies, dimension = position[0].shape[1:]
    times, positions, velocities, priors = [], [], [], []
    for index, t in enumerate(time):
        more = longest - len(t)
        step = float(np.median(np.diff(t))) if len(t) > 1 else 1.0
        padded = np.concatenate([t, t[-1] + step * np.arange(1, more + 1)])
        odds = np.full((len(t), bodies), np.log(HAZARD / (1 - HAZARD)))
        if prior is not None:
            odds = odds + prior[index]
        measured = velocity[index]
        for body in range(bodies):
            times.append(padded)
            positions.append(_padded(position[index][:, body], more))
            missing = np.full((len(t), dimension), np.nan)
            velocities.append(_padded(missing if measured is None else measured[:, body], more))
            priors.append(np.pad(odds[:, body], (0, more), constant_values=-np.inf))
    return Sequences(*(np.stack(part, axis=1) for part in (times, positions, velocities, priors)))


def _padded(values: np.ndarray, more: int) -> np.ndarray:
    return np.pad(values.astype(float), ((0, more), (0, 0)), constant_values=np.nan)
