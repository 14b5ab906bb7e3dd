"""What every model provides, and the rollouts that follow from it."""

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from carom.errors import InputError
from carom.integrators import consecutive, prepend
from carom.integrators import rollout as repeat
from carom.mechanics import AbstractInertia, Scene, Surfaces
from carom.models.contact_signal import AbstractContactSignal, Signal
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
    def geometry(self) -> Surfaces: ...

    def restitution_at(self, rate: PerContact) -> PerContact: ...


class AbstractModel(eqx.Module):
    """A learned map from a state and the contacts of a step to the next state.

    `step` works on the model's own grid; `enter` and `leave` convert from and to samples, where recorded
    positions and velocities live. Weights are the model's arrays; everything fixed is in static fields.
    Add a model by writing these members in one file, with `(scene, step_size, *, …, key)` to construct it.
    """

    contact: eqx.AbstractVar[AbstractContactSignal]
    scene: eqx.AbstractVar[Scene]
    step_size: eqx.AbstractVar[float]

    def _repr_html_(self) -> str:
        weights = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array)))
        scene = self.scene
        rows = [
            (
                "scene",
                f"{scene.bodies} body(ies) in {scene.dimension} dimension(s), {scene.contacts} contact(s)",
            ),
            ("step", f"{self.step_size:.6g} s"),
            ("numbers", str(weights)),
            *((name, str(value)) for name, value in self.options.items()),
        ]
        return table(type(self).__name__, rows)

    @property
    @abstractmethod
    def predicts_velocity(self) -> bool:
        """Whether velocities are part of what the model is trained on."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The keyword arguments, but the key, that construct a model of this shape."""

    @abstractmethod
    def enter(self, state: State) -> State:
        """From a state on the sample grid to the model's own."""

    @abstractmethod
    def leave(self, before: State, after: State, contact: Signal) -> State:
        """Back to the sample grid at the end of a step from `before` to `after` with these contacts."""

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
        return cls(recording.scene, recording.step_size, **options)  # pyright: ignore

    def drift(self, state: State) -> Coordinates:
        """Q_{n+1} = Q_n + h V_{n+1/2}, where a step arrives before its contacts are known."""
        return state.position + self.step_size * state.velocity

    def contact_logits(self, state: State) -> Float[Array, "signals"]:
        """Log-odds of the contacts of the step that leaves `state`."""
        return self.contact.logits(state, self.drift(state))

    def gate(self, state: State) -> Float[Array, "signals"]:
        """Probabilities of the contacts of the step that leaves `state`, to scale its impulses softly."""
        return jax.nn.sigmoid(self.contact_logits(state))

    def advance(self, state: State) -> tuple[State, Float[Array, "signals"]]:
        """One step with the model's own contacts, those likelier than not, and their log-odds."""
        logits = self.contact_logits(state)
        return self.step(state, logits > 0), logits


class Forecast(NamedTuple):
    """A free rollout on the sample grid, and the probability of each contact at every sample."""

    position: Float[Array, "samples bodies dimension"]
    velocity: Float[Array, "samples bodies dimension"]
    contact: Float[Array, "samples signals"]


def rollout(model: AbstractModel, start: State, contact: Bool[Array, "steps signals"]) -> State:
    """States on the sample grid, `start` included, with the contacts of every step given."""

    def step(state, signal):
        return model.step(state, signal), signal

    states, signals = repeat(step, model.enter(start), inputs=contact)
    return prepend(start, jax.vmap(model.leave)(*consecutive(states), signals))


@eqx.filter_jit
def forecast(model: AbstractModel, start: State, steps: int) -> Forecast:
    """Roll the model out from a state on the sample grid with its own contacts, those likelier than not.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=50, step_size=0.02)
        >>> model = carom.models.CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
        >>> carom.forecast(model, recording.start, steps=500).position.shape
        (501, 1, 1)
    """

    def step(state, _):
        after, logits = model.advance(state)
        # Step by step: of all samples at once, the hidden units of a model that needs its force here would
        # take gigabytes when many are forecast together.
        return after, (logits, model.leave(state, after, logits > 0))

    _, (logits, later) = repeat(step, model.enter(start), steps=steps)
    return as_forecast(start, later, logits)


def as_forecast(start: State, later: State, logits: Float[Array, "steps signals"]) -> Forecast:
    """A start, the samples that follow, and the log-odds of the contacts of the steps between them."""
    on_samples = prepend(start, later)
    probability = jnp.concatenate([jnp.zeros_like(logits[:1]), jax.nn.sigmoid(logits)])
    return Forecast(on_samples.position, on_samples.velocity, probability)
