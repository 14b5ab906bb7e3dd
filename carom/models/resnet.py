"""The black-box baseline: a residual network on the state."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from carom.mechanics import Scene
from carom.models.base import AbstractModel
from carom.models.contact_signal import AbstractContactSignal, NoContact, Signal
from carom.networks import Activation, Perceptron, perceptron
from carom.types import State


class ResNet(AbstractModel):
    """s' = s + h f_θ(s) with s = (q, v) and one hidden layer."""

    increment: Perceptron
    contact: AbstractContactSignal
    scene: Scene = eqx.field(static=True)
    step_size: float = eqx.field(static=True)

    def __init__(
        self,
        scene: Scene,
        step_size: float,
        *,
        hidden: int = 500,
        activation: Activation = "tanh",
        key: Key[Array, ""],
    ):
        size = 2 * scene.coordinates
        self.increment = perceptron((size, hidden, size), activation=activation, key=key)
        self.contact = NoContact()
        self.scene, self.step_size = scene, step_size

    @property
    def predicts_velocity(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        return {"hidden": self.increment.hidden[0], "activation": self.increment.activation}

    def enter(self, state: State) -> State:
        return state

    def leave(self, before: State, after: State, contact: Signal) -> State:
        return after

    def step(self, state: State, contact: Signal) -> State:
        return residual_step(state, self.step_size, self.increment(flatten(state)))

    def penalised(self) -> tuple[Array, ...]:
        return ()


def flatten(state: State) -> Float[Array, "double_coordinates"]:
    """s = (q, v) as one vector."""
    return jnp.concatenate([state.position.ravel(), state.velocity.ravel()])


def residual_step(state: State, step_size: float, increment: Float[Array, "double_coordinates"]) -> State:
    """s' = s + h Δ."""
    change_of_position, change_of_velocity = jnp.split(step_size * increment, 2)
    return State(
        state.position + change_of_position.reshape(state.position.shape),
        state.velocity + change_of_velocity.reshape(state.velocity.shape),
    )
