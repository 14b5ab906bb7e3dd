"""The black-box baselines: residual networks on the state, without contacts or with a touch signal."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from carom.mechanics import Scene
from carom.models.base import AbstractModel
from carom.models.contact_signal import AbstractContactSignal, BodyTouch, NoContact, Signal
from carom.networks import Activation, Perceptron, perceptron
from carom.types import State


class AbstractResNet(AbstractModel):
    """s' = s + h f_θ(s, c) with s = (q, v), the contact signal c, and one hidden layer."""

    increment: Perceptron
    contact: AbstractContactSignal
    scene: Scene = eqx.field(static=True)
    step_size: float = eqx.field(static=True)

    @property
    def options(self) -> dict[str, Any]:
        sizes = {"hidden": self.increment.hidden[0], "activation": self.increment.activation}
        return sizes | ({"contact_hidden": self.contact.hidden} if self.contact.size else {})

    @property
    def predicts_velocity(self) -> bool:
        return True

    def enter(self, state: State) -> State:
        return state

    def leave(self, before: State, after: State, contact: Signal) -> State:
        return after

    def step(self, state: State, contact: Signal) -> State:
        q, v = state.position, state.velocity
        given = jnp.concatenate([q.ravel(), v.ravel(), contact.astype(q.dtype)])
        dq, dv = jnp.split(self.step_size * self.increment(given), 2)
        return State(q + dq.reshape(q.shape), v + dv.reshape(v.shape))

    def penalised(self) -> tuple[Array, ...]:
        # Only the potential is regularised in the paper; a residual network has none.
        return ()


class ResNet(AbstractResNet):
    """s' = s + h f_θ(s)."""

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


class ContactResNet(AbstractResNet):
    """ResNetContact: s' = s + h f_θ(s, c), with the touch of every body predicted as c = ĉ_θ(s)."""

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
