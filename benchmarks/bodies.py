"""Speed of many bodies: scenes of balls on a free table, against pymunk on the same scenes, and cost by size.

    python -m benchmarks.bodies

Both record positions and velocities of every ball at every step. pymunk runs as it is used, one scene after
another in one process, and also in two processes; ours in two threads, and
also by the public `motions`, which gathers all samples in one array. Times are wall times, the least of
several runs; those of both take turns, because these machines are shared.
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bodies_tables import SPEED_TABLES
from carom.evaluation.results import tidy_rows, write_results
from carom.evaluation.tables import markdown
from carom.integrators import event_driven_motion
from carom.systems import AbstractBoxedBalls, BallBox, Billiards
from carom.systems.balls import BATCH, NEIGHBOUR_LISTS, AbstractBalls
from carom.types import State

SCENES, BALLS, STEPS = 1024, 16, 100
STEP_SIZES = (0.01, 0.005, 0.002)
SIZES = (4, 16, 64, 256)
TURNS = 5
SHARE = 0.126
"""Share of the table under the balls, that of 16 balls of radius 0.05 on 1 m²."""


def table(balls: int, *, gravity: bool = False) -> AbstractBoxedBalls:
    """Equal balls in a unit box, as dense whatever their number."""
    radius = float(np.sqrt(SHARE / np.pi / balls))
    kind = BallBox if gravity else Billiards
    return kind(size=(1.0, 1.0), radii=(radius,) * balls)


def starts(system: AbstractBoxedBalls, scenes: int) -> State:
    """Scenes 0, 1, …: random positions, speeds of mean square 1."""
    states = [system.random_start(seed=seed) for seed in range(scenes)]
    return State(
        jnp.stack([state.position for state in states]), jnp.stack([state.velocity for state in states])
    )


def least_time(run: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def ours(system: AbstractBalls, start: State, steps: int, h: float) -> Callable[[], object]:
    """All scenes, compiled, in two threads."""
    balls, intervals = system.balls(), jnp.full((steps,), h)
    parts = [
        State(start.position[k : k + BATCH], start.velocity[k : k + BATCH])
        for k in range(0, len(start.position), BATCH)
    ]
    program = jax.jit(lambda balls, part: event_driven_motion(balls, part, intervals, report="none")[0])
    compiled = program.lower(balls, parts[0]).compile()

    def run_part(part: State):
        return jax.block_until_ready(compiled(balls, part))

    def run():
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(run_part, parts))

    run()
    return run


def gathered(system: AbstractBalls, start: State, steps: int, h: float) -> Callable[[], object]:
    """All scenes by the public interface, which also gathers them in one array."""

    def run():
        return system.motions(start, steps=steps, step_size=h)

    run()
    return run


def pymunk_scenes(
    system: AbstractBalls, position: np.ndarray, velocity: np.ndarray, steps: int, h: float
) -> float:
    """Seconds that pymunk takes to step and record scenes one after another."""
    import pymunk
    import pymunk.batch as batch

    fields = batch.BodyFields.POSITION | batch.BodyFields.VELOCITY
    x, y = (0.0, 0.0) if system.field is None else system.field
    seconds = 0.0
    record = np.empty((steps, len(system.radii), 4))
    for places, speeds in zip(position, velocity, strict=True):
        space = pymunk.Space()
        space.gravity = float(x), float(y)
        for a, b in (((0, 0), (1, 0)), ((1, 0), (1, 1)), ((1, 1), (0, 1)), ((0, 1), (0, 0))):
            wall = pymunk.Segment(space.static_body, a, b, 0.0)
            wall.elasticity = 1.0
            space.add(wall)
        for place, speed, radius in zip(places, speeds, system.radii, strict=True):
            body = pymunk.Body(1.0, float("inf"))
            body.position, body.velocity = tuple(place), tuple(speed)
            shape = pymunk.Circle(body, radius)
            shape.elasticity = 1.0
            space.add(body, shape)
        buffer = batch.Buffer()
        started = time.perf_counter()
        for step in range(steps):
            space.step(h)
            buffer.clear()
            batch.get_space_bodies(space, fields, buffer)
            # The body that walls belong to may come after those that move.
            record[step] = np.frombuffer(buffer.float_buf()).reshape(-1, 4)[: len(places)]
        seconds += time.perf_counter() - started
    return seconds


def pymunk_time(system: AbstractBalls, start: State, steps: int, h: float, processes: int) -> float:
    """Seconds for all scenes, the time of the slower half where there are two processes."""
    position, velocity = np.asarray(start.position), np.asarray(start.velocity)
    if processes == 1:
        return pymunk_scenes(system, position, velocity, steps, h)
    parts = np.array_split(np.arange(len(position)), processes)
    with ProcessPoolExecutor(processes) as pool:
        jobs = [pool.submit(pymunk_scenes, system, position[p], velocity[p], steps, h) for p in parts]
        return max(job.result() for job in jobs)


def compare() -> list[dict[str, Any]]:
    """1024 scenes of 16 balls at several step sizes."""
    system = table(BALLS)
    start = starts(system, SCENES)
    rows = []
    for h in STEP_SIZES:
        mine, whole = (make(system, start, STEPS, h) for make in (ours, gathered))
        turns = [
            (
                least_time(mine, 3),
                least_time(whole, 3),
                pymunk_time(system, start, STEPS, h, 1),
                pymunk_time(system, start, STEPS, h, 2),
            )
            for _ in range(TURNS)
        ]
        names = ("ours, 2 threads", "motions", "pymunk", "pymunk, 2 processes")
        for name, times in zip(names, zip(*turns, strict=True), strict=True):
            keys = {"experiment": "speed", "model": name, "step_size": h}
            rows += tidy_rows(keys, {"seconds": min(times)})
    return rows


def cost(balls: int, *, gravity: bool) -> list[dict[str, Any]]:
    """Microseconds per step of a scene and bytes of working memory per scene, at one number of balls."""
    scenes, steps = max(2, 512 // balls), 50
    system = table(balls, gravity=gravity)
    start, arrays, intervals = starts(system, scenes), system.balls(), jnp.full((steps,), 0.01)
    neighbours = 16 if balls > NEIGHBOUR_LISTS else None
    motion = jax.jit(partial(event_driven_motion, report="none", neighbours=neighbours))
    compiled = motion.lower(arrays, start, intervals).compile()
    memory: Any = compiled.memory_analysis()

    def run():
        return jax.block_until_ready(compiled(arrays, start, intervals))

    run()
    seconds = least_time(run, 3)
    theirs = pymunk_time(system, State(start.position[:2], start.velocity[:2]), steps, 0.01, 1)
    keys = {"experiment": "cost", "field": "gravity" if gravity else "none", "balls": balls}
    ours = {"microseconds": 1e6 * seconds / scenes / steps, "bytes": memory.temp_size_in_bytes / scenes}
    rows = tidy_rows(keys | {"model": "ours"}, ours)
    return rows + tidy_rows(keys | {"model": "pymunk"}, {"microseconds": 1e6 * theirs / 2 / steps})


def main() -> None:
    """Measure everything, print the tables and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bodies.json"))
    out = parser.parse_args().out
    with jax.enable_x64(True):
        rows = compare()
        for gravity in (False, True):
            for balls in SIZES:
                rows += cost(balls, gravity=gravity)
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    results = write_results(out, rows, command="python -m benchmarks.bodies", machine=machine)
    for make in SPEED_TABLES.values():
        print(markdown(make(results.rows)), end="\n\n")


if __name__ == "__main__":
    main()
