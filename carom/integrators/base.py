"""Interfaces of integrators: the functions that schemes take, and the steppers of mechanisms.

Schemes are plain functions that depend on neither systems nor models. A stepper applies a scheme to the parts
of a mechanism.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float

from carom.integrators.constraint_exact.contact_times import Modes
from carom.mechanics import AbstractInertia, AbstractPart, ContactGeometry
from carom.types import Coordinates, Jacobian, PerContact, Scalar, State

Force = Callable[[Coordinates, Coordinates], Coordinates]
"""F(Q, V), conservative force plus dissipation."""
ConservativeForce = Callable[[Coordinates], Coordinates]
"""F(Q) = −∂U/∂Q."""
Detect = Callable[[Coordinates, Coordinates], PerContact]
"""Active contacts at (Q_{n+1}, V_{n+1/2}): booleans, or gates in [0, 1]."""
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
Stepped = tuple[State, Bool[Array, "contacts"], PerContact]
"""The state after a step, its active contacts, and the instants of prescribed ones as shares of the step."""


# A protocol, because mechanisms are models and lie in a layer above.
@runtime_checkable
class Mechanical(Protocol):
    """The interface of a mechanism that steppers use."""

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
        """The velocity after a time in which only velocity-dependent forces act (operator splitting)."""
        ...

    def restitution_at(self, rate: PerContact) -> PerContact:
        """e of every contact for the rate of its gap before the impact."""
        ...

    def slip_kick(self, rate: PerContact) -> Float[Array, "contacts dimension"] | None:
        """What an impact adds to the relative velocity across its normal; None for nothing."""
        ...

    def friction_coefficient(self) -> PerContact | None:
        """μ of every contact; None for smooth surfaces."""
        ...

    def contact_duration(self) -> PerContact | None:
        """How long every contact lasts; None if they are instantaneous."""
        ...


class AbstractStepper(AbstractPart):
    """A time-stepping scheme for mechanisms, with conversions from and to states on the sample grid."""

    @abstractmethod
    def stated(self) -> dict[str, Any]:
        """The fields of a scene that describe this scheme."""

    @abstractmethod
    def enter(self, mechanism: Mechanical, state: State, step_size: Scalar) -> State:
        """Convert a sampled state to the velocity grid of the scheme."""

    @abstractmethod
    def leave(self, mechanism: Mechanical, before: State, after: State, contact: Touching) -> State:
        """Convert the state after a step with these contacts back to the sample grid."""

    @abstractmethod
    def step(
        self, mechanism: Mechanical, state: State, step_size: Scalar, modes: Modes, *, most: int | None = None
    ) -> Stepped:
        """One step.

        Arguments:
            modes: of every contact: by gap, prescribed or excluded.
            most: greatest number of prescribed contacts, if every contact is prescribed or excluded.
        """
