"""Random scenes of balls in a box, and their motion by a plain event loop of its own."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import Phase, settings

from carom.integrators import event_driven_motion
from carom.integrators.event_driven.balls import Balls
from carom.types import State

motion = jax.jit(
    event_driven_motion,
    static_argnames=("max_impacts", "neighbours", "report", "grazing_speed", "rest_speed"),
)
"""Compiled once per number of scenes, bodies, dimensions, planes and intervals."""


def examples(count):
    """Settings of a property over random seeds, of which none is simpler than another."""
    return settings(max_examples=count, phases=(Phase.explicit, Phase.reuse, Phase.generate))


def box_planes(dimension):
    """Normals and offsets of the unit box."""
    identity = np.eye(dimension)
    return np.concatenate([identity, -identity]), np.concatenate([np.zeros(dimension), -np.ones(dimension)])


def balls_in_a_box(random, bodies, dimension, *, restitution, friction, gravity=None, fill=0.12) -> Balls:
    """Random masses and radii; `fill` is about the share of the box that the balls take."""
    radii = random.uniform(0.6, 1.4, bodies)
    radii *= (fill / bodies) ** (1 / dimension) / 2
    normals, offsets = box_planes(dimension)
    return Balls(
        masses=jnp.asarray(random.uniform(0.2, 5.0, bodies)),
        radii=jnp.asarray(radii),
        normals=jnp.asarray(normals),
        offsets=jnp.asarray(offsets),
        restitution=jnp.asarray(float(restitution)),
        friction=jnp.asarray(float(friction)),
        gravity=None if gravity is None else jnp.asarray(gravity),
        solids=tuple((plane,) for plane in range(len(offsets))),
    )


def scattered_states(random, balls: Balls, scenes, *, speed=1.0) -> State:
    """Balls apart from each other and from the walls; in one dimension in falling order."""
    radii, dimension = np.asarray(balls.radii), balls.normals.shape[1]
    position = np.zeros((scenes, len(radii), dimension))
    for scene in position:
        placed = 0
        while placed < len(radii):
            place = random.uniform(radii[placed], 1 - radii[placed], dimension)
            distance = np.linalg.norm(scene[:placed] - place, axis=1)
            if (distance > 1.02 * (radii[:placed] + radii[placed])).all():
                scene[placed] = place
                placed += 1
    if dimension == 1:
        order = np.argsort(-position[..., 0], axis=1)
        position = np.take_along_axis(position, order[..., None], axis=1)
        # The radii keep their place in the row: spread the row so that no two overlap.
        gaps = random.uniform(0.5, 1.0, (scenes, len(radii) + 1))
        gaps *= (1 - 2 * radii.sum()) / gaps.sum(axis=1, keepdims=True)
        ends = np.cumsum(gaps[:, :-1] + 2 * radii[None], axis=1) - 2 * radii[None]
        position = (1 - ends - radii[None])[..., None]
    velocity = random.normal(size=position.shape) * speed
    return State(jnp.asarray(position), jnp.asarray(velocity))


def energies(balls: Balls, states: State) -> np.ndarray:
    """Kinetic energy, and potential energy in the field, of every sample and scene."""
    masses, position, velocity = (np.asarray(x) for x in (balls.masses, states.position, states.velocity))
    energy = 0.5 * np.sum(masses[:, None] * velocity**2, axis=(-2, -1))
    if balls.gravity is not None:
        energy = energy - np.sum(masses[:, None] * position * np.asarray(balls.gravity), axis=(-2, -1))
    return energy


def least_gap(balls: Balls, position) -> float:
    """The smallest distance between surfaces over all samples and scenes."""
    radii, position = np.asarray(balls.radii), np.asarray(position)
    walls = np.asarray(position @ np.asarray(balls.normals).T - np.asarray(balls.offsets))
    least = (walls - radii[:, None]).min(initial=np.inf)
    for i in range(len(radii)):
        for j in range(i):
            distance = np.linalg.norm(position[..., i, :] - position[..., j, :], axis=-1)
            least = min(least, (distance - radii[i] - radii[j]).min())
    return float(least)


def reference_motion(balls: Balls, position, velocity, times, *, slowest=1e-6, most=64):
    """The same motion in NumPy: the earliest root of every pair and plane, over and over.

    It knows neither rest nor contact clusters, and returns only the samples before the first: one is at hand
    where an impact is slower than `slowest`, whose instant rounding decides, or where a body makes more than
    `most` impacts between two samples.
    """
    masses, radii = np.asarray(balls.masses), np.asarray(balls.radii)
    normals, offsets = np.asarray(balls.normals), np.asarray(balls.offsets)
    e, mu = float(balls.restitution), float(balls.friction)
    field = np.zeros(position.shape[1]) if balls.gravity is None else np.asarray(balls.gravity)
    q, v, now, samples = (
        np.array(position),
        np.array(velocity),
        0.0,
        [(position[None][:0], velocity[None][:0])],
    )
    for time in times:
        impacts = np.zeros(len(q), int)
        while True:
            wait, hit = _earliest(q, v, radii, normals, offsets, field)
            if now + wait > time:
                break
            q, v, now = q + wait * v + 0.5 * wait**2 * field, v + wait * field, now + wait
            first, second, normal = hit
            if second is None:
                mass, relative = masses[first], v[first]
            else:
                normal = (q[first] - q[second]) / np.linalg.norm(q[first] - q[second])
                mass = masses[first] * masses[second] / (masses[first] + masses[second])
                relative = v[first] - v[second]
            closing = relative @ normal
            impacts[[i for i in (first, second) if i is not None]] += 1
            if -closing < slowest or impacts.max() > most:
                return tuple(np.concatenate(x) for x in zip(*samples, strict=True))
            slip = relative - closing * normal
            push = -(1 + e) * closing * mass
            speed = np.linalg.norm(slip)
            drag = min(mu * push, mass * speed) / speed if speed > 0 else 0.0
            impulse = push * normal - drag * slip
            v[first] += impulse / masses[first]
            if second is not None:
                v[second] -= impulse / masses[second]
        wait = time - now
        q, v, now = q + wait * v + 0.5 * wait**2 * field, v + wait * field, time
        samples.append((q[None].copy(), v[None].copy()))
    return tuple(np.concatenate(x) for x in zip(*samples, strict=True))


def _earliest(q, v, radii, normals, offsets, field):
    wait, hit = np.inf, None
    for i in range(len(q)):
        for j in range(i):
            away, speed = q[i] - q[j], v[i] - v[j]
            a, b, c = speed @ speed, away @ speed, away @ away - (radii[i] + radii[j]) ** 2
            if b < 0 and b * b > a * c:
                time = (-b - np.sqrt(b * b - a * c)) / a
                if time < wait:
                    wait, hit = time, (i, j, None)
        for normal, offset in zip(normals, offsets, strict=True):
            gap, rate, pull = normal @ q[i] - offset - radii[i], normal @ v[i], normal @ field
            # The root at which the gap closes, in the form that does not cancel.
            arrival = np.sqrt(max(rate * rate - 2 * pull * gap, 0.0))
            if arrival == 0 or (rate >= 0 and pull == 0):
                continue
            time = 2 * gap / (arrival - rate) if rate < 0 else -(arrival + rate) / pull
            # The ball leaves a plane that it touches: that root is the impact that has just been.
            if -1e-9 < time < wait:
                wait, hit = max(time, 0.0), (i, None, normal)
    return wait, hit
