"""The final samples of recorded motions, from which their last states are estimated."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Run
from carom.data.recording import channels
from carom.estimation.detection.velocity_jumps import measured_noise


class Past(NamedTuple):
    """The final samples of several runs, aligned at the last one; earlier ones are padded."""

    time: Float[np.ndarray, "runs samples"]
    """Relative to the last sample; padding has no duration."""
    observed: Float[np.ndarray, "runs samples channels bodies dimension"]
    """Positions, and velocities where any were measured."""
    known: Bool[np.ndarray, "runs samples channels bodies dimension"]
    begin: Int[np.ndarray, "runs"]
    """The first sample that is no padding."""
    noise: Float[np.ndarray, "channels 1 1"]
    unit: Float[np.ndarray, "2 1 1"]
    """Extents of positions and velocities."""

    @classmethod
    def of(cls, runs: Sequence[Run], noise: Float[np.ndarray, "2"], longest: int) -> "Past":
        """The last samples of all runs, at most so many."""
        length = min(longest, max(map(len, runs)))
        values = np.full((len(runs), length, 2, *runs[0].position.shape[1:]), np.nan)
        time = np.zeros((len(runs), length))
        begin = np.array([max(0, length - len(run)) for run in runs])
        for row, (run, first) in enumerate(zip(runs, begin, strict=True)):
            values[row, first:] = channels(run)[first - length :]
            time[row, first:] = run.time[first - length :] - run.time[-1]
            time[row, :first] = time[row, first]
        known = np.isfinite(values)
        positions = values[:, :, 0][known[:, :, 0]]
        extent = max(float(np.ptp(positions)) if positions.size else 0.0, 10 * noise[0])
        unit = np.array([extent, extent / max(-time.min(), 1e-300)])
        measured = 1 + bool(known[:, :, 1].any())
        known, noise = known[:, :, :measured], noise[:measured].reshape(-1, 1, 1)
        observed = np.where(known, values[:, :, :measured], 0.0)
        return cls(time, observed, known, begin, noise, unit.reshape(2, 1, 1))

    def some(self, rows: np.ndarray) -> "Past":
        """The samples of some runs."""
        return self._replace(
            **{name: getattr(self, name)[rows] for name in ("time", "observed", "known", "begin")}
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, bodies and dimension of a state."""
        return (2, *self.known.shape[3:])

    @property
    def measured(self) -> Int[np.ndarray, "runs samples channels bodies"]:
        """How many coordinates are known."""
        return self.known.sum(axis=-1)

    def last(self, count: int) -> "Past":
        """The last samples alone, of as many as there are."""
        skipped = max(self.time.shape[1] - count, 0)
        cut = {name: getattr(self, name)[:, skipped:] for name in ("time", "observed", "known")}
        return self._replace(**cut, begin=np.maximum(self.begin - skipped, 0))

    def since(self, first: np.ndarray | int) -> Bool[np.ndarray, "..."]:
        """Which samples are not before others, one for all runs or for each; with axes for values."""
        samples = np.arange(self.time.shape[1])[:, None, None, None]
        return samples >= np.asarray(first).reshape(-1, 1, 1, 1, 1)

    def residual(self, predicted: np.ndarray) -> np.ndarray:
        """What is left of the observations by predicted states, over the noise."""
        return np.where(self.known, self.observed - predicted[..., : len(self.noise), :, :], 0.0) / self.noise


def noise_of_runs(runs: Sequence[Run], noise: tuple[float, float] | None = None) -> Float[np.ndarray, "2"]:
    """Standard deviations of positions and velocities, measured where they are not stated.

    They are at least the resolution of 16 bits, so that noise-free data have finite weights.
    """
    longest, found = max(map(len, runs)), []
    values = np.full((longest, len(runs), *channels(runs[0]).shape[1:]), np.nan)
    for row, run in enumerate(runs):
        values[: len(run), row] = channels(run)
    for channel, stated in enumerate((np.nan, np.nan) if noise is None else noise):
        of_bodies = values[:, :, channel].reshape(longest, -1, values.shape[-1])
        if not np.isfinite(of_bodies).any():
            found.append(1.0)
            continue
        level = stated if np.isfinite(stated) else measured_noise(of_bodies)[0]
        found.append(max(level, 1e-5 * float(np.nanstd(of_bodies)), 1e-300))
    return np.array(found)
