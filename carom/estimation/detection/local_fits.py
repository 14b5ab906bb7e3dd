"""Local least-squares fits around every step of a run, with or without a velocity jump."""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float, Int

from carom.data import Run

BATCH = 2**14
"""Steps fitted at once, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class WindowFit:
    """Least-squares fits of all windows; states at the instant of the jump."""

    squares: Float[np.ndarray, "steps 2"]
    """Sums of squared residuals of positions and velocities."""
    counts: Float[np.ndarray, "steps 2"]
    position: Float[np.ndarray, "steps bodies dimension"]
    velocity_before: Float[np.ndarray, "steps bodies dimension"]
    velocity_after: Float[np.ndarray, "steps bodies dimension"]
    acceleration: Float[np.ndarray, "steps bodies dimension"]

    def cost(self, weight: np.ndarray, stiffness: float) -> Float[np.ndarray, "steps"]:
        """Weighted sum of squares, including the prior of the acceleration."""
        return self.squares @ weight + stiffness * np.sum(self.acceleration**2, axis=(1, 2))


class Windows:
    """Windows around steps, fitted by q = q₀ + v t + ½ a t² + Δ (t − t_c)₊.

    Arguments:
        half_width: samples either side of the step.
        mask: how many of these, next to the step, are ignored, for contacts of finite duration.
        at: the steps; all by default.
    """

    def __init__(
        self, run: Run, half_width: int, *, mask: int = 0, at: Int[np.ndarray, "steps"] | None = None
    ):
        self.at = np.arange(len(run) - 1) if at is None else at
        self.begin, self.step = run.time[:-1], np.diff(run.time)
        self._run, self._half_width, self._mask = run, half_width, mask
        flat = run.position.reshape(len(run), -1)
        columns = [np.interp(run.time, run.time[ok], c[ok]) for c in flat.T for ok in [np.isfinite(c)]]
        filled = np.stack(columns, axis=1)
        middle = (0.5 * (filled[1:] + filled[:-1]))[self.at]
        self.filled_position = middle.reshape(len(self.at), *run.position.shape[1:])

    def fit(self, directions, instant, weight=(1.0, 1.0), stiffness: float = 0.0) -> WindowFit:
        """Fit all windows.

        Arguments:
            directions: of the velocity jumps (steps, jumps, coordinates); None for no jump.
            instant: t_c in steps from the beginning of the step; it may lie in another step.
            weight: of positions and velocities.
            stiffness: precision of the prior that accelerations vanish.
        """
        if directions is None:
            directions = np.zeros((len(self.at), 0, self.filled_position[0].size))
        blocks = [slice(first, first + BATCH) for first in range(0, len(self.at), BATCH)]
        fits = [self._fit(self.at[rows], directions[rows], instant, weight, stiffness) for rows in blocks]
        if len(fits) == 1:
            return fits[0]
        return WindowFit(*(np.concatenate(parts) for parts in zip(*map(_parts, fits), strict=True)))

    def _fit(self, at: Int[np.ndarray, "steps"], directions, instant, weight, stiffness: float) -> WindowFit:
        run = self._run
        starts = np.clip(at - self._half_width + 1, 0, max(0, len(run) - 2 * self._half_width))
        index = starts[:, None] + np.arange(min(2 * self._half_width, len(run)))
        values = [run.position[index].reshape(*index.shape, -1)]
        velocity = run.velocity
        values.append(
            np.full_like(values[0], np.nan) if velocity is None else velocity[index].reshape(values[0].shape)
        )
        value = np.stack(values, axis=2)  # steps window 2 coordinates
        offset = index - at[:, None]
        used = (offset <= -self._mask) | (offset > self._mask)
        known = np.isfinite(value) & used[:, :, None, None]
        value = np.where(known, value, 0.0)
        steps, coordinates = len(value), value.shape[-1]
        whole, fraction = divmod(0.5 if instant is None else instant, 1)
        jump_step = np.clip(at + int(whole), 0, len(self.step) - 1)
        jump_time = self.begin[jump_step] - self.begin[at] + fraction * self.step[jump_step]
        t = run.time[index] - run.time[at, None] - jump_time[:, None]
        ones, zeros = np.ones_like(t), np.zeros_like(t)
        # Rows: (window, channel); columns: q₀, v, a at the jump.
        smooth = np.stack(
            [np.stack([ones, t, 0.5 * t**2], -1), np.stack([zeros, ones, t], -1)], axis=2
        )  # steps window 2 3
        ramp = np.stack([np.maximum(t, 0), (t > 0).astype(float)], axis=2)  # steps window 2
        jumps = directions.shape[1]
        size = 3 * coordinates + jumps
        matrix, vector = np.zeros((steps, size, size)), np.zeros((steps, size))
        designs = []
        for c in range(coordinates):
            design = np.zeros((*smooth.shape[:3], size))
            design[..., 3 * c : 3 * c + 3] = smooth
            for k in range(jumps):
                design[..., 3 * coordinates + k] = ramp * directions[:, None, None, k, c]
            w = known[..., c] * np.asarray(weight)
            matrix += np.einsum("nwci,nwc,nwcj->nij", design, w, design)
            vector += np.einsum("nwci,nwc,nwc->ni", design, w, value[..., c])
            matrix[:, 3 * c + 2, 3 * c + 2] += stiffness
            designs.append(design)
        # Equilibrated normal equations; the ridge covers coordinates without any sample in a window.
        scale = np.sqrt(np.maximum(np.einsum("nii->ni", matrix), 1e-300))
        balanced = matrix / scale[:, :, None] / scale[:, None, :] + 1e-10 * np.eye(size)
        solution = np.linalg.solve(balanced, (vector / scale)[..., None])[..., 0] / scale
        squares, counts = np.zeros((steps, 2)), np.zeros((steps, 2))
        for c, design in enumerate(designs):
            residual = (value[..., c] - np.einsum("nwci,ni->nwc", design, solution)) * known[..., c]
            squares += np.sum(residual**2, axis=1)
            counts += np.sum(known[..., c], axis=1)
        shape = (steps, *run.position.shape[1:])
        parts = solution[:, : 3 * coordinates].reshape(steps, coordinates, 3)
        jump = np.einsum("nk,nkc->nc", solution[:, 3 * coordinates :], directions)
        return WindowFit(
            squares,
            counts,
            parts[..., 0].reshape(shape),
            parts[..., 1].reshape(shape),
            (parts[..., 1] + jump).reshape(shape),
            parts[..., 2].reshape(shape),
        )


def _parts(fit: WindowFit) -> list[np.ndarray]:
    return [getattr(fit, field.name) for field in fields(fit)]


def local_noise(smooth: WindowFit, quantile: float = 0.5) -> Float[np.ndarray, "2"]:
    """Noise of positions and velocities: the median over the windows, most of which contain no impact.

    Arguments:
        quantile: instead of the median; less if most windows may contain an impact.
    """
    spent = 3 * np.prod(smooth.position.shape[1:])
    total = smooth.counts.sum(axis=1, keepdims=True)
    freedom = np.maximum(smooth.counts * (1 - spent / np.maximum(total, spent + 1)), 1)
    variance = np.where(smooth.counts > 0, smooth.squares / freedom, np.nan)
    known = smooth.counts.sum(axis=0) > 0
    middle = np.array([np.nanquantile(variance[:, c], quantile) if known[c] else 1.0 for c in range(2)])
    return np.sqrt(np.maximum(middle, 1e-18))
