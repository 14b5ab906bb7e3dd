"""The ball and the cradle in two public physics engines, as truths that share no code with this library.

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

What agrees (measured in tests/systems/test_engines.py): at the sample step, pymunk's ball is our scheme to
rounding and MuJoCo's to 10⁻⁴ g h per impact (at rest it creeps at that speed). Both cradles follow our scheme
within 10⁻³ rad over five impacts at h = 0.01; pymunk's rods are pin joints, which stretch by ½ (h v)²/l in a
step and are pulled back. Exact physics is approached in proportion to `step_size / substeps`.
"""

import importlib
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from carom.errors import InputError
from carom.integrators import consecutive, to_half_grid, to_sample_grid
from carom.systems.base import AbstractSystem
from carom.systems.bouncing_ball import BouncingBall
from carom.systems.newtons_cradle import NewtonsCradle
from carom.types import State, Trajectory, VelocityGrid

Engine = Literal["pymunk", "mujoco"]

FLOOR_DEPTH = 1000.0
"""Thickness of Chipmunk's floor: a ball that falls by more than its radius in a step must still meet it."""
BALL_RADIUS = 0.1
"""Radius of the cradle's balls in lengths of their rods: more than they move in one step."""
SPACING = 1e-9
"""Relative play between hanging balls, so that a row is hit one after another and not as one block."""

Advance = Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Advances an engine by one of its steps; returns coordinates, velocities and which contacts pushed."""


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
    """The motion of a ball or a cradle by a physics engine, sampled every `step_size`.

    Arguments:
        system: a `BouncingBall` or a `NewtonsCradle`.
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
    if not isinstance(system, BouncingBall | NewtonsCradle):
        raise InputError(f"The engines know the ball and the cradle, not {type(system).__name__}.")
    if substeps < 1:
        raise InputError(f"An engine needs at least 1 step per sample, not {substeps}.")
    h = step_size / substeps
    with jax.enable_x64(True):
        first = State(*(jnp.asarray(np.asarray(x, float)) for x in (start.position, start.velocity)))
        if velocity_grid == "half":
            first = to_half_grid(first, h, inertia=system.inertia(), force=system.force)
    build = _BUILDERS[engine, type(system)]
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
    return Trajectory(
        time=np.arange(steps + 1) * step_size,
        position=position[::substeps, :, None],
        velocity=velocity[::substeps, :, None],
        contact=np.concatenate([pushed[:1], contact]),
    )


def _read_half_grid(system: AbstractSystem, position, velocity, pushed) -> np.ndarray:
    def read(before: State, after: State, touching):
        return to_sample_grid(
            before, after, inertia=system.inertia(), geometry=system.geometry, touching=touching
        ).velocity

    with jax.enable_x64(True):
        states = State(jnp.asarray(position[..., None]), jnp.asarray(velocity[..., None]))
        samples = jax.jit(jax.vmap(read))(*consecutive(states), jnp.asarray(pushed[1:], float))
        return np.asarray(samples)[..., 0]


def _pymunk_space(gravity: float, pushed: np.ndarray, contact_of: Callable[[Any], int]):
    pymunk = _engine_module("pymunk")
    space = pymunk.Space()
    space.gravity = (0.0, -gravity)
    space.iterations = 100
    # 1 − bias^h of an overlap would be pushed out per second: none, since the scheme leaves overlap alone.
    space.collision_bias = 1.0

    def remember(arbiter, _space, _data):
        if arbiter.total_impulse.length > 0:
            pushed[contact_of(arbiter.shapes)] = True

    space.on_collision(post_solve=remember)
    return pymunk, space


def _pymunk_ball(system: BouncingBall, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    pushed = np.zeros(1, bool)
    pymunk, space = _pymunk_space(system.gravity, pushed, lambda shapes: 0)
    body = pymunk.Body(system.mass, float("inf"))
    body.position, body.velocity = (0.0, float(position[0])), (0.0, float(velocity[0]))
    ball = pymunk.Circle(body, system.radius)
    floor = pymunk.Segment(space.static_body, (-1.0, -FLOOR_DEPTH), (1.0, -FLOOR_DEPTH), FLOOR_DEPTH)
    ball.elasticity, floor.elasticity = system.restitution, 1.0
    space.add(body, ball, floor)

    def advance():
        pushed[:] = False
        space.step(h)
        return np.array([body.position.y]), np.array([body.velocity.y]), pushed.copy()

    return advance


def _pymunk_cradle(system: NewtonsCradle, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    pushed = np.zeros(system.balls - 1, bool)
    index = {}
    pymunk, space = _pymunk_space(
        system.gravity, pushed, lambda shapes: min(index[shape] for shape in shapes)
    )
    pivots = np.stack([_pivots(system), np.zeros(system.balls)], axis=1)
    bodies = []
    for k, (angle, rate) in enumerate(zip(position, velocity, strict=True)):
        rod = system.length * np.array([np.sin(angle), -np.cos(angle)])
        body = pymunk.Body(system.mass, float("inf"))
        body.position = tuple(pivots[k] + rod)
        body.velocity = (-rate * rod[1], rate * rod[0])
        ball = pymunk.Circle(body, BALL_RADIUS * system.length)
        ball.elasticity = np.sqrt(system.restitution)  # Chipmunk multiplies those of both balls
        index[ball] = k
        joint = pymunk.PinJoint(space.static_body, body, tuple(pivots[k]), (0.0, 0.0))
        joint.error_bias = 0.0  # the whole stretch is taken back within a step
        space.add(body, ball, joint)
        bodies.append(body)

    def advance():
        pushed[:] = False
        space.step(h)
        rod = np.array([body.position for body in bodies]) - pivots
        speed = np.array([body.velocity for body in bodies])
        angle = np.arctan2(rod[:, 0], -rod[:, 1])
        rate = (rod[:, 0] * speed[:, 1] - rod[:, 1] * speed[:, 0]) / np.sum(rod**2, axis=1)
        return angle, rate, pushed.copy()

    return advance


def _pivots(system: NewtonsCradle) -> np.ndarray:
    """Where the rods hang, the first ball rightmost: it has the greatest angle."""
    return -2 * BALL_RADIUS * system.length * (1 + SPACING) * np.arange(system.balls)


def _mujoco_ball(system: BouncingBall, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    # The sphere's own radius is immaterial: the floor lies so that its centre stops at `system.radius`.
    return _mujoco_advance(
        f'''<geom type="plane" size="1 1 1" pos="0 0 {system.radius - 1}"/>
        <body><joint type="slide" axis="0 0 1"/><geom type="sphere" size="1"/>
        <inertial pos="0 0 0" mass="{system.mass}" diaginertia="1 1 1"/></body>''',
        system,
        position,
        velocity,
        h,
    )


def _mujoco_cradle(system: NewtonsCradle, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    # Axis −y: a positive angle is to the right. The balls' own inertia is too small to matter to m l².
    point = f'diaginertia="{1e-12 * system.masses[0]} {1e-12 * system.masses[0]} {1e-12 * system.masses[0]}"'
    return _mujoco_advance(
        "".join(
            f'''<body pos="{pivot} 0 0"><joint type="hinge" axis="0 -1 0"/>
            <geom type="sphere" size="{BALL_RADIUS * system.length}" pos="0 0 {-system.length}"/>
            <inertial pos="0 0 {-system.length}" mass="{system.mass}" {point}/></body>'''
            for pivot in _pivots(system)
        ),
        system,
        position,
        velocity,
        h,
    )


def _mujoco_advance(
    bodies: str, system: BouncingBall | NewtonsCradle, position: np.ndarray, velocity: np.ndarray, h: float
) -> Advance:
    mujoco = _engine_module("mujoco")
    impedance = mujoco.mjMAXIMP
    model: Any = mujoco.MjModel.from_xml_string(
        f'''<mujoco><option timestep="{h}" gravity="0 0 {-system.gravity}" tolerance="0" iterations="100"/>
        <default><geom condim="1" solimp="{impedance} {impedance} 0.001"/></default>
        <worldbody>{bodies}</worldbody></mujoco>'''
    )
    # Negative values are stiffness and damping as such; a stiffness of exactly 0 would mean another format.
    model.geom_solref[:] = [-1e-12, -(1 + system.restitution) / h]
    data: Any = mujoco.MjData(model)
    # Drift once by hand: from here on a step of the engine is a kick at q_n and the drift to q_{n+1}.
    data.qpos[:], data.qvel[:] = position + h * velocity, velocity

    def advance():
        here = data.qpos.copy()
        mujoco.mj_step(model, data)
        pushed = np.zeros(len(system.geometry.candidates), bool)
        for contact in data.contact if data.ncon else ():
            if contact.efc_address >= 0 and data.efc_force[contact.efc_address] > 0:
                # Geoms count from the floor or from the first ball: the lesser one numbers the contact.
                pushed[min(contact.geom)] = True
        return here, data.qvel.copy(), pushed

    return advance


def _engine_module(name: Engine) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f'The engine "{name}" is not installed: pip install "carom[engines]" brings it.'
        ) from error


_BUILDERS: dict[tuple[Engine, type], Callable[..., Advance]] = {
    ("pymunk", BouncingBall): _pymunk_ball,
    ("pymunk", NewtonsCradle): _pymunk_cradle,
    ("mujoco", BouncingBall): _mujoco_ball,
    ("mujoco", NewtonsCradle): _mujoco_cradle,
}
