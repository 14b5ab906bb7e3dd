"""The motions that the authors' published code trains on, where they differ from ours.

Velocities are on the grid "sample" throughout: recorded at t_n and used as V_{n+1/2}.
"""

import numpy as np

from carom.systems import AbstractSystem, NewtonsCradle, Pendulum
from carom.types import State, Trajectory


def published_motion(
    system: AbstractSystem, start: State, steps: int, step_size: float, *, grid_stretch: float = 1.0
) -> Trajectory:
    """The published motion of a system.

    The ball's is the CD-Lagrange scheme itself. The pendulum's is exact, sampled every `grid_stretch` steps.
    The cradle's tests the gap at the start of the step, so that its impacts come one sample later than the
    scheme's; it then exchanges the velocities and puts both balls at angle 0.
    """
    if isinstance(system, Pendulum):
        exact = system.exact(start, np.arange(steps + 1) * step_size * grid_stretch)
        return exact._replace(time=np.arange(steps + 1) * step_size)
    if isinstance(system, NewtonsCradle) and system.balls == 2:
        return _published_cradle(system, start, steps, step_size)
    return system.scheme(start, steps=steps, step_size=step_size, velocity_grid="sample")


def _published_cradle(cradle: NewtonsCradle, start: State, steps: int, step_size: float) -> Trajectory:
    position, velocity = np.empty((steps + 1, 2, 1)), np.empty((steps + 1, 2, 1))
    contact = np.zeros((steps + 1, 1), bool)
    q, v = np.ravel(start.position).astype(float), np.ravel(start.velocity).astype(float)
    for n in range(steps + 1):
        position[n, :, 0], velocity[n, :, 0] = q, v
        hits = q[0] < q[1] and v[0] <= 0 <= v[1]
        if n < steps and hits:
            contact[n + 1] = True
            q, v = np.zeros(2), v[::-1].copy()
        else:
            q = q + step_size * v
            v = v - step_size * cradle.gravity / cradle.length * np.sin(q)
    return Trajectory(np.arange(steps + 1) * step_size, position, velocity, contact)
