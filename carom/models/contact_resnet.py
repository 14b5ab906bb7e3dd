"""The contact-aware black-box baseline."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from carom.mechanics import Scene
from carom.models.base import AbstractModel
from carom.models.contact_signal import AbstractContactSignal, BodyTouch, Signal
from carom.models.resnet import flatten, residual_step
from carom.networks import Activation, Perceptron, perceptron
from carom.types import State


class ContactResNet(AbstractModel):
    """ResNetContact: s' = s + h f_θ(s, c), with the touch of every body predicted as c = ĉ_θ(s)."""

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
        contact_hidden: tuple[int, ...] = (100, 100),
        key: Key[Array, ""],
    ):
        increment_key, contact_key = jax.random.split(key)
        size = 2 * scene.coordinates
        sizes = (size + scene.bodies, hidden, size)
        self.increment = perceptron(sizes, activation=activation, key=increment_key)
        self.contact = BodyTouch(scene.bodies, scene.dimension, hidden=contact_hidden, key=contact_key)
        self.scene, self.step_size = scene, step_size

    @property
    def predicts_velocity(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hidden": self.increment.hidden[0],
            "activation": self.increment.activation,
            "contact_hidden": self.contact.hidden,
        }

    def enter(self, state: State) -> State:
        return state

    def leave(self, before: State, after: State, contact: Signal) -> State:
        return after

    def step(self, state: State, contact: Signal) -> State:
        given = jnp.concatenate([flatten(state), contact.astype(state.position.dtype)])
        return residual_step(state, self.step_size, self.increment(given))

    def penalised(self) -> tuple[Array, ...]:
        return ()
