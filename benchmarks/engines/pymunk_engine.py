"""Ball, cradle and balls among planes in Chipmunk (pymunk)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.engines.common import BALL_RADIUS, Advance, engine_module, pivots
from carom.errors import InputError
from carom.systems import AbstractBalls, BouncingBall, NewtonsCradle

DEPTH = 1000.0
"""Thickness of walls: a ball that goes by more than its radius in a step must still meet them."""


def _space(gravity: tuple[float, float], pushed: np.ndarray, contact_of: Callable[[Any], int]):
    pymunk = engine_module("pymunk")
    space = pymunk.Space()
    space.gravity = gravity
    space.iterations = 100
    # 1 − bias^h of an overlap would be pushed out per second: none, since the scheme leaves overlap alone.
    space.collision_bias = 1.0

    def remember(arbiter, _space, _data):
        if arbiter.total_impulse.length > 0:
            pushed[contact_of(arbiter.shapes)] = True

    space.on_collision(post_solve=remember)
    return pymunk, space


def pymunk_ball(system: BouncingBall, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    """A ball on a floor."""
    pushed = np.zeros(1, bool)
    pymunk, space = _space((0.0, -system.gravity), pushed, lambda shapes: 0)
    body = pymunk.Body(system.mass, float("inf"))
    body.position, body.velocity = (0.0, float(position[0])), (0.0, float(velocity[0]))
    ball = pymunk.Circle(body, system.radius)
    floor = pymunk.Segment(space.static_body, (-1.0, -DEPTH), (1.0, -DEPTH), DEPTH)
    ball.elasticity, floor.elasticity = system.restitution, 1.0
    space.add(body, ball, floor)

    def advance():
        pushed[:] = False
        space.step(h)
        return np.array([body.position.y]), np.array([body.velocity.y]), pushed.copy()

    return advance


def pymunk_cradle(system: NewtonsCradle, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    """Balls on rods."""
    pushed = np.zeros(system.balls - 1, bool)
    index = {}
    pymunk, space = _space(
        (0.0, -system.gravity), pushed, lambda shapes: min(index[shape] for shape in shapes)
    )
    hooks = np.stack([pivots(system), np.zeros(system.balls)], axis=1)
    bodies = []
    for k, (angle, rate) in enumerate(zip(position, velocity, strict=True)):
        rod = system.length * np.array([np.sin(angle), -np.cos(angle)])
        body = pymunk.Body(system.mass, float("inf"))
        body.position = tuple(hooks[k] + rod)
        body.velocity = (-rate * rod[1], rate * rod[0])
        ball = pymunk.Circle(body, BALL_RADIUS * system.length)
        ball.elasticity = np.sqrt(system.restitution)  # Chipmunk multiplies those of both balls
        index[ball] = k
        joint = pymunk.PinJoint(space.static_body, body, tuple(hooks[k]), (0.0, 0.0))
        joint.error_bias = 0.0  # the whole stretch is taken back within a step
        space.add(body, ball, joint)
        bodies.append(body)

    def advance():
        pushed[:] = False
        space.step(h)
        rod = np.array([body.position for body in bodies]) - hooks
        speed = np.array([body.velocity for body in bodies])
        angle = np.arctan2(rod[:, 0], -rod[:, 1])
        rate = (rod[:, 0] * speed[:, 1] - rod[:, 1] * speed[:, 0]) / np.sum(rod**2, axis=1)
        return angle, rate, pushed.copy()

    return advance


def pymunk_balls(system: AbstractBalls, position: np.ndarray, velocity: np.ndarray, h: float) -> Advance:
    """Balls among planes in two dimensions. With an infinite moment of inertia they do not spin, as ours."""
    if system.dimension != 2 or any(len(solid) > 1 for solid in system.solids):
        raise InputError("pymunk knows balls among whole planes in two dimensions only.")
    geometry = system.geometry
    bodies, pushed, index = len(system.radii), np.zeros(len(geometry.candidates), bool), {}
    pairs = {pair.bodies: len(geometry.walls) + number for number, pair in enumerate(geometry.pairs)}

    def contact_of(shapes) -> int:
        first, second = sorted(index[shape] for shape in shapes)
        if second < bodies:
            return pairs[first, second]
        return first * len(system.solids) + second - bodies

    field = (0.0, 0.0) if system.field is None else system.field
    pymunk, space = _space((float(field[0]), float(field[1])), pushed, contact_of)
    moving = []
    # Chipmunk multiplies the elasticities and the frictions of two shapes.
    elasticity, friction = np.sqrt(float(system.restitution)), np.sqrt(float(system.friction))
    places, speeds = position.reshape(bodies, 2), velocity.reshape(bodies, 2)
    for number, radius in enumerate(system.radii):
        body = pymunk.Body(float(system.masses[number]), float("inf"))
        body.position, body.velocity = tuple(places[number]), tuple(speeds[number])
        shape = pymunk.Circle(body, radius)
        shape.elasticity, shape.friction = elasticity, friction
        index[shape] = number
        space.add(body, shape)
        moving.append(body)
    for number, (((x, y), offset),) in enumerate(system.solids):
        middle, along = (offset - DEPTH) * np.array([x, y]), DEPTH * np.array([-y, x])
        shape = pymunk.Segment(space.static_body, tuple(middle - along), tuple(middle + along), DEPTH)
        shape.elasticity, shape.friction = elasticity, friction
        index[shape] = bodies + number
        space.add(shape)

    def advance():
        pushed[:] = False
        space.step(h)
        place = np.array([body.position for body in moving])
        return place.ravel(), np.array([body.velocity for body in moving]).ravel(), pushed.copy()

    return advance
