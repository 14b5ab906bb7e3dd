"""The oracle: the true equations with only their physical parameters fitted.

No learner can be expected to do better on the same data, so errors are best compared with the oracle's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy

from carom.data import Recording
from carom.errors import InputError
from carom.evaluation.metrics import Motion
from carom.systems import AbstractSystem
from carom.types import State

Solve = Callable[[AbstractSystem, State, int], Motion]


@dataclass(frozen=True)
class OracleFit:
    """The system with fitted parameters, and those parameters."""

    system: AbstractSystem
    parameters: dict[str, float]
    squared_error: float


def fit_oracle(
    system: AbstractSystem,
    recording: Recording,
    *,
    bounds: Mapping[str, tuple[float, float]],
    starts: list[State] | None = None,
    solve: Solve | None = None,
    grid: int = 41,
) -> OracleFit:
    """Fit named parameters of a system to noisy runs by maximum likelihood, start states known.

    With Gaussian noise of equal size on all channels that is least squares over the whole recording. A bounce
    that comes a sample later makes the sum of squares jump, so a grid over the bounds finds likely basins,
    and simplex searches find their minima.

    Arguments:
        system: the true equations.
        recording: the noisy runs, at a constant step; missing values are left out.
        bounds: lower and upper bound of each parameter to fit, such as {"gravity": (9, 11)}.
        starts: noise-free start state of every run, by default the system's own.
        solve: the motion that the recording is compared with, from a system, a start state and a number of
            steps; by default the exact one.
        grid: points per parameter of the first search.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall()
        >>> recording = carom.simulate(ball, steps=100, step_size=0.02, noise=0.1, seed=3)
        >>> fit = fit_oracle(ball, recording, bounds={"gravity": (9.0, 10.5)})
        >>> abs(fit.parameters["gravity"] - 9.81) < 0.05
        True
    """
    unknown = [name for name in bounds if name not in system.__dataclass_fields__]
    if unknown or not bounds:
        raise InputError(f"Name parameters of the system to fit, among {list(system.__dataclass_fields__)}.")
    if not recording.even:
        raise InputError("The oracle compares samples at a constant step, and those of this recording vary.")
    starts = starts or [system.start] * len(recording.runs)
    names = list(bounds)
    lower, upper = np.array([bounds[name] for name in names], float).T

    def exact(candidate: AbstractSystem, start: State, steps: int) -> Motion:
        return candidate.exact(start, np.arange(steps + 1) * recording.step_size)

    def squared_error(values: np.ndarray) -> float:
        candidate = replace(system, **dict(zip(names, map(float, values), strict=True)))
        total = 0.0
        for run, start in zip(recording.runs, starts, strict=True):
            motion = (solve or exact)(candidate, State(start.position, start.velocity), len(run) - 1)
            # Positions and velocities weigh the same, as their noise is taken to be equal.
            total += np.nansum((motion.position - run.position) ** 2)
            if run.velocity is not None:
                total += np.nansum((motion.velocity - run.velocity) ** 2)
        return float(total)

    axes = [np.linspace(low, high, grid) for low, high in zip(lower, upper, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(names))
    spacing = (upper - lower) / (grid - 1)
    # Several, as the lowest point of a coarse grid need not lie in the deepest basin.
    likely = sorted(points, key=squared_error)[: 4 * len(names)]
    minima = [_descend(squared_error, point, spacing, lower, upper) for point in likely]
    found = min(minima, key=lambda minimum: minimum.fun)
    parameters = dict(zip(names, map(float, found.x), strict=True))
    return OracleFit(replace(system, **parameters), parameters, float(found.fun))


def _descend(function, start, spacing, lower, upper) -> "scipy.optimize.OptimizeResult":
    """A simplex search from one point of the grid, which crosses small jumps."""
    simplex = np.clip(np.vstack([start, start + 0.5 * np.diag(spacing)]), lower, upper)
    bounds = list(zip(lower, upper, strict=True))
    options = {"initial_simplex": simplex, "xatol": 1e-6, "fatol": 1e-9, "maxfev": 200 * len(start)}
    return scipy.optimize.minimize(function, start, method="Nelder-Mead", bounds=bounds, options=options)
