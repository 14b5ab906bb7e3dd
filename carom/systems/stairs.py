"""A ball on stairs."""

import equinox as eqx
import jax.numpy as jnp

from carom.errors import InputError
from carom.systems.balls import AbstractBalls, Solid
from carom.types import Scalar, State


class Stairs(AbstractBalls):
    """A ball that hops or slides down `steps` steps, each `tread` long and `rise` high, onto a floor at 0.

    The first step ends at x = `tread`. The ball is a point: what has a radius rolls over edges, which this
    does not. Treads, risers and the floor have the same restitution and friction.

    Example:
        >>> import numpy as np
        >>> stairs = Stairs(steps=2, restitution=0.0)     # off the edge at x = 1, onto the next step
        >>> start = State(jnp.array([[0.5, 1.0]]), jnp.array([[1.0, 0.0]]))
        >>> motion = stairs.exact(start, np.array([0.0, 0.4, 1.0]))
        >>> motion.position[:, 0].round(9).tolist()
        [[0.5, 1.0], [0.9, 1.0], [1.5, 0.5]]
    """

    steps: int = eqx.field(default=4, static=True)
    tread: float = eqx.field(default=1.0, static=True)
    rise: float = eqx.field(default=0.5, static=True)
    gravity: float = 9.81
    mass: float = 1.0
    restitution: float = 1.0
    friction: float = 0.0
    damping: float = 0.0
    radii: tuple[float, ...] = eqx.field(default=(0.0,), static=True)

    def __check_init__(self):
        if self.steps < 1 or not (self.tread > 0 and self.rise > 0):
            raise InputError("Stairs need at least one step, and treads and rises greater than 0.")
        if self.radii != (0.0,):
            raise InputError("The ball on the stairs is one point: leave its radius at 0.")

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return (self.mass,)

    @property
    def solids(self) -> tuple[Solid, ...]:
        up, onward = (0.0, 1.0), (1.0, 0.0)
        # Each step is the solid below its tread and behind its riser; the floor has no end.
        steps = tuple(
            ((up, (self.steps - step) * self.rise), (onward, (step + 1) * self.tread))
            for step in range(self.steps)
        )
        return (*steps, ((up, 0.0),))

    @property
    def field(self) -> tuple[Scalar, ...]:
        return (0.0, -self.gravity)

    @property
    def start(self) -> State:
        """Four metres above the first step, moving on slowly."""
        place = jnp.array([[0.25 * self.tread, self.steps * self.rise + 4.0]])
        return State(place, jnp.array([[0.5 * self.tread, 0.0]]))
