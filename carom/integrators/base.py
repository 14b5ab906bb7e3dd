"""What integrators take: functions of positions and velocities; and what a stepper is.

The schemes are plain functions that know neither systems nor models. A stepper binds a scheme to the parts of
a mechanism.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool

from carom.integrators.constraint_exact.contact_times import Modes
from carom.mechanics import AbstractInertia, AbstractPart, ContactGeometry
from carom.types import Coordinates, Jacobian, PerContact, Scalar, State

Force = Callable[[Coordinates, Coordinates], Coordinates]
"""F(Q, V), conservative force plus dissipation."""
ConservativeForce = Callable[[Coordinates], Coordinates]
"""F(Q) = −∂U/∂Q."""
Detect = Callable[[Coordinates, Coordinates], PerContact]
"""Which candidates touch at (Q_{n+1}, V_{n+1/2}): booleans, or gates in [0, 1]."""
Impulse = Callable[
    [Jacobian, AbstractInertia, Coordinates, Coordinates, PerContact], tuple[PerContact, Bool[Array, ""]]
]
"""λ from G, M, V_{n+1/2}, V^S and the touching candidates, and whether it solves the contact problem."""
Project = Callable[[Coordinates, PerContact], Coordinates]
"""Positions with the overlap of touching candidates removed."""
Friction = Callable[[Jacobian, Coordinates, PerContact], Coordinates]
"""Velocities after friction, from G, the velocities before it and the impulses λ."""

Touching = Bool[Array, "contacts"] | PerContact
"""Contacts of a step, as booleans or gates."""


@runtime_checkable
class Mechanical(Protocol):
    """What a stepper needs to know of a mechanism."""

    @property
    def geometry(self) -> ContactGeometry: ...

    def inertia(self) -> AbstractInertia:
        """M."""
        ...

    def force(self, position: Coordinates, velocity: Coordinates) -> Coordinates:
        """F(q, v)."""
        ...

    def conservative_force(self, position: Coordinates) -> Coordinates:
        """−∂U/∂q."""
        ...

    def dissipate(self, velocity: Coordinates, duration: Scalar) -> Coordinates:
        """The velocity after the forces that depend on it have acted alone."""
        ...

    def restitution_at(self, rate: PerContact) -> PerContact:
        """e of every contact for the rate of its gap just before."""
        ...

    def friction_coefficient(self) -> PerContact | None:
        """μ of every contact; None for smooth surfaces."""
        ...


class AbstractStepper(AbstractPart):
    """A scheme bound to a mechanism: one step under modes of contact, and how it relates to sampled
    states."""

    @abstractmethod
    def stated(self) -> dict[str, Any]:
        """What a scene states of the scheme."""

    @abstractmethod
    def enter(self, mechanism: Mechanical, state: State, step_size: Scalar) -> State:
        """From a sampled state to where the scheme keeps its velocities."""

    @abstractmethod
    def leave(self, mechanism: Mechanical, before: State, after: State, contact: Touching) -> State:
        """Back to a sampled state at the end of a step with these contacts."""

    @abstractmethod
    def step(
        self,
        mechanism: Mechanical,
        state: State,
        step_size: Scalar,
        modes: Modes,
        *,
        most: int | None = None,
    ) -> tuple[State, Bool[Array, "contacts"], PerContact]:
        """One step; which contacts it made, and when those that were prescribed took place, as a share of it.

        Arguments:
            modes: of every contact: by gap, prescribed or excluded.
            most: how many contacts are prescribed in a step at most, where all are prescribed or excluded.
        """
