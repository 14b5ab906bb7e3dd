"""What is recorded: the published motions, noisy recordings by protocol, and start states.

Velocities are on the grid "sample" throughout: recorded at t_n and used as V_{n+1/2}.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from carom.data import Recording, Run, add_noise
from carom.data.recording import run_from_trajectory
from carom.reproduction.paper.experiments import POINTS, Experiment, Protocol
from carom.reproduction.scores import single
from carom.systems import AbstractBoxedBalls, AbstractSystem, BentBall, BouncingBall, NewtonsCradle, Pendulum
from carom.types import State, Trajectory

HELD_OUT_STARTS = 50


def published_motion(
    system: AbstractSystem, start: State, steps: int, step_size: float, *, grid_stretch: float = 1.0
) -> Trajectory:
    """The published motion of a system.

    The ball's is the CD-Lagrange scheme itself. The pendulum's is exact, sampled every `grid_stretch` steps.
    The cradle's tests the gap at the start of the step, so that its impacts come one sample later than the
    scheme's; it then exchanges the velocities and puts both balls at angle 0.
    """
    if isinstance(system, Pendulum):
        # The clock of the data is wrong on purpose: models are told the nominal step.
        exact = system.exact(start, np.arange(steps + 1) * step_size * grid_stretch)
        return exact._replace(time=np.arange(steps + 1) * step_size)
    if isinstance(system, NewtonsCradle) and system.balls == 2:
        return _published_cradle(system, start, steps, step_size)
    # More balls of a cradle meet at angle 0, as two do; nothing was published of them.
    projection = "reference_point" if isinstance(system, NewtonsCradle) else "none"
    # Hundreds of steps of one ball, one after another: a GPU takes far longer for them.
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return system.scheme(
            start, steps=steps, step_size=step_size, velocity_grid="sample", projection=projection
        )


def _published_cradle(cradle: NewtonsCradle, start: State, steps: int, step_size: float) -> Trajectory:
    position, velocity = np.empty((steps + 1, 2, 1)), np.empty((steps + 1, 2, 1))
    contact = np.zeros((steps + 1, 1), bool)
    q, v = np.ravel(start.position).astype(float), np.ravel(start.velocity).astype(float)
    for n in range(steps + 1):
        position[n, :, 0], velocity[n, :, 0] = q, v
        # Before the step, and only where both balls move towards each other or rest.
        hits = q[0] < q[1] and v[0] <= 0 <= v[1]
        if n < steps and hits:
            contact[n + 1] = True
            q, v = np.zeros(2), v[::-1].copy()
        else:
            q = q + step_size * v
            v = v - step_size * cradle.gravity / cradle.length * np.sin(q)
    return Trajectory(np.arange(steps + 1) * step_size, position, velocity, contact)


def motion_of(
    experiment: Experiment, protocol: Protocol, system: AbstractSystem, start: State, steps: int | None = None
) -> Trajectory:
    """The noise-free motion, over the span that is scored by default."""
    steps = experiment.samples(protocol) - 1 if steps is None else steps
    stretch = experiment.grid_stretch if protocol == "published" else 1.0
    return published_motion(system, start, steps, experiment.step_size, grid_stretch=stretch)


def record(experiment: Experiment, protocol: Protocol, seed: int) -> Recording:
    """The noisy recording of one seed."""
    # The authors' code cuts one window fewer than would fit, so that the last sample is not used.
    steps = {"text": POINTS - 1, "published": experiment.samples(protocol) - 2}.get(protocol)
    system, starts = experiment.system, [experiment.start]
    if protocol == "text":
        starts = trajectory_starts(system, experiment.trajectories, seed)
    scene = system.scene(velocity_grid="sample", projection=experiment.projection)
    runs = tuple(
        run_from_trajectory(motion_of(experiment, protocol, system, start, steps), scene) for start in starts
    )
    clean = Recording(runs, experiment.step_size, scene)
    # Start states are noisy too: every window begins at an observation.
    noisy = add_noise(clean, experiment.noise, seed=seed)
    if not experiment.true_window_starts:
        return noisy
    length = experiment.settings(protocol, next(iter(experiment.trained))).horizon + 1
    return replace(noisy, runs=_windows_with_true_starts(clean.runs[0], noisy.runs[0], length))


def _windows_with_true_starts(clean: Run, noisy: Run, length: int) -> tuple[Run, ...]:
    """Every window as a run of its own, whose first state is free of noise and whose targets are not."""
    windows = []
    for begin in range(len(noisy) - length + 1):
        window, true = noisy.part(slice(begin, begin + length)), clean.part(slice(begin, begin + 1))
        channels = ((getattr(true, name), getattr(window, name)) for name in ("position", "velocity"))
        position, velocity = (np.concatenate([first, rest[1:]]) for first, rest in channels)
        windows.append(replace(window, position=position, velocity=velocity))
    return tuple(windows)


def trajectory_starts(system: AbstractSystem, count: int, seed: int) -> list[State]:
    """Independent start states: uniform over those with at most the energy of the system's own start.

    Of a cradle one ball moves, on its own side, and the others rest, as they do between impacts.
    """
    generator = np.random.default_rng([seed, count])
    bodies, top = len(system.masses), float(system.energy(system.start))
    drawn = 20 * count  # far more than are rejected
    low, high = (system.radius, 10.0) if isinstance(system, BouncingBall) else (-np.pi / 2, np.pi / 2)
    # The fastest that this energy allows, so that the box holds every state.
    speed = np.sqrt(2 * top / float(system.masses[0]))
    position, velocity = np.zeros((2, drawn, bodies, 1))
    # The others hang at rest, as between two impacts of the published motion.
    moving = np.arange(drawn) % 2 * (bodies - 1)  # the first ball or the last
    place = generator.uniform(low, high, drawn)
    if bodies > 1:
        place = np.where(moving == 0, np.abs(place), -np.abs(place))
    position[np.arange(drawn), moving, 0] = place
    velocity[np.arange(drawn), moving, 0] = generator.uniform(-speed, speed, drawn)
    states = State(jnp.asarray(position), jnp.asarray(velocity))
    kept = np.flatnonzero(np.asarray(jax.vmap(system.energy)(states)) <= top)[:count]
    assert len(kept) == count
    return [jax.tree.map(lambda x, i=i: x[i], states) for i in kept]


def held_out_starts(
    system: AbstractSystem, count: int = HELD_OUT_STARTS, *, seed: int | list[int] = 2021
) -> list[State]:
    """Start states that no recording starts from, inside the range of energies that recordings visit.

    Another `seed` draws others from the same range.
    """
    generator = np.random.default_rng(seed)
    if isinstance(system, AbstractBoxedBalls):
        seeds = generator.integers(0, 2**31, count)
        return [single(system.random_start(int(number), speed=0.5)) for number in seeds]
    if isinstance(system, NewtonsCradle):
        positions, velocities = np.zeros((2, count, system.balls))
        velocities[:, 0] = generator.uniform(1.2, 1.9, count)
    else:
        ranges = ((-0.9, 0.9), (-1, 1))
        if isinstance(system, BouncingBall | BentBall):
            ranges = ((4, 9.5), (-2, 2)) if isinstance(system, BouncingBall) else ((2, 5), (-1, 1))
        positions, velocities = (generator.uniform(*span, (count, 1)) for span in ranges)
    return [
        State(jnp.asarray(q[:, None], jnp.float32), jnp.asarray(v[:, None], jnp.float32))
        for q, v in zip(positions, velocities, strict=True)
    ]
