"""What every model provides, and the rollouts that follow from it."""

from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from carom.compilation import full_precision
from carom.errors import InputError
from carom.integrators import consecutive, prepend
from carom.integrators import rollout as repeat
from carom.mechanics import AbstractInertia, ContactGeometry, Scene
from carom.models.contact_signal import AbstractContactSignal, Logits, Signal
from carom.notebook import table
from carom.types import Coordinates, PerContact, State

Model = TypeVar("Model", bound="AbstractModel")


@runtime_checkable
class Recorded(Protocol):
    """The part of a recording that a model is built from."""

    @property
    def scene(self) -> Scene | None: ...

    @property
    def step_size(self) -> float: ...


@runtime_checkable
class HasForce(Protocol):
    """A model with a force and an energy, which can be drawn."""

    def inertia(self) -> AbstractInertia: ...

    def force(self, position: Coordinates, velocity: Coordinates) -> Coordinates: ...

    def potential_energy(self, position: Coordinates) -> Float[Array, ""]: ...


@runtime_checkable
class HasSurfaces(Protocol):
    """A model whose contacts are decided by the gaps between surfaces, with a law of restitution."""

    @property
    def geometry(self) -> ContactGeometry: ...

    def restitution_at(self, rate: PerContact) -> PerContact: ...


class AbstractModel(eqx.Module):
    """A learned map from a state and the contacts of a step to the next state.

    `step` works on the model's own grid; `enter` and `leave` convert from and to the sample grid, on which
    positions and velocities are recorded. Weights are the model's arrays; everything fixed is in static
    fields. A new model is one file that defines these members and a constructor
    `(scene, step_size, *, …, key)`.
    """

    contact: eqx.AbstractVar[AbstractContactSignal]
    scene: eqx.AbstractVar[Scene]
    step_size: eqx.AbstractVar[float]

    def _repr_html_(self) -> str:
        # Arrays are what training changes; everything else is fixed.
        scene, weights = self.scene, jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array))
        size = f"bodies: {scene.bodies}, dimension: {scene.dimension}, candidate contacts: {scene.contacts}"
        rows = [
            ("scene", size),
            ("step size", f"{self.step_size:.6g} s"),
            ("learned numbers", str(sum(leaf.size for leaf in weights))),
            *((name, str(value)) for name, value in self.options.items()),
        ]
        return table(type(self).__name__, rows)

    @property
    @abstractmethod
    def predicts_velocity(self) -> bool:
        """Whether the training loss includes velocities."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The keyword arguments, except the key, that construct a model of this shape."""

    @abstractmethod
    def enter(self, state: State) -> State:
        """Convert a state from the sample grid to the model's own."""

    @abstractmethod
    def leave(self, before: State, after: State, contact: Signal) -> State:
        """Convert back to the sample grid, at the end of a step with these contacts."""

    @abstractmethod
    def step(self, state: State, contact: Signal) -> State:
        """One step, with the contacts of that step given."""

    @abstractmethod
    def penalised(self) -> tuple[Array, ...]:
        """The kernels that ℓ² regularisation shrinks."""

    @classmethod
    def for_recording(cls: type[Model], recording: Recorded, **options) -> Model:
        """A model for the scene and the step size of a recording; options as for the class."""
        if recording.scene is None:
            raise InputError("This recording has no scene: read it with a system file, or use `with_scene`.")
        # Every subclass is constructed from a scene and a step size; the abstract class cannot declare it.
        return cls(recording.scene, recording.step_size, **options)  # pyright: ignore

    def drift(self, state: State) -> Coordinates:
        """Q_{n+1} = Q_n + h V_{n+1/2}, where a step arrives before its contacts are known."""
        return state.position + self.step_size * state.velocity

    def contact_logits(self, state: State) -> Logits:
        """Log-odds of the contacts of the step that leaves `state`."""
        return self.contact.logits(state, self.drift(state))

    def gate(self, state: State) -> Float[Array, "signals"]:
        """Probabilities of the contacts of the step that leaves `state`, to scale its impulses softly."""
        return jax.nn.sigmoid(self.contact_logits(state))

    def advance(self, state: State) -> tuple[State, Logits]:
        """One step with the contacts that the model finds likelier than not, and their log-odds."""
        logits = self.contact_logits(state)
        return self.step(state, logits > 0), logits


class Forecast(NamedTuple):
    """A free rollout on the sample grid, and the probability of each contact at every sample."""

    position: Float[Array, "samples bodies dimension"]
    velocity: Float[Array, "samples bodies dimension"]
    contact: Float[Array, "samples signals"]


@full_precision()
def rollout(model: AbstractModel, start: State, contact: Bool[Array, "steps signals"]) -> State:
    """States on the sample grid, `start` included, with the contacts of every step given."""

    def step(state, signal):
        return model.step(state, signal), signal

    # Converted after all steps, in one batch: the states on the model's own grid are needed anyway.
    states, signals = repeat(step, model.enter(start), inputs=contact)
    return prepend(start, jax.vmap(model.leave)(*consecutive(states), signals))


def batched_rollout(
    model: AbstractModel, start: State, contact: Bool[Array, "windows steps signals"] | None, *, steps: int
) -> State:
    """States (windows, steps + 1) on the model's own grid, from `start` (windows) on that grid.

    `contact` gives the contacts of every step; with None the model's own soft signal scales its impulses.

    All windows take a step together. Unrolled, the activations of a step stay where the backward pass finds
    them, instead of being copied into and out of one array over all steps.
    """

    def step(states: State, given):
        signals = jax.vmap(model.gate)(states) if given is None else given
        return jax.vmap(model.step)(states, signals), None

    by_step = None if contact is None else jnp.swapaxes(contact, 0, 1)
    # Sweeps over coupled contacts compile slowly, so they are not unrolled.
    unroll = 1 if model.scene.geometry.coupled else min(steps, 10)
    states, _ = repeat(step, start, inputs=by_step, steps=steps, unroll=unroll)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), states)


@eqx.filter_jit
@full_precision()
def forecast(model: AbstractModel, start: State, steps: int) -> Forecast:
    """Roll the model out from a state on the sample grid, with the contacts it finds likelier than not.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=50, step_size=0.02)
        >>> model = carom.models.CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
        >>> carom.forecast(model, recording.start, steps=500).position.shape
        (501, 1, 1)
    """

    def step(state, _):
        after, logits = model.advance(state)
        # Converted step by step: a model that needs its force for this would otherwise hold the hidden units
        # of all samples at once, gigabytes when many starts are forecast together.
        return after, (logits, model.leave(state, after, logits > 0))

    _, (logits, later) = repeat(step, model.enter(start), steps=steps)
    return as_forecast(start, later, logits)


@eqx.filter_jit
@full_precision()
def forecast_many(model: AbstractModel, starts: State, steps: int) -> Forecast:
    """Roll one model out from many states on the sample grid, whose arrays have an axis over them first.

    Example:
        >>> import carom, jax
        >>> import jax.numpy as jnp
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=50, step_size=0.02)
        >>> model = carom.models.CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
        >>> heights = jnp.linspace(5.0, 10.0, 1000)[:, None, None]
        >>> starts = carom.State(heights, jnp.zeros_like(heights))
        >>> carom.models.forecast_many(model, starts, steps=20).position.shape
        (1000, 21, 1, 1)
    """
    return jax.vmap(partial(forecast, model, steps=steps))(starts)


def as_forecast(start: State, later: State, logits: Float[Array, "steps signals"]) -> Forecast:
    """A forecast from its start, the samples that follow, and the log-odds of the contacts of every step."""
    on_samples = prepend(start, later)
    # No step ends at the start, so no contact is known there.
    probability = jnp.concatenate([jnp.zeros_like(logits[:1]), jax.nn.sigmoid(logits)])
    return Forecast(on_samples.position, on_samples.velocity, probability)
