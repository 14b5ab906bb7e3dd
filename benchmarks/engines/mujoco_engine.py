"""Ball, cradle and balls among planes in MuJoCo."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.engines.common import BALL_RADIUS, Advance, engine_module, pivots
from carom.errors import InputError
from carom.systems import AbstractBalls, BouncingBall, NewtonsCradle


def mujoco_ball(system: BouncingBall, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    """A ball on a floor."""
    # The sphere's own radius is immaterial: the floor lies so that its centre stops at `system.radius`.
    return _advance(
        f'''<geom type="plane" size="1 1 1" pos="0 0 {system.radius - 1}"/>
        <body><joint type="slide" axis="0 0 1"/><geom type="sphere" size="1"/>
        <inertial pos="0 0 0" mass="{system.mass}" diaginertia="1 1 1"/></body>''',
        system,
        position,
        velocity,
        h,
        np.array([0.0, 0.0, -system.gravity]),
        # Geoms count from the floor or from the first ball: the lesser one numbers the contact.
        min,
    )


def mujoco_cradle(system: NewtonsCradle, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    """Balls on rods."""
    # Axis −y: a positive angle is to the right. The balls' own inertia is too small to matter to m l².
    point = f'diaginertia="{1e-12 * system.masses[0]} {1e-12 * system.masses[0]} {1e-12 * system.masses[0]}"'
    return _advance(
        "".join(
            f'''<body pos="{pivot} 0 0"><joint type="hinge" axis="0 -1 0"/>
            <geom type="sphere" size="{BALL_RADIUS * system.length}" pos="0 0 {-system.length}"/>
            <inertial pos="0 0 {-system.length}" mass="{system.mass}" {point}/></body>'''
            for pivot in pivots(system)
        ),
        system,
        position,
        velocity,
        h,
        np.array([0.0, 0.0, -system.gravity]),
        # Geoms count from the floor or from the first ball: the lesser one numbers the contact.
        min,
    )


def mujoco_balls(system: AbstractBalls, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    """Balls among planes in one to three dimensions, on slides so that they do not spin; smooth ones only.

    MuJoCo's friction is part of its soft constraints and shares their impedance; no setting makes it
    Coulomb's law at one step.
    """
    if float(system.friction) != 0 or any(len(solid) > 1 for solid in system.solids):
        raise InputError("MuJoCo knows balls without friction among whole planes only.")
    dimension, axes = system.dimension, ("1 0 0", "0 1 0", "0 0 1")
    planes = "".join(
        f'''<geom type="plane" size="1 1 1" pos="{_vector(offset * np.array(normal))}"
        zaxis="{_vector(np.array(normal))}"/>'''
        for ((normal, offset),) in system.solids
    )
    balls = "".join(
        f'''<body>{"".join(f'<joint type="slide" axis="{axis}"/>' for axis in axes[:dimension])}
        <geom type="sphere" size="{radius}"/>
        <inertial pos="0 0 0" mass="{float(mass)}" diaginertia="1 1 1"/></body>'''
        for radius, mass in zip(system.radii, system.masses, strict=True)
    )
    geometry, walls = system.geometry, len(system.solids)
    pairs = {pair.bodies: len(geometry.walls) + number for number, pair in enumerate(geometry.pairs)}

    def contact_of(geoms) -> int | None:
        first, second = sorted(int(geom) for geom in geoms)
        if first < walls:
            return (second - walls) * walls + first
        return pairs.get((first - walls, second - walls))

    field = () if system.field is None else system.field
    return _advance(planes + balls, system, position, velocity, h, np.array(field, float), contact_of)


def _vector(components: np.ndarray) -> str:
    return " ".join(str(float(x)) for x in [*components, 0.0, 0.0, 0.0][:3])


def _advance(
    bodies: str,
    system: BouncingBall | NewtonsCradle | AbstractBalls,
    position: np.ndarray,
    velocity: np.ndarray,
    h: float,
    field: np.ndarray,
    contact_of: Callable[[Any], int | None],
) -> Advance:
    mujoco = engine_module("mujoco")
    impedance = mujoco.mjMAXIMP
    model: Any = mujoco.MjModel.from_xml_string(
        f'''<mujoco><option timestep="{h}" gravity="{_vector(field)}" tolerance="0" iterations="100"/>
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
                number = contact_of(contact.geom)
                if number is not None:
                    pushed[number] = True
        return here, data.qvel.copy(), pushed

    return advance
