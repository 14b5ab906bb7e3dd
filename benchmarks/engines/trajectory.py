"""Systems in two public physics engines, as truths that share no code with this library.

Both engines are symplectic Euler with an impulse at contact, so both are the CD-Lagrange step read at some
phase; what they check is that our contact solve, our geometry and our bookkeeping are right.

- Chipmunk (pymunk) moves positions first, finds contacts there, then updates velocities with the restitution
  rule λ = −μ (e u⁻ + u^S) ≥ 0. A sample is the state after a step: (q_n, v_n) is our (Q_n, V_{n+1/2}).
- MuJoCo finds contacts first, updates velocities, then positions. The same sample is therefore the position
  *before* a step with the velocity *after* it. Its soft contact asks for the acceleration −b u − k g of the
  gap; with k = 0 and b = (1 + e)/h that is u⁺ = −e u⁻ after one step, and only (1 − d) = 10⁻⁴ of the smooth
  acceleration, where d is MuJoCo's greatest impedance, leaks through the contact.

The cradle's balls are spheres here and points on one pivot in `NewtonsCradle`. Each pivot is shifted by a
ball's diameter, so that neighbours touch at equal angles whatever the diameter, as the points do, and below
the horizontal the contact law in the angles is then the same. Overlap tilts the normal, which changes the law
by O((h v)²). The diameter is generous: balls that an engine finds past each other are pushed the wrong way.

Balls among planes are circles or spheres that cannot spin. Where several of them touch at once the engines
solve all contacts together, in sweeps, and we take impacts one after another; where two meet, the engines
find them overlapping at the end of a step, with a normal that is turned by the way they went since they
touched. Both differences fall in proportion to the step.

What agrees (measured in tests/systems/test_engines.py): at the sample step, pymunk's ball is our scheme to
rounding and MuJoCo's to 10⁻⁴ g h per impact (at rest it creeps at that speed). Both cradles follow our scheme
within 10⁻³ rad over five impacts at h = 0.01; pymunk's rods are pin joints, which stretch by ½ (h v)²/l in a
step and are pulled back. Exact physics is approached in proportion to `step_size / substeps`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.engines.common import Advance, Engine
from benchmarks.engines.mujoco_engine import mujoco_ball, mujoco_balls, mujoco_cradle
from benchmarks.engines.pymunk_engine import pymunk_ball, pymunk_balls, pymunk_cradle
from carom.compilation import full_precision
from carom.errors import InputError
from carom.integrators import consecutive, to_half_grid, to_sample_grid
from carom.mechanics import Masses
from carom.systems import AbstractBalls, AbstractSystem, BouncingBall, NewtonsCradle
from carom.types import State, Trajectory, VelocityGrid


def engine_trajectory(
    system: AbstractSystem,
    start: State,
    *,
    steps: int,
    step_size: float,
    engine: Engine,
    substeps: int = 1,
    velocity_grid: VelocityGrid = "sample",
) -> Trajectory:
    """The motion of a system by a physics engine, sampled every `step_size`.

    Arguments:
        system: a `BouncingBall`, a `NewtonsCradle`, or balls among whole planes (`Billiards`, `BallBox`).
        start: the state at time 0.
        steps: samples after the first.
        step_size: time between samples.
        engine: "pymunk" (Chipmunk) or "mujoco".
        substeps: engine steps per sample; the more, the closer to exact physics.
        velocity_grid: "sample" takes and gives the engine's velocities as they are; "half" adds the half
            kicks that make the motion between impacts second order.

    Example:
        >>> ball = BouncingBall(radius=0.01)
        >>> motion = engine_trajectory(ball, ball.start, steps=500, step_size=0.02, engine="pymunk")
        >>> np.flatnonzero(motion.contact[:, 0])
        array([ 72, 215, 358])
    """
    kind = next((kind for kind in _KINDS if isinstance(system, kind)), None)
    if kind is None:
        raise InputError(f"The engines know balls and the cradle, not {type(system).__name__}.")
    if substeps < 1:
        raise InputError(f"An engine needs at least 1 step per sample, not {substeps}.")
    h = step_size / substeps
    with jax.enable_x64(True):
        first = State(*(jnp.asarray(np.asarray(x, float)) for x in (start.position, start.velocity)))
        if velocity_grid == "half":
            first = to_half_grid(first, h, inertia=_inertia(system), force=system.mechanism(h).force)
    build = _BUILDERS[engine, kind]
    advance = build(system, np.ravel(first.position), np.ravel(first.velocity), h)
    rows = [
        (np.ravel(first.position), np.ravel(first.velocity), np.zeros(len(system.geometry.candidates), bool))
    ]
    rows += [advance() for _ in range(steps * substeps)]
    position, velocity, pushed = (np.array(column) for column in zip(*rows, strict=True))
    if velocity_grid == "half":
        velocity[1:] = _read_half_grid(system, position, velocity, pushed)
        velocity[0] = np.ravel(start.velocity)
    # A sample reports every push since the sample before.
    contact = pushed[1:].reshape(steps, substeps, -1).any(axis=1)
    shape = (-1, system.geometry.bodies, system.geometry.dimension)
    return Trajectory(
        time=np.arange(steps + 1) * step_size,
        position=position[::substeps].reshape(shape),
        velocity=velocity[::substeps].reshape(shape),
        contact=np.concatenate([pushed[:1], contact]),
    )


def _read_half_grid(system: AbstractSystem, position, velocity, pushed) -> np.ndarray:
    with jax.enable_x64(True):
        shape = (-1, system.geometry.bodies, system.geometry.dimension)
        states = State(jnp.asarray(position.reshape(shape)), jnp.asarray(velocity.reshape(shape)))
        samples = _sample_velocities(system, states, jnp.asarray(pushed[1:], float))
        return np.asarray(samples).reshape(len(samples), -1)


def _inertia(system: AbstractSystem) -> Masses:
    return Masses(jnp.asarray(system.masses, float))


# Compiled once per system and number of steps, not at every call.
@eqx.filter_jit
@full_precision()
def _sample_velocities(system: AbstractSystem, states: State, touching):
    def read(before: State, after: State, touching):
        return to_sample_grid(
            before,
            after,
            inertia=_inertia(system),
            geometry=system.geometry,
            touching=touching,
            rough=system.contact_friction is not None,
        ).velocity

    return jax.vmap(read)(*consecutive(states), touching)


_KINDS: tuple[type[AbstractSystem], ...] = (BouncingBall, NewtonsCradle, AbstractBalls)
_BUILDERS: dict[tuple[Engine, type], Callable[..., Advance]] = {
    ("pymunk", BouncingBall): pymunk_ball,
    ("pymunk", NewtonsCradle): pymunk_cradle,
    ("pymunk", AbstractBalls): pymunk_balls,
    ("mujoco", BouncingBall): mujoco_ball,
    ("mujoco", NewtonsCradle): mujoco_cradle,
    ("mujoco", AbstractBalls): mujoco_balls,
}
