"""Configuration spaces and their retractions.

Velocities are tangent vectors. A step moves positions by a retraction, Q⁺ = Q ⊞ hV, and transports momentum,
M V → Ad*(hV) M V. For points ⊞ is addition and Ad* the identity, which is the paper's scheme; for rotations ⊞
is the exponential map and Ad* the gyroscopic term.
"""

from abc import abstractmethod

import equinox as eqx

from carom.mechanics.inertia import AbstractInertia
from carom.types import Coordinates


class AbstractConfiguration(eqx.Module):
    """A space of positions with its retraction."""

    @abstractmethod
    def retract(self, position: Coordinates, displacement: Coordinates) -> Coordinates:
        """Q ⊞ hV."""

    @abstractmethod
    def transport(
        self, inertia: AbstractInertia, velocity: Coordinates, displacement: Coordinates
    ) -> Coordinates:
        """M⁻¹ Ad*(hV) M V, the velocity after a free displacement."""


class Euclidean(AbstractConfiguration):
    """Points in space."""

    def retract(self, position: Coordinates, displacement: Coordinates) -> Coordinates:
        return position + displacement

    def transport(
        self, inertia: AbstractInertia, velocity: Coordinates, displacement: Coordinates
    ) -> Coordinates:
        return velocity
