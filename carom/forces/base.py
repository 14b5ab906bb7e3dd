"""What a force provides: a potential, or a flow of the velocities that takes energy away.

The two are kept apart so that an integrator can split them: between two half-steps of the dissipative flow
the path is that of a potential, on which the instants of impacts are found.
"""

from abc import abstractmethod

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.mechanics import AbstractPart
from carom.types import Coordinates, PerBody, Scalar


class AbstractForce(AbstractPart):
    """Something that acts on bodies between impacts."""


class AbstractPotential(AbstractForce):
    """A conservative force F = −∂U/∂q."""

    @abstractmethod
    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        """U(q), up to a constant."""

    @abstractmethod
    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        """∂U/∂q."""


class AbstractDissipation(AbstractForce):
    """A force that depends on the velocity, given by its exact flow alone."""

    @abstractmethod
    def flow(self, velocity: Coordinates, masses: PerBody, duration: Scalar) -> Coordinates:
        """The velocity after a time in which this force acts alone."""

    def acceleration(self, velocity: Coordinates, masses: PerBody) -> Coordinates:
        """dv/dt at the beginning of the flow."""
        # The derivative of the flow at 0, so that a force is stated once.
        now = jnp.zeros((), velocity.dtype)
        return jax.jvp(lambda t: self.flow(velocity, masses, t), (now,), (jnp.ones_like(now),))[1]
