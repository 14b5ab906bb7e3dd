"""Least squares over a few samples around every step, with a jump of velocity in it or without."""

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float, Int

from carom.data import Run

AT_ONCE = 2**14
"""Steps that are looked at together: memory for more is not needed."""


@dataclass(frozen=True, eq=False)
class WindowFit:
    squares: Float[np.ndarray, "steps 2"]
    """Sums of squares of positions and velocities."""
    counts: Float[np.ndarray, "steps 2"]
    position: Float[np.ndarray, "steps bodies dimension"]
    velocity_before: Float[np.ndarray, "steps bodies dimension"]
    velocity_after: Float[np.ndarray, "steps bodies dimension"]
    acceleration: Float[np.ndarray, "steps bodies dimension"]

    def misfit(self, weight: np.ndarray, stiffness: float) -> Float[np.ndarray, "steps"]:
        """Weighted sum of squares, an unlikely acceleration included."""
        return self.squares @ weight + stiffness * np.sum(self.acceleration**2, axis=(1, 2))


class Windows:
    """Least squares over a few samples around every step: q = q₀ + v t + ½ a t² + Δ (t − t_c)₊.

    Arguments:
        half_width: samples either side of the step.
        mask: of these the nearest ones that are not looked at, where a contact may last.
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

    def fit(self, directions, place, weight=(1.0, 1.0), stiffness: float = 0.0) -> WindowFit:
        """`directions` (steps, jumps, coordinates) or None; the jump is at `place` of the step.

        A place below 0 or from 1 on lies in a step before or after, by the whole part of the number.
        `stiffness` is the precision with which accelerations are expected to vanish.
        """
        if directions is None:
            directions = np.zeros((len(self.at), 0, self.filled_position[0].size))
        blocks = [slice(first, first + AT_ONCE) for first in range(0, len(self.at), AT_ONCE)]
        fits = [self._fit(self.at[rows], directions[rows], place, weight, stiffness) for rows in blocks]
        if len(fits) == 1:
            return fits[0]
        return WindowFit(*(np.concatenate(parts) for parts in zip(*map(_parts, fits), strict=True)))

    def _fit(self, at: Int[np.ndarray, "steps"], directions, place, weight, stiffness: float) -> WindowFit:
        run = self._run
        starts = np.clip(at - self._half_width + 1, 0, max(0, len(run) - 2 * self._half_width))
        index = starts[:, None] + np.arange(min(2 * self._half_width, len(run)))
        values = [run.position[index].reshape(*index.shape, -1)]
        velocity = run.velocity
        values.append(
            np.full_like(values[0], np.nan) if velocity is None else velocity[index].reshape(values[0].shape)
        )
        value = np.stack(values, axis=2)  # steps window 2 coordinates
        beyond = index - at[:, None]
        seen = (beyond <= -self._mask) | (beyond > self._mask)
        known = np.isfinite(value) & seen[:, :, None, None]
        value = np.where(known, value, 0.0)
        steps, coordinates = len(value), value.shape[-1]
        whole, share = divmod(0.5 if place is None else place, 1)
        there = np.clip(at + int(whole), 0, len(self.step) - 1)
        kink = self.begin[there] - self.begin[at] + share * self.step[there]
        t = run.time[index] - run.time[at, None] - kink[:, None]
        ones, zeros = np.ones_like(t), np.zeros_like(t)
        # Rows: (window, channel); columns: q₀, v, a at the kink.
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
        scale = np.sqrt(np.maximum(np.einsum("nii->ni", matrix), 1e-300))
        balanced = matrix / scale[:, :, None] / scale[:, None, :] + 1e-10 * np.eye(size)
        solution = np.linalg.solve(balanced, (vector / scale)[..., None])[..., 0] / scale
        squares, counts = np.zeros((steps, 2)), np.zeros((steps, 2))
        for c, design in enumerate(designs):
            away = (value[..., c] - np.einsum("nwci,ni->nwc", design, solution)) * known[..., c]
            squares += np.sum(away**2, axis=1)
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


def local_noise(smooth: WindowFit, share: float = 0.5) -> Float[np.ndarray, "2"]:
    """Standard deviations from windows without a kink, which are most: so the median.

    Arguments:
        share: the quantile instead of the median, lower where windows with a kink may be most.
    """
    spent = 3 * np.prod(smooth.position.shape[1:])
    total = smooth.counts.sum(axis=1, keepdims=True)
    freedom = np.maximum(smooth.counts * (1 - spent / np.maximum(total, spent + 1)), 1)
    variance = np.where(smooth.counts > 0, smooth.squares / freedom, np.nan)
    known = smooth.counts.sum(axis=0) > 0
    middle = np.array([np.nanquantile(variance[:, c], share) if known[c] else 1.0 for c in range(2)])
    return np.sqrt(np.maximum(middle, 1e-18))
