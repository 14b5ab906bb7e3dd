"""Systems composed from any parts, without a solution in closed form."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.forces import AbstractForce, AbstractPotential
from carom.mechanics import ContactGeometry, Scene
from carom.systems.base import AbstractSystem
from carom.types import Coordinates, Scalar, State, Trajectory


class ComposedSystem(AbstractSystem):
    """Bodies and contacts of a scene under any forces; solved by small constraint-exact steps.

    Arguments:
        stated: bodies, contacts, masses, restitution and friction.
        acting: forces, of this package or your own.
        begin: the state that recordings start from.
        substeps: steps between two samples; the error falls with their square.

    Example:
        >>> from carom.forces import QuadraticDrag, UniformGravity
        >>> from carom.mechanics import Wall
        >>> scene = Scene(bodies=1, dimension=1, candidates=(Wall(0, (1.0,)),), restitution=0.8)
        >>> forces = (UniformGravity(jnp.array([-9.81])), QuadraticDrag(jnp.array([0.1])))
        >>> ball = ComposedSystem(scene, forces, State(jnp.full((1, 1), 2.0), jnp.zeros((1, 1))))
        >>> motion = ball.exact(ball.start, np.linspace(0, 1, 51))
        >>> int(motion.contact.sum())
        1
    """

    stated: Scene = eqx.field(static=True)
    acting: tuple[AbstractForce, ...]
    begin: State
    substeps: int = eqx.field(static=True, default=32)

    @property
    def restitution(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.stated.restitution

    @property
    def damping(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 0.0

    @property
    def geometry(self) -> ContactGeometry:
        return self.stated.geometry

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return self.stated.masses

    @property
    def contact_friction(self) -> Scalar | None:
        # None leaves the formulas of friction out of the compiled program.
        return self.stated.friction or None

    @property
    def start(self) -> State:
        return self.begin

    @property
    def forces(self) -> tuple[AbstractForce, ...]:
        return self.acting

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        masses = jnp.asarray(self.masses, position.dtype)
        parts = [part.energy(position, masses) for part in self.acting if isinstance(part, AbstractPotential)]
        return sum(parts, jnp.zeros((), position.dtype))

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return self.fine_steps(start, times, np.diff(times), substeps=self.substeps)
