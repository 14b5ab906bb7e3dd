"""A pendulum on a rigid rod, with or without damping."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.errors import InputError
from carom.mechanics import ContactGeometry, Wall
from carom.systems.base import AbstractSystem
from carom.systems.exact import smooth_trajectory
from carom.types import Coordinates, Scalar, State, Trajectory


class Pendulum(AbstractSystem):
    """U(q) = m g l (1 − cos q), with inertia m l² and torque −c q̇ of the damping.

    Its one candidate contact is a stop at the top, q = −π, which a swing never reaches: a touch sensor on it
    reports nothing, and a contact network has to learn just that.

    Example:
        >>> import numpy as np
        >>> swing = Pendulum(gravity=9.81)
        >>> bool(np.ptp(swing.energies(swing.exact(swing.start, np.linspace(0, 4, 50)))) < 1e-9)
        True
    """

    gravity: float = 9.81
    length: float = 1.0
    mass: float = 1.0
    damping: float = 0.0
    restitution: float = 1.0

    @property
    def geometry(self) -> ContactGeometry:
        return ContactGeometry(1, 1, (Wall(body=0, normal=(1.0,), offset=-np.pi),))

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return (self.mass * self.length**2,)

    @property
    def start(self) -> State:
        return State(jnp.ones((1, 1)), jnp.zeros((1, 1)))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        return self.mass * self.gravity * self.length * jnp.sum(1 - jnp.cos(position))

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        (inertia,) = self.masses

        def acceleration(q, v):
            return -(self.gravity / self.length) * np.sin(q) - (self.damping / inertia) * v

        trajectory = smooth_trajectory(acceleration, start, times, contacts=1)
        if trajectory.position.min() < -np.pi:
            raise InputError("This swing reaches the stop at the top, q = −π; start with less energy.")
        return trajectory
