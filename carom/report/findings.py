"""What a fit directory holds, prepared for the page: motions, contacts, energies, forces and forecasts.

Models are queried for what they can answer (`HasForce`, `HasSurfaces`), never what kind of model they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from carom.data import Run
from carom.errors import InputError
from carom.evaluation import HeldOutForecast, forecast_held_out, held_out_error
from carom.fits import FitDirectory, load_fit_directory, noise_from_notes
from carom.fits.fit_directory import Trajectory
from carom.mechanics import contact_rate, kinetic_energy
from carom.models import AbstractModel, forecast
from carom.models.base import HasForce, HasSurfaces
from carom.storage.input_file import shown
from carom.types import State

POINTS = 81
"""Points of a curve."""
MOST_CHARTS = 6
"""Charts of one kind; nobody looks at more."""
DRAWN_RUNS = 3
"""Runs, and held-out parts, that are drawn."""
NEGLIGIBLE = 1e-5
"""Relative differences below which curves are the same: rounding in float32."""


class Curve(NamedTuple):
    """A function found by the fit, with its 90 % credible band where there are posterior samples.

    Arguments:
        of: number of the coordinate or of the contact.
        grid: where it is evaluated.
        value, low, high: the function and its band; NaN where the data say nothing.
    """

    of: int
    grid: Float[np.ndarray, "points"]
    value: Float[np.ndarray, "points"]
    low: Float[np.ndarray, "points"] | None
    high: Float[np.ndarray, "points"] | None


@dataclass(frozen=True, eq=False)
class Findings:
    """One fit directory: its files, and the names of the coordinates, body by body."""

    fit: FitDirectory
    names: tuple[str, ...]

    @property
    def model(self) -> AbstractModel:
        return self.fit.model

    @property
    def posterior(self) -> AbstractModel | None:
        """Posterior samples, or the ensemble members of the paper's recipe."""
        return self.fit.posterior

    @property
    def runs(self) -> tuple[Run, ...]:
        """The training part."""
        return self.fit.split.training.runs

    @property
    def noise(self) -> tuple[float, float] | None:
        """Estimated standard deviations of positions and velocities."""
        return noise_from_notes(self.fit.notes)

    @property
    def detected(self) -> bool:
        """Whether the fit has detected impacts; the paper's recipe takes touch from the recording."""
        return self.fit.notes.get("impacts") is not None

    @property
    def members(self) -> int:
        """Number of posterior samples or ensemble members."""
        arrays = jax.tree.leaves(eqx.filter(self.posterior, eqx.is_array))
        return len(arrays[0]) if arrays else 0

    @property
    def band(self) -> str:
        """What a band shows, for legends."""
        return "90 % credible band" if self.detected else "90 % of ensemble"

    def fitted_title(self, run: int) -> str:
        """One of `runs` in a heading."""
        numbers = range(len(self.fit.recording.runs))
        if len(self.runs) < len(numbers):  # whole runs were held out
            held_out = {part.number for part in self.fit.split.held_out}
            numbers = [number for number in numbers if number not in held_out]
        return self.title(numbers[run])

    def title(self, number: int) -> str:
        """A run of the recording in a heading: counted from 1, with its label in the file."""
        label = self.fit.recording.labels[number]
        unlabelled = label in (str(number), str(number + 1))
        return f"run {number + 1}" + ("" if unlabelled else f" ({shown(label, length=30)})")

    @cached_property
    def motions(self) -> tuple[Trajectory, ...]:
        """The first runs by the model: smoothed by the fit, or forecast from their first samples."""
        # Smoothed through all samples, where a forecast would drift from them.
        if self.fit.trajectories:
            return self.fit.trajectories[:DRAWN_RUNS]
        found = []
        for run in self.runs[:DRAWN_RUNS]:
            if run.velocity is None or not np.isfinite([run.position[0], run.velocity[0]]).all():
                break
            start = State(jnp.asarray(run.position[0], "float32"), jnp.asarray(run.velocity[0], "float32"))
            ahead = forecast(self.model, start, len(run) - 1)
            found.append(Trajectory(np.asarray(ahead.position), np.asarray(ahead.velocity)))
        return tuple(found)

    @cached_property
    def impacts(self) -> tuple[Bool[np.ndarray, "samples columns"], ...]:
        """Detected impacts by contact, at the first sample after each; or recorded touch, by body."""
        noted = self.fit.notes.get("impacts")
        if noted is None:
            untouched = np.zeros((max(map(len, self.runs)), self.model.scene.bodies), bool)
            return tuple(untouched[: len(run)] if run.touch is None else run.touch for run in self.runs)
        found = []
        for number, run in enumerate(self.runs):
            table = np.zeros((len(run), self.model.scene.contacts), bool)
            try:
                for step, contact in noted[number]:
                    table[step + 1, contact] = True
            except IndexError as error:
                raise InputError(
                    f"The impacts noted for run {number + 1} are not of it; fit again."
                ) from error
            found.append(table)
        return tuple(found)

    def touched(self, run: int) -> Bool[np.ndarray, "samples bodies"]:
        """The samples right after a contact of each body."""
        incidence = self.model.scene.geometry.incidence
        return self.impacts[run] @ incidence if self.detected else self.impacts[run]

    def in_contact(self, run: int, signal: int) -> Bool[np.ndarray, "samples"]:
        """The samples right after a contact, or right after its bodies were touched."""
        if self.detected:
            return self.impacts[run][:, signal]
        # The model knows which bodies a signal stands for.
        alone = jnp.arange(self.model.contact.size) == signal
        return np.any(self.impacts[run][:, np.asarray(self.model.contact.to_touch(alone))], axis=1)

    @cached_property
    def forecasts(self) -> tuple[HeldOutForecast, ...]:
        """Of all that was held out."""
        parts = self.fit.split.held_out
        return forecast_held_out(self.model, parts, samples=self.posterior, noise=self.noise) if parts else ()

    @property
    def error(self) -> float | None:
        """Of the forecasts; None where nothing was held out."""
        return held_out_error(self.forecasts) if self.forecasts else None

    @cached_property
    def energies(self) -> Float[np.ndarray, "2 samples"] | None:
        """Kinetic and potential energy of the first motion, over the mass of body 1.

        The lowest potential energy is 0, as its constant is arbitrary.
        """
        model = self.model
        if not isinstance(model, HasForce) or not self.motions:
            return None
        position, velocity = (jnp.asarray(part, "float32") for part in self.motions[0])
        mass = model.inertia().momentum(jnp.zeros_like(position[0]).at[0, 0].set(1.0))[0, 0]
        kinetic = jax.jit(jax.vmap(lambda v: kinetic_energy(model.inertia(), v)))(velocity)
        potential = jax.jit(jax.vmap(model.potential_energy))(position)
        return np.stack([kinetic, potential - potential.min()]) / float(mass)

    @cached_property
    def forces(self) -> tuple[Curve, ...]:
        """F(q, 0)/m along each coordinate: the force on bodies at rest."""
        positions = np.concatenate([run.position for run in self.runs])
        return self._force_curves(positions, 0, lambda model, q, v: model.force(q, 0 * v))

    @cached_property
    def resistances(self) -> tuple[Curve, ...]:
        """(F(q, v) − F(q, 0))/m against each velocity: damping, drag and the like."""
        velocities = [motion.velocity for motion in self.motions]
        if not velocities:
            return ()
        return self._force_curves(
            np.concatenate(velocities), 1, lambda model, q, v: model.force(q, v) - model.force(q, 0 * v)
        )

    def _force_curves(
        self, visited: Float[np.ndarray, "samples bodies dimension"], channel: int, force: Callable
    ) -> tuple[Curve, ...]:
        """A force over mass along each coordinate of a channel, position or velocity; other positions are at
        their medians, other velocities zero. Of bodies that experience the same, only the first is kept."""
        if not isinstance(self.model, HasForce):
            return ()
        # The data determine a force only where they have been.
        low, high = np.nanmin(visited, axis=0), np.nanmax(visited, axis=0)
        bodies, dimension = low.shape
        coordinates = np.arange(min(MOST_CHARTS // dimension or 1, bodies) * dimension)
        grids = np.linspace(low.min(axis=0), high.max(axis=0), POINTS, axis=1)[coordinates % dimension]
        centre = np.stack([self._median_position, np.zeros_like(low)]).reshape(2, 1, 1, -1)
        states = np.tile(centre, (1, len(coordinates), POINTS, 1))
        states[channel, coordinates, :, coordinates] = grids
        states = jnp.asarray(states.reshape(*states.shape[:3], bodies, dimension), "float32")

        def along(model: Any) -> Array:
            each = jax.vmap(jax.vmap(lambda q, v: model.inertia().solve(force(model, q, v))))(*states)
            return each.reshape(len(coordinates), POINTS, -1)[coordinates, :, coordinates]

        curves = self._curves(coordinates, grids, along)
        value = np.stack([curve.value for curve in curves]).reshape(-1, dimension, POINTS)
        if not value.any():
            return ()
        if np.ptp(value, axis=0).max() <= NEGLIGIBLE * np.abs(value).max():
            return curves[:dimension]
        # Each body has its own force, which the data determine only where that body has been.
        return tuple(_within(curve, low.flat[curve.of], high.flat[curve.of]) for curve in curves)

    @cached_property
    def restitutions(self) -> tuple[Curve, ...]:
        """e over the closing speeds of the detected impacts, for each law that depends on the speed."""
        model = self.model
        if not (self.detected and isinstance(model, HasSurfaces)):
            return ()

        def speeds(motion: Trajectory, happened: np.ndarray) -> np.ndarray:
            before = (jnp.asarray(part[:-1], "float32") for part in motion)
            rate = jax.jit(jax.vmap(lambda q, v: contact_rate(model.geometry.jacobian(q), v)))(*before)
            return -np.asarray(rate)[happened[1:]]

        closing = np.concatenate([*map(speeds, self.motions, self.impacts), np.zeros(0)])
        closing = closing[closing > 0]
        if not len(closing):
            return ()
        # A little beyond the observed speeds: the band shows how fast knowledge ends.
        grid = np.linspace(0.9 * closing.min(), 1.1 * closing.max(), POINTS)
        contacts = np.arange(self.model.scene.contacts)
        rates = jnp.asarray(np.repeat(-grid[:, None], len(contacts), axis=1), "float32")
        grids = np.tile(grid, (len(contacts), 1))
        curves = self._curves(contacts, grids, lambda model: jax.vmap(model.restitution_at)(rates).T)
        # Contacts of the same law have the same curve.
        distinct = {curve.value.round(5).tobytes(): curve for curve in reversed(curves)}
        return tuple(curve for curve in reversed(distinct.values()) if np.ptp(curve.value) > NEGLIGIBLE)

    @cached_property
    def gaps(self) -> Float[np.ndarray, "samples signals"] | None:
        """Of the first motion, between the estimated surfaces; for a contact signal, its probability."""
        model = self.model
        if not model.contact.size or not self.motions:
            return None
        states = State(*(jnp.asarray(part, "float32") for part in self.motions[0]))
        if isinstance(model, HasSurfaces):
            return np.asarray(jax.vmap(model.geometry.gap)(states.position))
        logits = jax.vmap(lambda state: model.contact_logits(model.enter(state)))(states)
        return np.asarray(jax.nn.sigmoid(logits))

    def _curves(self, of: np.ndarray, grids: np.ndarray, evaluate: Callable) -> tuple[Curve, ...]:
        """The curves of the model, with bands from the posterior samples."""
        low = high = [None] * len(of)
        if self.posterior is not None:
            samples = np.asarray(eqx.filter_jit(eqx.filter_vmap(evaluate))(self.posterior))
            # Weibull's plotting positions do not understate the tails of few samples.
            low, high = np.quantile(samples, [0.05, 0.95], axis=0, method="weibull")
        value = np.asarray(eqx.filter_jit(evaluate)(self.model))
        return tuple(map(Curve, of.tolist(), grids, value, low, high))

    @cached_property
    def _median_position(self) -> Float[np.ndarray, "bodies dimension"]:
        return np.nanmedian(np.concatenate([run.position for run in self.runs]), axis=0)


def read_findings(directory: Path) -> Findings:
    """Read a fit directory for its page."""
    fit = load_fit_directory(directory)
    names, count = fit.notes.get("names", ()), fit.model.scene.coordinates
    if len(names) != count:
        names = [f"q{i + 1}" for i in range(count)]
    return Findings(fit, tuple(shown(name) for name in names))


def _within(curve: Curve, low: float, high: float) -> Curve:
    """The curve where the data have been."""
    outside = (curve.grid < low) | (curve.grid > high)
    value, *band = (part if part is None else np.where(outside, np.nan, part) for part in curve[2:])
    assert value is not None
    return Curve(curve.of, curve.grid, value, *band)
