"""Variational integrator networks: a learned potential inside a Verlet scheme, without contacts.

Reference: Sæmundsson, Terenin, Hofmann and Deisenroth (2020), Variational integrator networks for physically
structured embeddings.
"""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from carom.errors import require_choice
from carom.integrators import stormer_verlet_step, velocity_verlet_step
from carom.mechanics import Masses, Scene
from carom.models.base import AbstractModel
from carom.models.contact_signal import AbstractContactSignal, NoContact, Signal
from carom.networks import Activation, PotentialNetwork, potential_network
from carom.types import Coordinates, State

Scheme = Literal["velocity_verlet", "stormer_verlet"]


class VariationalIntegratorNetwork(AbstractModel):
    """F = −∇U_θ inside velocity Verlet, or Störmer–Verlet on positions alone.

    Störmer–Verlet needs two positions to start; given a state on the sample grid, the earlier one is where
    the scheme itself would have come from, and its own velocity is the backward difference.
    """

    potential: PotentialNetwork
    contact: AbstractContactSignal
    scheme: Scheme = eqx.field(static=True)
    scene: Scene = eqx.field(static=True)
    step_size: float = eqx.field(static=True)

    def __init__(
        self,
        scene: Scene,
        step_size: float,
        *,
        scheme: Scheme = "velocity_verlet",
        hidden: int = 500,
        activation: Activation = "tanh",
        key: Key[Array, ""],
    ):
        # Contacts are ignored, as in the published method: it is the smooth baseline.
        require_choice("scheme", scheme, Scheme)
        self.potential = potential_network(scene.coordinates, hidden=hidden, activation=activation, key=key)
        self.contact = NoContact()
        self.scheme = scheme
        self.scene, self.step_size = scene, step_size

    @property
    def predicts_velocity(self) -> bool:
        return self.scheme == "velocity_verlet"

    @property
    def options(self) -> dict[str, Any]:
        potential = self.potential
        return {"scheme": self.scheme, "hidden": potential.hidden, "activation": potential.activation}

    def inertia(self) -> Masses:
        """M."""
        return Masses(jnp.asarray(self.scene.masses, self.potential.bias.dtype))

    def potential_energy(self, position: Coordinates) -> Float[Array, ""]:
        """U, up to a constant."""
        return self.potential(position)

    def force(self, position: Coordinates, velocity: Coordinates | None = None) -> Coordinates:
        """F = −∂U/∂q, whatever the velocity."""
        return -self.potential.gradient(position)

    def enter(self, state: State) -> State:
        return self._kick(state, -0.5)

    def leave(self, before: State, after: State, contact: Signal) -> State:
        return self._kick(after, 0.5)

    def step(self, state: State, contact: Signal) -> State:
        h, inertia = self.step_size, self.inertia()
        if self.scheme == "velocity_verlet":
            return velocity_verlet_step(state, h, inertia=inertia, force=self.force)
        # The backward difference is stored in place of the velocity, so that a state has both positions.
        previous = state.position - h * state.velocity
        following = stormer_verlet_step(previous, state.position, h, inertia=inertia, force=self.force)
        return State(following, (following - state.position) / h)

    def penalised(self) -> tuple[Array, ...]:
        return (self.potential.weight, self.potential.output)

    def _kick(self, state: State, fraction: float) -> State:
        """Between v_n and Störmer–Verlet's backward difference v_{n−1/2}; velocity Verlet needs none."""
        if self.scheme == "velocity_verlet":
            return state
        kick = fraction * self.step_size * self.inertia().solve(self.force(state.position))
        return State(state.position, state.velocity + kick)
