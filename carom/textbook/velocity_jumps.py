"""Velocity jumps by local polynomials: the simplest detector of impacts, and the surfaces that they suggest.

Around every interval between two samples a parabola is compared with a parabola that has a kink,

    x(τ) = x₀ + v τ + ½ a τ² + c |τ|,

over windows of several widths. The reduction of the squared residuals by c, over the mean square that is
left, is an F statistic; windows that span a second jump leave large residuals and do not count.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from carom.data import Run
from carom.mechanics import Pair, Wall
from carom.mechanics.geometry import Candidate

WIDTHS = (4, 6, 10, 16, 32, 64)
"""Samples of a window on either side."""
HINGES = (0.2, 0.5, 0.8)
"""Where within an interval a jump is tried."""
LEAST_F = 40.0
ALIGNED = 0.9
"""Cosine between jumps at the same wall, whatever friction does to their directions."""


class Jump(NamedTuple):
    """A sudden change of velocity of one body."""

    time: float
    body: int
    position: Float[np.ndarray, "dimension"]
    change: Float[np.ndarray, "dimension"]


def noise_level(position: Float[np.ndarray, "samples dimension"]) -> float:
    """Standard deviation of the noise from third differences, robust to impacts.

    Smoothed positions have too small differences between neighbours, so long runs are also compared at larger
    strides.
    """
    levels = []
    for stride in range(1, 1 + max(1, min(6, len(position) // 100))):
        a, b, c, d = (position[k * stride : len(position) - (3 - k) * stride] for k in range(4))
        if len(a):
            levels.append(1.4826 * np.median(np.abs(d - 3 * c + 3 * b - a)) / np.sqrt(20))
    return max([float(level) for level in levels], default=0.0)


def without_outliers(run: Run) -> Run:
    """A run whose single samples far off their neighbours are missing; a flight has no such samples."""
    position = run.position.copy()
    for body in range(position.shape[1]):
        rows = np.flatnonzero(np.isfinite(position[:, body]).all(axis=1))
        x = position[rows, body]
        if len(x) < 5:
            continue
        five = np.lib.stride_tricks.sliding_window_view(x, 5, axis=0)
        off = np.linalg.norm(x[2:-2] - np.median(five, axis=-1), axis=1)
        # At an impact the middle sample is one step away from the median of five.
        step = np.sort(np.linalg.norm(np.diff(five, axis=-1), axis=1), axis=-1)[:, 1]
        level = noise_level(x) * np.sqrt(x.shape[1])
        position[rows[2:-2][(off > 10 * level) & (off > 3 * step)], body] = np.nan
    return Run(run.time, position, label=run.label)


def find_jumps(run: Run) -> list[Jump]:
    """The velocity jumps of every body, in order of time."""
    jumps = []
    for body in range(run.position.shape[1]):
        rows = np.isfinite(run.position[:, body]).all(axis=1)
        jumps += _jumps_of(run.time[rows], run.position[rows, body], body)
    return sorted(jumps, key=lambda jump: jump.time)


def _jumps_of(
    time: Float[np.ndarray, "samples"], position: Float[np.ndarray, "samples dimension"], body: int
) -> list[Jump]:
    count, dimension = position.shape
    noise = max(noise_level(position), 1e-9 * float(np.ptp(position)) if count else 0.0, 1e-300)
    kinds = [(width, hinge) for width in WIDTHS if 2 * width <= count for hinge in HINGES]
    score = np.zeros((len(kinds), count))
    found = np.zeros((len(kinds), count, 2, dimension))
    for row, (width, hinge) in enumerate(kinds):
        here = slice(width - 1, count - width)
        score[row, here], found[row, here] = _kinks(time, position, width, hinge, noise)
    jumps = []
    while score.size and score.max() > LEAST_F:
        row, interval = np.unravel_index(np.argmax(score), score.shape)
        instant = time[interval] + kinds[row][1] * (time[interval + 1] - time[interval])
        jumps.append(Jump(float(instant), body, *found[row, interval]))
        for other, (width, _) in enumerate(kinds):
            score[other, max(0, interval - width + 1) : interval + width] = 0
    return jumps


def _kinks(time, position, width: int, hinge: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """F of a jump in the middle of every window, and its place and size."""
    windows = np.lib.stride_tricks.sliding_window_view
    t = windows(time, 2 * width)
    x = windows(position, 2 * width, axis=0).swapaxes(1, 2)
    left, right = t[:, width - 1 : width], t[:, width : width + 1]
    tau = t - left - hinge * (right - left)
    scale = tau[:, -1:] - tau[:, :1]
    tau = tau / scale
    centre = x.mean(axis=1, keepdims=True)
    basis, upper = np.linalg.qr(np.stack([np.ones_like(tau), tau, tau**2, np.abs(tau)], axis=-1))
    part = basis.swapaxes(1, 2) @ (x - centre)
    left_over = np.sum((x - centre) ** 2, axis=(1, 2)) - np.sum(part**2, axis=(1, 2))
    freedom = (2 * width - 4) * x.shape[-1]
    gain = np.sum(part[:, 3] ** 2, axis=-1) / np.maximum(left_over / freedom, noise**2)
    values = np.linalg.solve(upper, part)
    place, kink = values[:, 0] + centre[:, 0], 2 * values[:, 3] / scale
    return gain, np.stack([place, kink], axis=1)


def surfaces_from_jumps(runs: Sequence[Run], found: Sequence[Sequence[Jump]]) -> tuple[Candidate, ...]:
    """Walls and pairs that explain the jumps: directions that recur, and bodies that jump together.

    Arguments:
        runs: the motions, which do not cross a wall.
        found: the jumps of every run.
    """
    bodies, dimension = runs[0].position.shape[1:]
    whole = np.concatenate([run.position for run in runs])
    walls: list[Wall] = []
    pairs: dict[tuple[int, int], list[float]] = {}
    alone: list[Jump] = []
    for jumps in found:
        used = set()
        for i, one in enumerate(jumps):
            for j, two in enumerate(jumps[i + 1 :], start=i + 1):
                together = one.body != two.body and abs(one.time - two.time) < 0.02
                if together and one.change @ two.change < 0 and not {i, j} & used:
                    used |= {i, j}
                    first, second = (one, two) if one.body < two.body else (two, one)
                    if dimension == 1 and first.position[0] < second.position[0]:
                        first, second = second, first
                    distance = float(np.linalg.norm(first.position - second.position))
                    pairs.setdefault((first.body, second.body), []).append(distance)
        alone += [jump for i, jump in enumerate(jumps) if i not in used]
    for body in range(bodies):
        left = sorted((j for j in alone if j.body == body), key=lambda j: -np.linalg.norm(j.change))
        least = max(3, len(left) // 20)
        while left:
            along = left[0].change / np.linalg.norm(left[0].change)
            close = [j for j in left if along @ j.change > ALIGNED * np.linalg.norm(j.change)]
            normal = np.sum([j.change for j in close], axis=0)
            normal /= np.linalg.norm(normal)
            left = [j for j in left if not any(j is other for other in close)]
            heights = np.array([normal @ j.position for j in close])
            offset, scatter = (
                float(np.median(heights)),
                float(np.median(np.abs(heights - np.median(heights)))),
            )
            behind = whole[:, body] @ normal < offset - 3 * scatter - 0.01 * float(np.ptp(heights))
            if len(close) >= least and np.mean(behind) < 0.02:
                walls.append(Wall(body, tuple(normal.tolist()), offset))
    joined = [Pair(*bodies, float(np.median(d))) for bodies, d in pairs.items() if len(d) >= 3]
    return (*walls, *joined)
