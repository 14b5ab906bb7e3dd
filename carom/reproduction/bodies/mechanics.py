"""What the mechanics of many bodies keeps and how it converges, measured on random scenes of balls."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from carom.errors import InputError
from carom.execution.tasks import Piece
from carom.execution.workers import Tell
from carom.integrators import event_driven_motion
from carom.integrators.event_driven.balls import Balls
from carom.storage.fingerprint import fingerprint
from carom.systems import (
    AbstractBoxedBalls,
    AbstractSystem,
    BallBox,
    Billiards,
    Engine,
    NewtonsCradle,
    engine_trajectory,
    fitting_radius,
)
from carom.types import State

Row = dict[str, Any]
BODIES, LONG, SHORT, STEP_SIZE = 20, 10_000, 500, 0.01
"""Balls in a scene; steps where energy is to stay, and where it may fall; seconds of a step."""
CRADLE_STEPS = (50, 100, 200, 400)
CRADLE_SECONDS = 4.0
SUBSTEPS = (1, 4, 16, 64)
TABLES: dict[str, AbstractBoxedBalls] = {
    "billiards": Billiards(radii=(0.1, 0.12, 0.08), ball_masses=(1.0, 2.0, 0.5), restitution=0.9),
    "box": BallBox(radii=(0.1, 0.12, 0.08), size=(1.0, 1.0), ball_masses=(1.0, 2.0, 0.5), restitution=0.9),
    "rough billiards": Billiards(radii=(0.1, 0.12, 0.08), restitution=0.8, friction=0.3),
    "rough box": BallBox(radii=(0.1, 0.12, 0.08), size=(1.0, 1.0), restitution=0.8, friction=0.3),
}
"""Three balls as ours, by the CD-Lagrange step and by engines."""
ENGINES: dict[Engine, tuple[str, ...]] = {"pymunk": tuple(TABLES), "mujoco": ("billiards", "box")}
"""Which of them an engine can have: MuJoCo has no Coulomb friction at one step."""
STEPPED = ("billiards", "rough box")
"""Which of them the CD-Lagrange step has."""
ENGINE_STEPS = 40
DIFFERENCE, DERIVATIVE_STEPS, LARGEST = 1e-5, 20, 300.0
"""Step of central differences; samples; derivatives beyond which differences of that step are too coarse."""


def mechanics_pieces(seeds: Sequence[int], folder: Path) -> list[Piece]:
    """The work, each part kept in a file of the folder."""
    parts: dict[str, tuple[Callable[..., Row], float]] = {
        "conservation": (conservation, 10),
        "dissipation": (dissipation, 6),
        "orders": (orders, 3),
        "derivatives": (derivatives, 4),
        "engines": (engines, 6),
    }
    settings = BODIES, LONG, SHORT, STEP_SIZE, CRADLE_STEPS, SUBSTEPS, ENGINE_STEPS, DIFFERENCE
    return [
        Piece(
            folder / f"mechanics.{name}.json",
            fingerprint(name, settings, TABLES, tuple(seeds)),
            partial(function, tuple(seeds)),
            cost,
        )
        for name, (function, cost) in parts.items()
    ]


def random_table(
    dimension: int, *, gravity: bool, seed: int, restitution=1.0, friction=0.0
) -> AbstractBoxedBalls:
    """A box of side 1 with balls of random masses and radii."""
    random = np.random.default_rng([seed, dimension, gravity])
    radius = fitting_radius(BODIES, (1.0,) * dimension, most=0.1, share=0.1)
    return (BallBox if gravity else Billiards)(
        size=(1.0,) * dimension,
        radii=tuple((radius * random.uniform(0.6, 1.2, BODIES)).tolist()),
        ball_masses=tuple(random.uniform(0.2, 5.0, BODIES).tolist()),
        restitution=float(restitution),
        friction=float(friction),
    )


def energies(table: AbstractBoxedBalls, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """The energy of every sample, above that of all balls on the floor."""
    masses = np.asarray(table.masses, float)
    energy = 0.5 * np.einsum("k,nkd->n", masses, velocity**2)
    if table.field is not None:
        energy = energy - np.einsum("k,d,nkd->n", masses, np.asarray(table.field, float), position)
    return energy


def overlap(system: AbstractSystem, position: np.ndarray) -> float:
    """How far bodies are inside each other or a wall at most, over all samples; 0 if they never are."""
    with jax.enable_x64(True):
        gaps = jax.jit(jax.vmap(system.geometry.gap))(jnp.asarray(position))
        return max(0.0, -float(gaps.min()))


def conservation(seeds: Sequence[int], tell: Tell) -> Row:
    """Elastic and smooth: how far the energy strays over many steps, free and under gravity."""
    rows = []
    cases = list(product((1, 2, 3), (False, True)))
    for number, (dimension, gravity) in enumerate(cases):
        # One table with scenes of its own: all scenes of a table are one computation.
        table = random_table(dimension, gravity=gravity, seed=seeds[0])
        starts = [table.random_start(seed=seed) for seed in seeds]
        batch = State(*(jnp.stack([getattr(s, name) for s in starts]) for name in ("position", "velocity")))
        motions = table.motions(batch, steps=LONG, step_size=STEP_SIZE)
        drift, deepest = [], []
        for scene in range(len(seeds)):
            position, velocity = motions.position[:, scene], motions.velocity[:, scene]
            energy = energies(table, position, velocity)
            drift.append(float(np.abs(energy / energy[0] - 1).max()))
            deepest.append(overlap(table, position[::10]))
        rows.append({"dimension": dimension, "gravity": gravity, "drift": drift, "overlap": deepest})
        tell((number + 1) / len(cases))
    return {"bodies": BODIES, "steps": LONG, "rows": rows}


def dissipation(seeds: Sequence[int], tell: Tell) -> Row:
    """Any e ≤ 1 and μ, through heaps: the greatest gain of energy between samples, overlap, momentum."""
    rows = []
    cases = list(product((1, 2, 3), (False, True)))
    for number, (dimension, gravity) in enumerate(cases):
        row: Row = {"dimension": dimension, "gravity": gravity, "restitution": [], "friction": []}
        row |= {"gain": [], "overlap": [], "momentum": []}
        for seed in seeds:
            random = np.random.default_rng([seed, 1])
            laws = {"restitution": random.uniform(), "friction": random.uniform(0, 2)}
            table = random_table(dimension, gravity=gravity, seed=seed, **laws)
            start = table.random_start(seed=seed)
            motion = table.exact(start, np.arange(SHORT + 1) * STEP_SIZE)
            energy = energies(table, motion.position, motion.velocity)
            found = {
                "gain": float(np.max(np.diff(energy)) / energy[0]),
                "overlap": overlap(table, motion.position),
                "momentum": None if gravity else _momentum_error(table, start),
                **laws,
            }
            for name, value in found.items():
                row[name].append(value)
        rows.append(row)
        tell((number + 1) / len(cases))
    return {"bodies": BODIES, "steps": SHORT, "rows": rows}


def _momentum_error(table: AbstractBoxedBalls, start: State) -> float:
    """The same balls far from all walls, on their way to the middle: the change of their momentum."""
    far = replace(table, size=(100.0,) * len(table.size))
    inwards = State(start.position + 49.5, start.velocity - 2 * (start.position - 0.5))
    motion = far.exact(inwards, np.linspace(0, 1, SHORT + 1))
    momenta = np.asarray(table.masses)[:, None] * motion.velocity
    change = np.abs(momenta.sum(axis=1) - momenta[0].sum(axis=0)).max()
    return float(change / np.abs(momenta[0]).sum())


def orders(seeds: Sequence[int], tell: Tell) -> Row:
    """Errors against the step: the cradle by the constraint-exact step, tables by the CD-Lagrange step."""
    cradle = NewtonsCradle()
    steps = np.array(CRADLE_STEPS)
    exact = cradle.exact(cradle.start, np.array([0.0, CRADLE_SECONDS]))
    errors = []
    for count in CRADLE_STEPS:
        motion = cradle.constraint_exact(cradle.start, steps=count, step_size=CRADLE_SECONDS / count)
        errors.append(float(np.abs(motion.position[-1] - exact.position[-1]).max()))
    tell(0.3)
    rows = [{"scheme": "constraint-exact", "system": "cradle", "step_sizes": CRADLE_SECONDS / steps}]
    rows[0] |= {"errors": errors, "order": slope(CRADLE_SECONDS / steps, errors)}
    for name in STEPPED:
        found = _distances(TABLES[name], seeds, _by_scheme)
        step_sizes = STEP_SIZE / np.array(SUBSTEPS)
        row = {"scheme": "CD-Lagrange", "system": name, "step_sizes": step_sizes, "errors": found}
        rows.append(row | {"order": slope(step_sizes, found)})
    return {"rows": [row | {"step_sizes": row["step_sizes"].tolist()} for row in rows]}


def _by_scheme(table: AbstractBoxedBalls, start: State, substeps: int) -> np.ndarray:
    motion = table.scheme(start, steps=ENGINE_STEPS * substeps, step_size=STEP_SIZE / substeps)
    return motion.position[::substeps]


def _distances(
    table: AbstractBoxedBalls,
    seeds: Sequence[int],
    positions: Callable[[AbstractBoxedBalls, State, int], np.ndarray],
) -> list[float]:
    """By substeps: the greatest distance of any ball from where it should be, the median over seeds."""
    starts = [table.random_start(seed=seed) for seed in seeds]
    times = np.arange(ENGINE_STEPS + 1) * STEP_SIZE
    exact = [table.exact(start, times).position for start in starts]
    return [
        float(
            np.median(
                [
                    np.abs(positions(table, start, substeps) - truth).max()
                    for start, truth in zip(starts, exact, strict=True)
                ]
            )
        )
        for substeps in SUBSTEPS
    ]


def slope(step_sizes: Sequence[float] | np.ndarray, errors: Sequence[float]) -> float:
    """The exponent of the power law that fits errors best."""
    return float(np.polyfit(np.log(step_sizes), np.log(errors), 1)[0])


def engines(seeds: Sequence[int], tell: Tell) -> Row:
    """Distances of engines from the exact motion, by their steps per sample; null without the engine."""
    cases: list[tuple[Engine, str]] = [(engine, name) for engine in ENGINES for name in ENGINES[engine]]
    rows = []
    for number, (engine, name) in enumerate(cases):
        try:
            errors = _distances(TABLES[name], seeds, partial(_by_engine, engine))
        except InputError:  # not installed
            errors = None
        order = None if errors is None else slope(STEP_SIZE / np.array(SUBSTEPS), errors)
        rows.append(
            {"engine": engine, "system": name, "substeps": SUBSTEPS, "errors": errors, "order": order}
        )
        tell((number + 1) / len(cases))
    return {"rows": rows}


def _by_engine(engine: Engine, table: AbstractBoxedBalls, start: State, substeps: int) -> np.ndarray:
    return engine_trajectory(
        table,
        start,
        steps=ENGINE_STEPS,
        step_size=STEP_SIZE,
        engine=engine,
        substeps=substeps,
        velocity_grid="half",
    ).position


def derivatives(seeds: Sequence[int], tell: Tell) -> Row:
    """∂(last state)/∂(e, μ, masses, start) against central differences of fourth order.

    Left out, and counted, are scenes in which a neighbour in the differences makes other impacts, scenes that
    graze, and those whose derivatives are too large for such differences.
    """
    rows = []
    for name in ("rough billiards", "rough box"):
        table = TABLES[name]
        with jax.enable_x64(True):
            errors = [_derivative_error(table, seed) for seed in seeds]
        rows.append({"system": name, "errors": errors, "left_out": sum(error is None for error in errors)})
        tell(len(rows) / 2)
    return {"rows": rows}


def _derivative_error(table: AbstractBoxedBalls, seed: int) -> float | None:
    balls, start = table.balls(), table.random_start(seed=seed)
    laws = jnp.stack([balls.restitution, balls.friction])
    place, speed = (jnp.asarray(np.asarray(x, float)).ravel() for x in (start.position, start.velocity))
    parameters = jnp.concatenate([laws, balls.masses, place, speed])
    _, (contact, grazing) = _last_state(balls, parameters)
    columns = []
    for shift in DIFFERENCE * np.eye(len(parameters)):
        values = []
        for factor in (-2, -1, 1, 2):
            value, (touched, _) = _last_state(balls, parameters + factor * shift)
            if bool((touched != contact).any()):
                return None
            values.append(np.asarray(value))
        columns.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * DIFFERENCE))
    expected = np.stack(columns, axis=1)
    size = np.abs(expected).max()
    if bool(grazing) or size > LARGEST:
        return None
    return float(np.abs(np.asarray(_derivative(balls, parameters)) - expected).max() / size)


@eqx.filter_jit
def _last_state(balls: Balls, parameters):
    bodies, dimension = balls.bodies, balls.normals.shape[1]
    start = parameters[2 + bodies :].reshape(2, 1, bodies, dimension)
    changed = replace(
        balls,
        restitution=parameters[0],
        friction=parameters[1],
        masses=parameters[2 : 2 + bodies],
    )
    states, report = event_driven_motion(
        changed, State(start[0], start[1]), jnp.full((DERIVATIVE_STEPS,), 2 * STEP_SIZE), report="contacts"
    )
    last = jnp.concatenate([states.position[-1].ravel(), states.velocity[-1].ravel()])
    return last, (report.contact, jnp.any(report.grazing))


@eqx.filter_jit
def _derivative(balls: Balls, parameters):
    return jax.jacfwd(lambda p: _last_state(balls, p)[0])(parameters)
