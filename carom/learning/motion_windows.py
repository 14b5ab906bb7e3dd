"""Least squares over a few samples around every step, with a jump of velocity in it or without."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from carom.data import Run


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
        blind: of these the nearest ones that are not looked at, where a contact may last.
        at: the steps; all by default.
    """

    def __init__(
        self, run: Run, half_width: int, *, blind: int = 0, at: Int[np.ndarray, "steps"] | None = None
    ):
        at = np.arange(len(run) - 1) if at is None else at
        steps, (bodies, dimension) = len(at), run.position.shape[1:]
        self.bodies, self.dimension = bodies, dimension
        starts = np.clip(at - half_width + 1, 0, max(0, len(run) - 2 * half_width))
        self.index = starts[:, None] + np.arange(min(2 * half_width, len(run)))
        self.at, self.begin, self.step = at, run.time[:-1], np.diff(run.time)
        flat = run.position.reshape(len(run), -1)
        speed = np.full_like(flat, np.nan) if run.velocity is None else run.velocity.reshape(len(run), -1)
        self.time = run.time[self.index] - run.time[at, None]
        self.value = np.stack([flat[self.index], speed[self.index]], axis=2)  # steps window 2 coordinates
        beyond = self.index - at[:, None]
        seen = (beyond <= -blind) | (beyond > blind)
        self.known = np.isfinite(self.value) & seen[:, :, None, None]
        self.value = np.where(self.known, self.value, 0.0)
        columns = [np.interp(run.time, run.time[ok], c[ok]) for c in flat.T for ok in [np.isfinite(c)]]
        filled = np.stack(columns, axis=1)
        self.filled_position = (0.5 * (filled[1:] + filled[:-1]))[at].reshape(steps, bodies, dimension)

    def fit(self, directions, place, weight=(1.0, 1.0), stiffness: float = 0.0) -> WindowFit:
        """`directions` (steps, jumps, coordinates) or None; the jump is at `place` of the step.

        A place below 0 or from 1 on lies in a step before or after, by the whole part of the number.
        `stiffness` is the precision with which accelerations are expected to vanish.
        """
        steps, coordinates = len(self.value), self.value.shape[-1]
        if directions is None:
            directions = np.zeros((steps, 0, coordinates))
        whole, share = divmod(0.5 if place is None else place, 1)
        there = np.clip(self.at + int(whole), 0, len(self.step) - 1)
        kink = self.begin[there] - self.begin[self.at] + share * self.step[there]
        t = self.time - kink[:, None]
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
            w = self.known[..., c] * np.asarray(weight)
            matrix += np.einsum("nwci,nwc,nwcj->nij", design, w, design)
            vector += np.einsum("nwci,nwc,nwc->ni", design, w, self.value[..., c])
            matrix[:, 3 * c + 2, 3 * c + 2] += stiffness
            designs.append(design)
        scale = np.sqrt(np.maximum(np.einsum("nii->ni", matrix), 1e-300))
        balanced = matrix / scale[:, :, None] / scale[:, None, :] + 1e-10 * np.eye(size)
        solution = np.linalg.solve(balanced, (vector / scale)[..., None])[..., 0] / scale
        squares, counts = np.zeros((steps, 2)), np.zeros((steps, 2))
        for c, design in enumerate(designs):
            away = (self.value[..., c] - np.einsum("nwci,ni->nwc", design, solution)) * self.known[..., c]
            squares += np.sum(away**2, axis=1)
            counts += np.sum(self.known[..., c], axis=1)
        shape = (steps, self.bodies, self.dimension)
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
