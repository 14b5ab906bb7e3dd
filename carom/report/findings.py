"""What a run folder says, ready to be drawn and told: motions, energies, forces, gaps and forecasts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from carom.data import Run
from carom.errors import InputError
from carom.estimation.parameters.table import contact_name
from carom.evaluation import HeldOutForecast, forecast_held_out, held_out_error
from carom.fits import FitDirectory, load_fit_directory, noise_from_notes
from carom.fits.fit_directory import Trajectory
from carom.mechanics import kinetic_energy
from carom.models import (
    AbstractModel,
    CDLagrangeNetwork,
    ImpactNetwork,
    VariationalIntegratorNetwork,
    forecast,
)
from carom.storage.input_file import shown
from carom.types import State

PLACES = 81
"""Points of a curve over positions."""
DRAWN_RUNS = 3
"""Runs, and stretches held out, that are drawn."""


@dataclass(frozen=True, eq=False)
class Slope:
    """∂U/∂q of a body along one of its coordinates, the others being at their middle; over its mass."""

    body: int
    axis: int
    place: Float[np.ndarray, "places"]
    value: Float[np.ndarray, "places"]
    low: Float[np.ndarray, "places"] | None
    high: Float[np.ndarray, "places"] | None


@dataclass(frozen=True, eq=False)
class Findings:
    """One run folder."""

    finished: FitDirectory
    names: tuple[str, ...]
    """What the coordinates are called, body by body."""

    @property
    def model(self) -> AbstractModel:
        return self.finished.model

    @property
    def notes(self) -> dict[str, Any]:
        return self.finished.notes

    @property
    def runs(self) -> tuple[Run, ...]:
        """What was fitted."""
        return self.finished.split.training.runs

    @property
    def noise(self) -> tuple[float, float] | None:
        """Standard deviations of positions and velocities, by the fit."""
        return noise_from_notes(self.notes)

    @property
    def band(self) -> str:
        """What a band holds, in words; empty where there are no bands."""
        others = self.finished.posterior
        if others is None:
            return ""
        count = len(jax.tree.leaves(eqx.filter(others, eqx.is_array))[0])
        if isinstance(others, ImpactNetwork):
            return f"nine tenths of {count} models drawn from the errors of the fit"
        return f"nine tenths of {count} trainings from different seeds"

    def coordinate(self, body: int, axis: int) -> str:
        """The name of a coordinate."""
        return self.names[body * self.model.scene.dimension + axis]

    def fitted_title(self, run: int) -> str:
        """One of the `runs` in a heading."""
        away = {part.number for part in self.finished.split.held_out}
        everything = range(len(self.finished.recording.runs))
        whole = len(self.runs) == len(everything)  # ends were held out, or nothing was
        return self.title([number for number in everything if whole or number not in away][run])

    def title(self, number: int) -> str:
        """A run of the recording in a heading: counted from 1, with the name that its file gives it."""
        label = self.finished.recording.labels[number]
        plain = label in (str(number), str(number + 1))
        return f"run {number + 1}" + ("" if plain else f" ({shown(label, length=30)})")

    def contact(self, index: int) -> str:
        """A contact in words."""
        return contact_name(self.model.scene, index)

    @cached_property
    def motions(self) -> tuple[Trajectory, ...]:
        """The first runs as the model has them: retraced by the fit, or forecast from their first sample."""
        if self.finished.trajectories:
            return self.finished.trajectories[:DRAWN_RUNS]
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
        """In which steps each contact was found, at the sample after; or the touch of each body."""
        stored = self.notes.get("impacts")
        found = []
        for number, run in enumerate(self.runs[:DRAWN_RUNS]):
            scene = self.model.scene
            if stored is None and run.touch is not None:
                found.append(run.touch)
                continue
            table = np.zeros((len(run), scene.bodies if stored is None else max(1, scene.contacts)), bool)
            places = stored[number] if isinstance(stored, list) and number < len(stored) else []
            for place in places if isinstance(places, list) else []:
                if _is_place(place, table.shape):
                    table[place[0] + 1, place[1]] = True
            found.append(table)
        return tuple(found)

    @cached_property
    def forecasts(self) -> tuple[HeldOutForecast, ...]:
        """Of all that was held out."""
        return tuple(
            forecast_held_out(self.model, part, alternatives=self.finished.posterior, noise=self.noise)
            for part in self.finished.split.held_out
        )

    @property
    def error(self) -> float | None:
        """Of the forecasts; None where nothing was held out."""
        return held_out_error(self.forecasts) if self.forecasts else None

    @cached_property
    def energies(self) -> tuple[Float[np.ndarray, "2 samples"], ...]:
        """Kinetic and potential, of the motions and over the mass of body 1; none without a potential.

        The potential has its lowest value at 0, as its constant is free.
        """
        both = _energy(self.model)
        if both is None:
            return ()
        found = []
        for motion in self.motions:
            position, velocity = (jnp.asarray(part, "float32") for part in (motion.position, motion.velocity))
            kinetic, potential = (np.asarray(part) for part in jax.vmap(both)(position, velocity))
            found.append(np.stack([kinetic, potential - potential.min()]))
        return tuple(found)

    @cached_property
    def slopes(self) -> tuple[Slope, ...]:
        """The learned force, with a sign, along every coordinate; of all bodies alike only one is shown."""
        model = self.model
        if _slope(model) is None or (isinstance(model, ImpactNetwork) and model.field == "none"):
            return ()
        positions = np.concatenate([run.position for run in self.runs])
        low, high = np.nanmin(positions, axis=0), np.nanmax(positions, axis=0)
        middle = np.nanmedian(positions, axis=0)
        shared = isinstance(model, ImpactNetwork) and model.field == "shared"
        if shared:
            low, high = (np.broadcast_to(edge, low.shape) for edge in (low.min(axis=0), high.max(axis=0)))
        found = []
        for body in range(1 if shared else model.scene.bodies):
            for axis in range(model.scene.dimension):
                place = np.linspace(low[body, axis], high[body, axis], PLACES)
                states = np.repeat(middle[None], PLACES, axis=0)
                states[:, body, axis] = place
                found.append(self._slope_along(body, axis, place, jnp.asarray(states, "float32")))
        return tuple(found)

    def _slope_along(self, body: int, axis: int, place: np.ndarray, states) -> Slope:
        def along(model: AbstractModel):
            slope = _slope(model)
            assert slope is not None
            return jax.vmap(slope)(states)[:, body, axis]

        low = high = None
        if self.finished.posterior is not None:
            others = np.asarray(eqx.filter_vmap(along)(self.finished.posterior))
            low, high = np.quantile(others, [0.05, 0.95], axis=0, method="weibull")
        return Slope(body, axis, place, np.asarray(along(self.model)), low, high)

    @cached_property
    def gaps(self) -> tuple[Float[np.ndarray, "samples contacts"], ...]:
        """Of the motions, by the learned surfaces; of a contact signal, its probability instead."""
        model = self.model
        if not model.contact.size:
            return ()
        found = []
        for motion in self.motions:
            position = jnp.asarray(motion.position, "float32")
            if isinstance(model, ImpactNetwork):
                found.append(np.asarray(jax.vmap(model.contact.gap)(position)))
            else:
                states = State(position, jnp.asarray(motion.velocity, "float32"))
                inside = jax.vmap(model.enter)(states)
                found.append(np.asarray(jax.nn.sigmoid(jax.vmap(model.contact_logits)(inside))))
        return tuple(found)


def read_findings(folder: Path) -> Findings:
    """Read a run folder for its page."""
    if not folder.is_dir():
        raise InputError(f"{folder}: this is not a folder; name a run folder that `carom fit` wrote.")
    finished = load_fit_directory(folder)
    scene = finished.model.scene
    names = finished.notes.get("names")
    if not isinstance(names, list) or len(names) != scene.coordinates or not all(map(_is_name, names)):
        names = [f"q{i + 1}" for i in range(scene.coordinates)]
    return Findings(finished, tuple(shown(name) for name in names))


def _energy(model: AbstractModel) -> Callable | None:
    """Kinetic and potential energy of a state, over the mass of body 1."""
    if isinstance(model, ImpactNetwork):
        potential = model.potential_energy
    elif isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        potential = model.potential
    else:
        return None
    alone = jnp.zeros((model.scene.bodies, model.scene.dimension)).at[0, 0].set(1.0)
    scale = float(model.inertia().momentum(alone)[0, 0])
    return lambda position, velocity: (
        kinetic_energy(model.inertia(), velocity) / scale,
        potential(position) / scale,
    )


def _slope(model: AbstractModel) -> Callable | None:
    """∂U/∂q over the mass of each body, an acceleration."""
    if isinstance(model, ImpactNetwork):
        return lambda position: model.inertia().solve(model.slope(position))
    if isinstance(model, CDLagrangeNetwork | VariationalIntegratorNetwork):
        return lambda position: model.inertia().solve(model.potential.gradient(position))
    return None


def _is_place(place: Any, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(place, list)
        and len(place) == 2
        and all(type(number) is int for number in place)
        and 0 <= place[0] < shape[0] - 1
        and 0 <= place[1] < shape[1]
    )


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and bool(name)
