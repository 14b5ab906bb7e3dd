"""Forecasts of a fit: of what was held out of it, with their errors, and of what nobody has measured yet."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.data import HeldOut, Recording, Run, read_described, read_recording
from carom.data.io.columns import standard_columns
from carom.errors import InputError
from carom.estimation import BandedForecast, forecast_from, forecast_runs
from carom.estimation.forecast import NORMAL_BOUND
from carom.models import AbstractModel
from carom.types import State


class HeldOutForecast(NamedTuple):
    """A forecast at the instants of a held-out stretch.

    Arguments:
        part: the stretch.
        position: the model's forecast.
        low, high: the 90 % credible band; None without posterior samples.
        noise: standard deviation of the measured positions; NaN where it is not known.
    """

    part: HeldOut
    position: Float[np.ndarray, "samples bodies dimension"]
    low: Float[np.ndarray, "samples bodies dimension"] | None
    high: Float[np.ndarray, "samples bodies dimension"] | None
    noise: float

    @property
    def squares(self) -> Float[np.ndarray, "samples bodies dimension"]:
        """Squared errors of the positions, NaN where none was measured."""
        return (self.position - self.part.future.position) ** 2

    @property
    def covered(self) -> float | None:
        """The share of the measured positions within the 90 % credible band, widened by their noise."""
        if self.low is None or self.high is None or np.isnan(self.noise):
            return None
        measured = self.part.future.position
        # Half-widths add in squares, as those of independent normal errors do.
        blur = NORMAL_BOUND * self.noise
        below, above = (np.hypot(np.abs(self.position - edge), blur) for edge in (self.low, self.high))
        # Missing samples are neither inside nor outside.
        known = np.isfinite(measured)
        inside = (measured >= self.position - below) & (measured <= self.position + above)
        return float(inside[known].mean()) if known.any() else None


def forecast_held_out(
    model: AbstractModel,
    parts: Sequence[HeldOut],
    *,
    samples: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
) -> tuple[HeldOutForecast, ...]:
    """Forecast held-out stretches from the ends of their histories, at the instants of their samples.

    Arguments:
        model: the fitted model.
        parts: the stretches and their histories.
        samples, noise, seed: as in `carom.estimation.forecast_runs`.
    """
    histories, times = [part.history for part in parts], [part.future.time for part in parts]
    found = forecast_runs(model, histories, times, samples=samples, noise=noise, seed=seed)
    sigma = float("nan") if noise is None else noise[0]

    def of_positions(edge: np.ndarray | None) -> np.ndarray | None:
        return None if edge is None else edge[0]

    return tuple(
        HeldOutForecast(part, one.position, of_positions(one.low), of_positions(one.high), sigma)
        for part, one in zip(parts, found, strict=True)
    )


def score_held_out(
    model: AbstractModel, parts: Sequence[HeldOut], *, noise: tuple[float, float] | None = None
) -> float:
    """The error of the forecasts of all held-out stretches."""
    return held_out_error(forecast_held_out(model, parts, noise=noise))


def held_out_error(forecasts: tuple[HeldOutForecast, ...]) -> float:
    """Root mean squared error of a coordinate over all held-out samples; infinite where one diverged."""
    squares = np.concatenate([one.squares.ravel() for one in forecasts])
    known = np.concatenate([np.isfinite(one.part.future.position).ravel() for one in forecasts])
    # A mean over what happened to stay finite would flatter a diverging model.
    if not np.isfinite(squares[known]).all():
        return float("inf")
    return float(np.sqrt(squares[known].mean()))


class Forecasts(NamedTuple):
    """Forecasts by one model.

    Arguments:
        recording: a run for every forecast, with touch where the model has contacts.
        bands: columns such as q1_low and q1_high, empty unless every forecast has a credible band.
        members: posterior samples or ensemble members behind every band.
        finite: whether no forecast diverges.
    """

    recording: Recording
    bands: dict[str, np.ndarray]
    members: int
    finite: bool

    @property
    def touching_samples(self) -> int:
        """Samples at which some body is in contact."""
        return sum(int(run.touch.any(axis=1).sum()) for run in self.recording.runs if run.touch is not None)


def forecast_states(
    model: AbstractModel, starts: Sequence[State], steps: int, *, posterior: AbstractModel | None = None
) -> Forecasts:
    """Forecast from states that are known exactly, at time 0 each."""
    ahead = [forecast_from(model, start, steps, samples=posterior) for start in starts]
    return _together(model, ahead, [0.0] * len(ahead), [None] * len(ahead))


def forecast_ends(
    model: AbstractModel,
    recording: Recording,
    steps: int,
    *,
    posterior: AbstractModel | None = None,
    noise: tuple[float, float] | None = None,
    seed: int = 0,
) -> Forecasts:
    """Forecast from the end of every run of a recording, whose last states are uncertain.

    Arguments:
        model: the fitted model.
        recording: the past.
        steps: number of steps.
        posterior: posterior samples of the model.
        noise: standard deviations of positions and velocities, estimated from the recording by default.
        seed: of the samples of last states.
    """
    grid = float(model.step_size) * np.arange(steps + 1)
    ends = [float(run.time[-1]) for run in recording.runs]
    times = [end + grid for end in ends]
    ahead = forecast_runs(model, recording.runs, times, samples=posterior, noise=noise, seed=seed)
    return _together(model, ahead, ends, recording.labels)


def read_past(path: Path, system: Path | None, model: AbstractModel) -> Recording:
    """A recording to forecast from, of as many bodies as the model has.

    Arguments:
        path: the recording.
        system: its system file, by default the one beside it if there is one.
        model: the fitted model.
    """
    scene = model.scene
    # A fitted model knows bodies and dimension; a file as Carom writes it needs no more.
    if system is None and not path.with_suffix(".toml").exists():
        return read_recording(path, scene=scene, missing=("position", "velocity"))
    recording, description = read_described(path, system)
    bodies, dimension = description.scene.bodies, description.scene.dimension
    if (bodies, dimension) != (scene.bodies, scene.dimension):
        raise InputError(
            f"{path}: it has {bodies} bodies in {dimension} dimensions, but the model has {scene.bodies} in "
            f"{scene.dimension}."
        )
    return recording


def _together(
    model: AbstractModel, ahead: Sequence[BandedForecast], begins: list[float], labels: Sequence[str | None]
) -> Forecasts:
    runs = []
    for one, begin, label in zip(ahead, begins, labels, strict=True):
        touch = None
        if model.contact.size:
            touch = np.asarray(jax.vmap(model.contact.to_touch)(jnp.asarray(one.contact)))
        time = begin + np.arange(len(one.position)) * model.step_size
        position, velocity = np.asarray(one.position, float), np.asarray(one.velocity, float)
        runs.append(Run(time=time, position=position, velocity=velocity, touch=touch, label=label))
    members, finite = min(one.members for one in ahead), all(one.finite for one in ahead)
    recording = Recording(tuple(runs), model.step_size, model.scene)
    return Forecasts(recording, _bands(ahead), members, finite)


def _bands(ahead: Sequence[BandedForecast]) -> dict[str, np.ndarray]:
    """The columns q1_low, q1_high …, v1_low …, where every forecast has a band."""
    names = standard_columns(*ahead[0].position.shape[1:])
    columns: dict[str, np.ndarray] = {}
    channels = enumerate((names.position, names.velocity or ()))
    for (channel, of_channel), edge in product(channels, ("low", "high")):
        parts = [getattr(one, edge) for one in ahead]
        # A column with bands for some runs alone could not be told from one with gaps.
        if any(part is None for part in parts):
            return {}
        values = np.concatenate([part[channel].reshape(len(part[channel]), -1) for part in parts])
        columns |= {f"{name}_{edge}": column for name, column in zip(of_channel, values.T, strict=True)}
    return columns
