"""Accuracy of the mechanics of many bodies: what is conserved, how steps converge, derivatives, engines.

    python -m benchmarks.mechanics                     # seeds 0 to 4, about ten minutes of one core

writes benchmarks/results/mechanics.json and docs/images/bodies/orders.png. Engines that are not installed are
left out.
"""

import argparse
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
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.engines import Engine, engine_trajectory
from carom.errors import InputError
from carom.evaluation.results import tidy_rows, write_results
from carom.integrators import event_driven_motion
from carom.integrators.event_driven.balls import Balls
from carom.plotting.style import LINES, figure_style, save_figure
from carom.systems import (
    AbstractBoxedBalls,
    BallBox,
    Billiards,
    NewtonsCradle,
    fitting_radius,
)
from carom.types import State

Rows = list[dict[str, Any]]
STEP_SIZE = 0.01
"""Between samples, in seconds."""
BODIES, CONSERVATION_STEPS, DISSIPATION_STEPS = 20, 10_000, 500
CRADLE_SECONDS, CRADLE_STEPS = 4.0, (50, 100, 200, 400)
SUBSTEPS, COMPARED_STEPS = (1, 4, 16, 64), 40
"""Steps per sample of time-stepping schemes, and samples that are compared with the exact motion."""
TABLES: dict[str, AbstractBoxedBalls] = {
    "billiards": Billiards(radii=(0.1, 0.12, 0.08), ball_masses=(1.0, 2.0, 0.5), restitution=0.9),
    "box": BallBox(radii=(0.1, 0.12, 0.08), size=(1.0, 1.0), ball_masses=(1.0, 2.0, 0.5), restitution=0.9),
    "rough billiards": Billiards(radii=(0.1, 0.12, 0.08), restitution=0.8, friction=0.3),
    "rough box": BallBox(radii=(0.1, 0.12, 0.08), size=(1.0, 1.0), restitution=0.8, friction=0.3),
}
"""Three balls, for comparison with time-stepping schemes."""
STEPPED = ("billiards", "rough box")
"""Which of them the CD-Lagrange step takes."""
ENGINES: dict[Engine, tuple[str, ...]] = {"pymunk": tuple(TABLES), "mujoco": ("billiards", "box")}
"""Which of them an engine takes: MuJoCo has no Coulomb friction at one step."""
DIFFERENCE, DERIVATIVE_STEPS, LARGEST_DERIVATIVE = 1e-5, 20, 300.0
"""Step of the central differences; samples; derivatives beyond which such differences are too coarse."""
_SCENES = list(product((1, 2, 3), ("none", "gravity")))
"""Dimensions and fields."""


def random_table(
    dimension: int, field: str, seed: int, *, restitution: float = 1.0, friction: float = 0.0
) -> AbstractBoxedBalls:
    """A box of side 1 with balls of random masses and radii."""
    random = np.random.default_rng([seed, dimension, field == "gravity"])
    radius = fitting_radius(BODIES, (1.0,) * dimension, most=0.1, share=0.1)
    return (BallBox if field == "gravity" else Billiards)(
        size=(1.0,) * dimension,
        radii=tuple((radius * random.uniform(0.6, 1.2, BODIES)).tolist()),
        ball_masses=tuple(random.uniform(0.2, 5.0, BODIES).tolist()),
        restitution=restitution,
        friction=friction,
    )


def energies(table: AbstractBoxedBalls, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """The energy of every sample, above that of all balls on the floor."""
    masses = np.asarray(table.masses, float)
    energy = 0.5 * np.einsum("k,nkd->n", masses, velocity**2)
    if table.field is not None:
        energy = energy - np.einsum("k,d,nkd->n", masses, np.asarray(table.field, float), position)
    return energy


def overlap(table: AbstractBoxedBalls, position: np.ndarray) -> float:
    """How far bodies overlap each other or a wall at most, over all samples."""
    with jax.enable_x64(True):
        gaps = jax.jit(jax.vmap(lambda q: table.geometry.gap(q)))(jnp.asarray(position))
    return float(np.max(-np.asarray(gaps), initial=0.0))


def conservation(seeds: Sequence[int]) -> Rows:
    """Elastic and smooth balls: how far the energy drifts over many steps, free and under gravity."""
    rows = []
    for dimension, field in _SCENES:
        # One table with other starts: all of its scenes are one computation.
        table = random_table(dimension, field, seeds[0])
        starts = [table.random_start(seed=seed) for seed in seeds]
        motions = table.motions(
            jax.tree.map(lambda *parts: jnp.stack(parts), *starts),
            steps=CONSERVATION_STEPS,
            step_size=STEP_SIZE,
        )
        for scene, seed in enumerate(seeds):
            position, velocity = motions.position[:, scene], motions.velocity[:, scene]
            keys = {"experiment": "conservation", "dimension": dimension, "field": field, "seed": seed}
            energy = energies(table, position, velocity)
            drift = float(np.max(np.abs(energy - energy[0])) / abs(energy[0]))
            rows += tidy_rows(keys, {"energy_drift": drift, "overlap": overlap(table, position[::10])})
    return rows


def dissipation(seeds: Sequence[int]) -> Rows:
    """Any e ≤ 1 and μ, through heaps: the largest gain of energy between samples, overlap, momentum."""
    rows = []
    for (dimension, field), seed in product(_SCENES, seeds):
        random = np.random.default_rng([seed, 1])
        laws = {"restitution": float(random.uniform()), "friction": float(random.uniform(0, 2))}
        table = random_table(dimension, field, seed, **laws)
        start = table.random_start(seed=seed)
        motion = table.exact(start, np.arange(DISSIPATION_STEPS + 1) * STEP_SIZE)
        energy = energies(table, motion.position, motion.velocity)
        metrics = laws | {"energy_gain": float(np.max(np.diff(energy)) / energy[0])}
        metrics["overlap"] = overlap(table, motion.position)
        if field == "none":
            metrics["momentum_change"] = momentum_change(table, start)
        keys = {"experiment": "dissipation", "dimension": dimension, "field": field, "seed": seed}
        rows += tidy_rows(keys, metrics)
    return rows


def momentum_change(table: AbstractBoxedBalls, start: State) -> float:
    """Of the same balls far from all walls, on their way to the centre, relative to the sum of momenta."""
    far = replace(table, size=(100.0,) * len(table.size))
    inwards = State(start.position + 49.5, start.velocity - 2 * (start.position - 0.5))
    motion = far.exact(inwards, np.linspace(0, 1, DISSIPATION_STEPS + 1))
    momenta = np.asarray(table.masses)[:, None] * motion.velocity
    change = np.abs(momenta.sum(axis=1) - momenta[0].sum(axis=0)).max()
    return float(change / np.abs(momenta[0]).sum())


def convergence(seeds: Sequence[int]) -> Rows:
    """Errors against the step: the cradle by the constraint-exact step, tables by CD-Lagrange and engines."""
    cradle = NewtonsCradle()
    exact = cradle.exact(cradle.start, np.array([0.0, CRADLE_SECONDS])).position[-1]
    rows = []
    for steps in CRADLE_STEPS:
        step_size = CRADLE_SECONDS / steps
        motion = cradle.constraint_exact(cradle.start, steps=steps, step_size=step_size)
        keys = {"model": "constraint-exact", "system": "cradle", "step_size": step_size}
        error = float(np.abs(motion.position[-1] - exact).max())
        rows += tidy_rows({"experiment": "convergence"} | keys, {"error": error})
    for engine, systems in ENGINES.items():
        for system in systems:
            try:
                rows += distances(engine, system, seeds, partial(_by_engine, engine))
            except InputError as error:
                print(f"{engine} is left out: {error}")
    for system in STEPPED:
        rows += distances("CD-Lagrange", system, seeds, _by_scheme)
    return rows


def distances(
    model: str,
    system: str,
    seeds: Sequence[int],
    positions: Callable[[AbstractBoxedBalls, State, int], np.ndarray],
) -> Rows:
    """By steps per sample: the largest distance of any ball from its exact position, the median over seeds.

    Arguments:
        model: what moves the balls, for the rows.
        system: one of `TABLES`.
        positions: all samples, by the table, a start and a number of steps per sample.
    """
    table, times = TABLES[system], np.arange(COMPARED_STEPS + 1) * STEP_SIZE
    starts = [table.random_start(seed=seed) for seed in seeds]
    exact = [table.exact(start, times).position for start in starts]
    rows = []
    for substeps in SUBSTEPS:
        found = [positions(table, start, substeps) for start in starts]
        error = np.median([np.abs(one - truth).max() for one, truth in zip(found, exact, strict=True)])
        keys = {"experiment": "convergence", "model": model, "system": system}
        rows += tidy_rows(keys | {"step_size": STEP_SIZE / substeps}, {"error": float(error)})
    return rows


def _by_scheme(table: AbstractBoxedBalls, start: State, substeps: int) -> np.ndarray:
    motion = table.scheme(start, steps=COMPARED_STEPS * substeps, step_size=STEP_SIZE / substeps)
    return motion.position[::substeps]


def _by_engine(engine: Engine, table: AbstractBoxedBalls, start: State, substeps: int) -> np.ndarray:
    return engine_trajectory(
        table,
        start,
        steps=COMPARED_STEPS,
        step_size=STEP_SIZE,
        engine=engine,
        substeps=substeps,
        velocity_grid="half",
    ).position


def derivatives(seeds: Sequence[int]) -> Rows:
    """∂(last state)/∂(e, μ, masses, start) against central differences of fourth order.

    Left out, and counted, are scenes in which a neighbour in the differences has other impacts, grazing
    scenes, and those whose derivatives are too large for such differences.
    """
    rows = []
    for system, seed in product(("rough billiards", "rough box"), seeds):
        with jax.enable_x64(True):
            error = derivative_error(TABLES[system], seed)
        metrics = {"left_out": error is None} | ({} if error is None else {"error": error})
        rows += tidy_rows({"experiment": "derivatives", "system": system, "seed": seed}, metrics)
    return rows


def derivative_error(table: AbstractBoxedBalls, seed: int) -> float | None:
    """Relative to the largest derivative; None where a scene is left out."""
    balls, start = table.balls(), table.random_start(seed=seed)
    state = [jnp.asarray(np.asarray(part, float)).ravel() for part in (start.position, start.velocity)]
    parameters = jnp.concatenate([jnp.stack([balls.restitution, balls.friction]), balls.masses, *state])
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
    if bool(grazing) or size > LARGEST_DERIVATIVE:
        return None
    return float(np.abs(np.asarray(_derivative(balls, parameters)) - expected).max() / size)


@eqx.filter_jit
def _last_state(balls: Balls, parameters):
    count, dimension = balls.bodies, balls.normals.shape[1]
    restitution, friction, masses = parameters[0], parameters[1], parameters[2 : 2 + count]
    start = parameters[2 + count :].reshape(2, 1, count, dimension)
    changed = replace(balls, restitution=restitution, friction=friction, masses=masses)
    intervals = jnp.full((DERIVATIVE_STEPS,), 2 * STEP_SIZE)
    states, report = event_driven_motion(changed, State(start[0], start[1]), intervals, report="contacts")
    last = jnp.concatenate([states.position[-1].ravel(), states.velocity[-1].ravel()])
    return last, (report.contact, jnp.any(report.grazing))


@eqx.filter_jit
def _derivative(balls: Balls, parameters):
    return jax.jacfwd(lambda p: _last_state(balls, p)[0])(parameters)


def draw_errors_by_step(rows: pl.DataFrame) -> Figure:
    """Errors against the step: schemes and engines, with lines of the orders that theory has."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, rows, "cradle", {"constraint-exact": ("#000000", "o", "-")}, order=2)
    left.set(title="Cradle through four impacts", ylabel="error of the last angles / rad")
    styles = {
        "CD-Lagrange": (LINES["CD-Lagrange"].color, "s", "--"),
        "pymunk": (LINES["ResNet"].color, "^", ":"),
        "mujoco": (LINES["VIN"].color, "v", "-."),
    }
    _draw(right, rows, "billiards", styles, order=1)
    right.set(title="Three balls on a table, 0.4 s", ylabel="distance from the exact motion / m")
    return figure


def _draw(
    axes: Axes, rows: pl.DataFrame, system: str, styles: dict[str, tuple[str, str, str]], *, order: int
) -> None:
    steps: set[float] = set()
    for place, (model, (color, marker, dash)) in enumerate(styles.items()):
        chosen = rows.filter(
            pl.col("experiment") == "convergence", pl.col("model") == model, pl.col("system") == system
        ).sort("step_size", descending=True)
        sizes, errors = chosen["step_size"].to_numpy(), chosen["value"].to_numpy()
        steps.update(sizes)
        # Open, and smaller from curve to curve, so that those which coincide are all seen.
        size = 4 + 3 * (len(styles) - 1 - place)
        mark = {"marker": marker, "markersize": size, "markerfacecolor": "none"}
        axes.plot(sizes, errors, color=color, linestyle=dash, linewidth=0.8 + size / 8, **mark, label=model)
        if place == 0:
            # The guide runs a little below the errors.
            middle = len(sizes) // 2
            guide = 0.4 * errors[middle] * (sizes / sizes[middle]) ** order
            axes.plot(sizes, guide, color="#909090", linewidth=1.0, label=f"order {order}")
    axes.set(xscale="log", yscale="log", xlabel="step / s")
    # The steps themselves: labels between powers of ten run into each other.
    axes.set_xticks(sorted(steps), [f"{step:.3g}" for step in sorted(steps)])
    axes.set_xticks([], minor=True)
    axes.legend()


def main() -> None:
    """Measure everything, write the rows and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seeds", type=int, default=5, help="random scenes of each kind")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/mechanics.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/bodies/orders"))
    options = parser.parse_args()
    seeds = range(options.seeds)
    rows = [
        row for measure in (conservation, dissipation, convergence, derivatives) for row in measure(seeds)
    ]
    results = write_results(options.out, rows, command="python -m benchmarks.mechanics")
    with figure_style():
        save_figure(draw_errors_by_step(results.rows), options.figure)


if __name__ == "__main__":
    main()
