"""Twelve scenes with the nuisances of real recordings: training runs, held-out runs and the truth beside.

Everything follows from the name of the scene and the seed: parameters, starts, scatter of restitution and
what the camera does. Held-out runs are recorded by the same camera, but nobody holds the bodies at first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.data import Camera, HeldOut, Recording, Run, film_motions
from carom.data.camera import PRESETS, area
from carom.mechanics import Pair, Scene, Wall
from carom.systems import BallBox, BentBall, Billiards, BouncingBall, Laboratory, NewtonsCradle
from carom.systems.base import AbstractSystem
from carom.systems.laboratory import Hit
from carom.types import State

TRAINING, HELD_OUT = 12, 6
LEAST_KNOWN = 6
"""Samples of a held-out run before its first impact, at least; all of them are known."""
Random = np.random.Generator


@dataclass(frozen=True, eq=False)
class Truth:
    """What no method is told.

    Arguments:
        system: the true mechanics.
        parameters: by name, "restitution", "gravity 1" … (components), "friction", "drag", "surface 1" …, as
            far as the recording has them: a lens bends lengths, and a contact that lasts has no one surface.
            Restitution that varies is averaged over the training hits as a regression does it.
        training: every training run as an ideal tracker sees it, at the instants of the frames.
        impacts: of every training run, at the times of the recording.
        held_out: the noise-free positions of the future of every held-out run.
        starts: the true states of held-out runs at their first sample.
        view: from true positions to those that an ideal tracker sees.
    """

    system: Laboratory
    parameters: dict[str, float]
    training: Recording
    impacts: tuple[tuple[Hit, ...], ...]
    held_out: tuple[Float[np.ndarray, "samples bodies dimension"], ...]
    starts: tuple[State, ...]
    view: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Task:
    """What is given to a method, and the truth.

    Arguments:
        scene: its name.
        seed: of everything.
        train: the training runs, with the contacts as a user would state them: to a centimetre.
        held_out: runs that no method sees; their futures are at the instants of the frames.
        truth: beside.
        learn: the parameters that a user would ask for.
        uniform: whether the bodies move straight on, or fall, between impacts, as far as a user knows.
    """

    scene: str
    seed: int
    train: Recording
    held_out: tuple[HeldOut, ...]
    truth: Truth
    learn: tuple[str, ...]
    uniform: bool


class Setup(NamedTuple):
    """A scene: its mechanics and starts at random, its camera, and the duration of its runs."""

    build: Callable[[Random], Laboratory]
    start: Callable[[Random, Laboratory], State]
    camera: Camera
    duration: float
    learn: tuple[str, ...] = ("restitution", "gravity")
    runs: int = TRAINING
    uniform: bool = True
    plain: bool = False
    """Whether there is no nuisance but noise: no warning is due."""


def _state(position, velocity) -> State:
    return State(jnp.asarray(position, float), jnp.asarray(velocity, float))


def _lab(ideal: AbstractSystem, random: Random, **imperfections) -> Laboratory:
    return Laboratory(ideal=ideal, seed=int(random.integers(2**31)), **imperfections)  # pyright: ignore


def _drop(random: Random, system: Laboratory) -> State:
    return _state([[random.uniform(0.6, 1.2)]], [[random.uniform(-0.2, 0.2)]])


def _ball(low: float = 0.7, high: float = 0.85) -> Callable[[Random], BouncingBall]:
    return lambda random: BouncingBall(restitution=random.uniform(low, high))


class Track(Billiards):
    """Two riders on a long level track; the walls at its ends are out of reach."""


def _riders(random: Random, **imperfections) -> Laboratory:
    masses = (1.0, float(random.uniform(0.7, 1.5)))
    track = Track(
        size=(1e3,), radii=(0.06, 0.06), ball_masses=masses, restitution=float(random.uniform(0.75, 0.92))
    )
    return _lab(track, random, **imperfections)


def _meeting(random: Random, system: Laboratory) -> State:
    """The rider behind meets the one in front after about half of the run."""
    front, speed = random.uniform(-0.15, 0.05), random.uniform(0.25, 0.9)
    gap = speed * random.uniform(0.6, 1.0)
    return _state([[500.0], [500.0 - 0.12 - gap]], [[front], [front + speed]])


def _pucks(random: Random, count: int) -> Laboratory:
    table = Billiards(
        size=(1.2, 0.8),
        radii=(0.04,) * count,
        ball_masses=(1.0, 1.5)[:count],
        restitution=float(random.uniform(0.75, 0.9)),
        friction=float(random.uniform(0.05, 0.2)),
    )
    return _lab(table, random, restitution_loss=0.05, scatter=0.02)


def _pushed(random: Random, system: Laboratory) -> State:
    """Bodies apart from each other and from the walls, at up to a metre per second."""
    ideal = system.ideal
    assert isinstance(ideal, Billiards)
    placed = ideal.random_start(int(random.integers(2**31)))
    speed = random.uniform(0.4, 1.0, size=(len(ideal.radii), 1))
    angle = random.uniform(0, 2 * np.pi, size=(len(ideal.radii), 1))
    return _state(placed.position, speed * np.concatenate([np.cos(angle), np.sin(angle)], axis=1))


def _thrown(random: Random) -> Laboratory:
    box = BallBox(
        size=(50.0, 50.0, 50.0),
        radii=(0.03,),
        restitution=float(random.uniform(0.7, 0.85)),
        friction=float(random.uniform(0.1, 0.3)),
    )
    return _lab(box, random, drag=float(random.uniform(0.03, 0.1)), scatter=0.03, contact_time=0.004)


def _throw(random: Random, system: Laboratory) -> State:
    position = [25 + random.uniform(-0.3, 0.3), 25 + random.uniform(-0.3, 0.3), random.uniform(0.8, 1.5)]
    return _state([position], [[*random.uniform(-1.5, 1.5, 2), random.uniform(0.0, 1.5)]])


class Incline(BallBox):
    """A ball above a plane that slopes along the first axis, in axes along the plane."""

    slope: float = 0.2

    @property
    def field(self):
        return (self.gravity * float(np.sin(self.slope)), -self.gravity * float(np.cos(self.slope)))


def _incline(random: Random) -> Laboratory:
    plane = Incline(
        size=(200.0, 50.0),
        radii=(0.02,),
        restitution=float(random.uniform(0.65, 0.85)),
        friction=float(random.uniform(0.05, 0.2)),
        slope=float(random.uniform(0.1, 0.3)),
    )
    return _lab(plane, random, scatter=0.02)


def _above_incline(random: Random, system: Laboratory) -> State:
    return _state(
        [[100.0, random.uniform(0.4, 0.9)]], [[random.uniform(-0.5, 0.5), random.uniform(-0.2, 0.4)]]
    )


def _swing(random: Random, system: Laboratory) -> State:
    return _state([[random.uniform(0.3, 0.8)], [random.uniform(-0.3, 0.0)]], [[0.0], [0.0]])


def _high(random: Random, system: Laboratory) -> State:
    return _state([[random.uniform(8.0, 12.0)]], [[random.uniform(-1.0, 1.0)]])


SETUPS: Mapping[str, Setup] = {
    "drop": Setup(lambda r: _lab(_ball()(r), r), _drop, Camera(frame_rate=120, noise=0.001), 2.0, plain=True),
    "drop-30fps": Setup(
        lambda r: _lab(_ball()(r), r, scatter=0.03),
        _drop,
        Camera(frame_rate=30, noise=0.005, jitter=0.001, dropped=0.01, repeated=0.01),
        2.0,
    ),
    "to-rest": Setup(
        lambda r: _lab(_ball(0.55, 0.7)(r), r, scatter=0.05, restitution_loss=0.02, contact_time=0.008),
        _drop,
        PRESETS["phone-60fps"].model_copy(update={"hand": 0.25}),
        4.0,
    ),
    "riders": Setup(
        lambda r: _riders(r, restitution_loss=0.1, scatter=0.02),
        _meeting,
        Camera(frame_rate=120, noise=0.0005, rounding=1e-4, smoothing="average", window=5),
        2.0,
        ("restitution",),
    ),
    "riders-lasting": Setup(
        lambda r: _riders(r, restitution_loss=0.1, scatter=0.02, contact_time=float(r.uniform(0.02, 0.05))),
        _meeting,
        PRESETS["motion-capture"],
        2.0,
        ("restitution",),
    ),
    "table": Setup(
        lambda r: _pucks(r, 1),
        _pushed,
        PRESETS["lab-120fps"],
        4.0,
        ("restitution", "friction"),
    ),
    "two-pucks": Setup(
        lambda r: _pucks(r, 2),
        _pushed,
        PRESETS["motion-capture"],
        2.5,
        ("restitution", "friction"),
        runs=20,
    ),
    "space": Setup(
        _thrown,
        _throw,
        Camera(frame_rate=120, noise=0.002, outliers=0.003, outlier_size=0.1, dropped=0.005, tilt=1.0),
        2.0,
        ("restitution", "friction", "gravity", "drag"),
    ),
    "incline": Setup(
        _incline, _above_incline, PRESETS["phone-60fps"], 2.0, ("restitution", "friction", "gravity")
    ),
    "cradle": Setup(
        lambda r: _lab(NewtonsCradle(restitution=float(r.uniform(0.85, 0.97))), r),
        _swing,
        Camera(frame_rate=100, noise=0.005),
        4.0,
        ("restitution",),
        uniform=False,
    ),
    "bent": Setup(
        lambda r: _lab(BentBall(restitution=float(r.uniform(0.85, 0.95))), r),
        lambda r, _: _state([[r.uniform(3.0, 5.0)]], [[0.0]]),
        Camera(frame_rate=50, noise=0.05),
        5.0,
        ("restitution",),
        uniform=False,
        plain=True,
    ),
    "noise-1": Setup(
        lambda r: _lab(BouncingBall(restitution=float(r.uniform(0.85, 0.95))), r),
        _high,
        Camera(frame_rate=50, noise=1.0),
        10.0,
        plain=True,
    ),
    "1-khz": Setup(
        lambda r: _lab(_ball()(r), r, contact_time=0.003, drag=0.02, scatter=0.02),
        _drop,
        PRESETS["high-speed-1000fps"].model_copy(update={"noise": 0.005}),
        2.0,
        runs=6,
    ),
}
"""Thirteen settings of the twelve scenes: the riders are there with and without lasting contacts."""


def make(scene: str, seed: int) -> Task:
    """The task of a scene and a seed.

    Example:
        >>> task = make("drop", 0)
        >>> len(task.train.runs), task.train.bodies, sorted(task.truth.parameters)
        (12, 1, ['gravity 1', 'restitution', 'surface 1'])
    """
    setup = SETUPS[scene]
    random = np.random.default_rng([seed, list(SETUPS).index(scene)])
    system = setup.build(random)
    frames = round(setup.duration * setup.camera.frame_rate) + 1
    training = _motions(random, setup, system, setup.runs, frames)
    kept = _motions(random, setup, system, HELD_OUT, frames)
    exact = Recording(tuple(run for run, _, _ in training), setup.camera.step_size, _stated(system, random))
    filmed = film_motions(exact, setup.camera, seed=seed)
    free = setup.camera.model_copy(update={"hand": 0.0})
    future = film_motions(
        replace(exact, runs=tuple(run for run, _, _ in kept)), free, seed=2**20 + seed, viewed=exact
    )
    held = round(setup.camera.hand * setup.camera.frame_rate) * setup.camera.step_size
    impacts = tuple(tuple(hit._replace(time=hit.time + held) for hit in hits) for _, hits, _ in training)
    parts = [
        _held_out(number, tracked, ideal, hits[0].time)
        for number, (tracked, ideal, (_, hits, _)) in enumerate(
            zip(future.recording.runs, future.ideal.runs, kept, strict=True)
        )
    ]
    centre, radius = area(exact)
    truth = Truth(
        system,
        _parameters(system, setup.camera, [hit for hits in impacts for hit in hits]),
        filmed.ideal,
        impacts,
        tuple(true for _, true in parts),
        tuple(start for _, _, start in kept),
        partial(setup.camera.view, centre=centre, radius=radius),
    )
    held_out = tuple(part for part, _ in parts)
    return Task(scene, seed, filmed.recording, held_out, truth, setup.learn, setup.uniform)


def _motions(random: Random, setup: Setup, system: Laboratory, count: int, frames: int):
    """Runs, their impacts and starts, of motions whose first impact comes late enough to know the start."""
    times, found = np.arange(frames) * setup.camera.step_size, []
    for _ in range(100 * count):
        start = setup.start(random, system)
        if (np.asarray(system.geometry.gap(np.asarray(start.position, float))) < 0.01).any():
            continue
        # Most starts that come too early are seen so by the first part of their motion.
        early = (LEAST_KNOWN + 2) * setup.camera.step_size
        if system.motion(start, np.array([0.0, early]))[1]:
            continue
        motion, hits = system.motion(start, times)
        if hits:
            found.append((Run(motion.time, motion.position, motion.velocity), hits, start))
        if len(found) == count:
            return found
    raise RuntimeError("The scene has no such starts.")


def _held_out(number: int, tracked: Run, ideal: Run, first: float) -> tuple[HeldOut, np.ndarray]:
    """A run as its history before the first impact and the rest, at the clock of the frames; the truth."""
    known = int(np.sum(ideal.time < first)) - 1
    future = replace(tracked, time=ideal.time).part(slice(known, None))
    return HeldOut(number, tracked.part(slice(0, known)), future), ideal.position[known:]


def _stated(system: Laboratory, random: Random) -> Scene:
    """The contacts that a user would name, their places to a centimetre; restitution and friction unknown."""
    reached = [c for c in system.geometry.candidates if isinstance(c, Pair) or _near(c, system)]
    off = 0.0 if isinstance(system.ideal, NewtonsCradle | BentBall) else 0.01
    candidates = tuple(replace(c, offset=c.offset + off * float(random.uniform(-1, 1))) for c in reached)
    geometry = system.geometry
    masses = tuple(float(mass) for mass in system.masses)
    return Scene(geometry.bodies, geometry.dimension, candidates, masses, restitution=0.5, friction=0.0)


def _near(wall: Wall, system: Laboratory) -> bool:
    """Whether a wall is no end of a box that stands for open space."""
    size = getattr(system.ideal, "size", (1.0,))
    along = int(np.argmax(np.abs(wall.normal)))
    open_space = size[along] > 10 and (wall.offset < -1 or along < len(size) - 1)
    return not (open_space or isinstance(system.ideal, Track))


def _parameters(system: Laboratory, camera: Camera, hits: Sequence[Hit]) -> dict[str, float]:
    ideal = system.ideal
    weights = np.array([hit.speed**2 for hit in hits])
    law = np.array([system.mean_restitution(hit.speed) for hit in hits])
    numbers = {"restitution": float(weights @ law / weights.sum())}
    if system.contact_friction:
        numbers["friction"] = float(system.contact_friction)
    if camera.distortion or camera.tilt:
        return numbers
    if isinstance(ideal, BouncingBall):
        numbers["gravity 1"] = -ideal.gravity
    elif isinstance(ideal, BallBox):
        numbers |= {f"gravity {axis}": float(part) for axis, part in enumerate(ideal.field, start=1)}
    if system.drag:
        numbers["drag"] = system.drag
    if not system.contact_time:
        reached = [c for c in system.geometry.candidates if isinstance(c, Pair) or _near(c, system)]
        numbers |= {f"surface {row + 1}": float(c.offset) for row, c in enumerate(reached)}
    return numbers
