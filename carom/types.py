"""States, trajectories and array aliases, with their shapes.

Axes: `bodies` K, `dimension` d, `contacts` C, `samples` N. Positions and velocities are (K, d) arrays;
batching is the caller's `jax.vmap`.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float

Scalar = float | Float[Array, ""]
PerBody = Float[Array, "bodies"]
PerContact = Float[Array, "contacts"]
Coordinates = Float[Array, "bodies dimension"]
"""A position, velocity, force or momentum of every body."""
Jacobian = Float[Array, "contacts bodies dimension"]
"""G = ∂g/∂Q: one row per candidate contact."""

VelocityGrid = Literal["sample", "half"]
"""Where velocities live: at the samples t_n as recorded, or at t_{n+1/2} as CD-Lagrange means them."""


Values = Array | np.ndarray
"""Arrays inside of compiled programs or outside of them."""


class State(eqx.Module):
    """Positions and velocities of all bodies at one step of an integrator."""

    position: Float[Array, "*batch bodies dimension"]
    velocity: Float[Array, "*batch bodies dimension"]


class Trajectory(NamedTuple):
    """A simulated motion on the sample grid, in float64.

    `contact[n, j]` tells whether candidate contact j carried an impulse in (t_{n-1}, t_n].
    """

    time: Float[np.ndarray, "samples"]
    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]
    contact: Bool[np.ndarray, "samples contacts"]
