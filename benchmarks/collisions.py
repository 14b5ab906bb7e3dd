"""Velocities after measured collisions that were not learned from: Carom beside regression.

    python -m benchmarks.collisions --data DIRECTORY --splits 5

Collisions of riders on an air track and of pucks on an air table, one per run (docs/measured.md says which;
the recordings are no part of the repository). Two thirds of the runs of a series, chosen at random, are
learned from: by `--learn auto`, from the recordings; and by regression, from the velocities that straight
lines through 0.1 s before and after the contact have (`runs.csv`): restitution constant, linear and
logarithmic in the closing speed, and on the table Coulomb's friction or a constant ratio of tangential
velocities. The relative velocities after the collisions of the other runs are predicted from those before,
and compared with those of such lines.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
import polars as pl

import carom
from carom.data import Recording, Run
from carom.estimation import around_impact
from carom.evaluation.results import tidy_rows, write_results
from carom.mechanics import Pair, Scene
from carom.textbook.model import Law, speed_term
from carom.textbook.regression import regress_restitution, regress_tangential

TRACK = ("rubber", "metal", "pucks_momentum", "pucks_energy")
TABLE = {
    "table, rubber band": ("Vidar-Petersson: pucks, rubber band on A",),
    "table, springs": ("Schitrus: S6", "Schitrus: S7", "Schitrus: S8", "Schitrus: S9"),
}
BEFORE_AND_AFTER, MASK = 0.13, 15
"""Seconds on either side of a collision that are used, and samples next to it that are not."""
SHARE = 2 / 3
"""Of the runs that are learned from."""


class Collisions(NamedTuple):
    """Relative velocities of one collision per run, along the normal and across it."""

    run: np.ndarray
    closing: np.ndarray
    leaving: np.ndarray
    slip_before: np.ndarray
    slip_after: np.ndarray


def read_series(data: Path) -> dict[str, Recording]:
    """The recordings of every series, around their collisions."""
    track = pl.read_csv(data / "air_track/recordings.csv")
    bumpers = pl.read_csv(data / "air_track/runs.csv")
    table = pl.read_parquet(data / "air_table/recordings.parquet")
    pucks = pl.read_csv(data / "air_table/runs.csv")
    found = {}
    for name in TRACK:
        known = bumpers.filter(bumper=name)
        found[name] = _recording(track, known["run"].to_list(), (("x_b",), ("x_a",)), (1.0, 1.0))
    for name, series in TABLE.items():
        known = pucks.filter(pl.col("series").is_in(series))
        masses = float(known["mass_a"].mean()), float(known["mass_b"].mean())  # pyright: ignore
        found[name] = _recording(table, known["run"].to_list(), (("x_a", "y_a"), ("x_b", "y_b")), masses)
    return found


def _recording(frame: pl.DataFrame, runs: Sequence[int], columns, masses: tuple[float, float]) -> Recording:
    parts = []
    for number in runs:
        own = frame.filter(run=number).sort("t")
        position = np.stack([own.select(body).to_numpy() for body in columns], axis=1)
        parts.append(Run(own["t"].to_numpy(), position, label=str(number)))
    dimension = len(columns[0])
    scene = Scene(2, dimension, (Pair(0, 1, 0.05 if dimension > 1 else 0.0),), masses, restitution=0.5)
    step = float(np.median(np.diff(parts[0].time)))
    return around_impact(Recording(tuple(parts), step, scene), BEFORE_AND_AFTER, mask=MASK)


def read_collisions(data: Path, name: str) -> Collisions:
    """The relative velocities of a series by straight lines, with the labels of the runs."""
    if name in TRACK:
        known = pl.read_csv(data / "air_track/runs.csv").filter(bumper=name)
        closing, e = (known[column].to_numpy() for column in ("closing_speed_m_s", "restitution_line_fit"))
        return Collisions(known["run"].cast(pl.String).to_numpy(), closing, e * closing, 0 * e, 0 * e)
    known = pl.read_csv(data / "air_table/runs.csv").filter(pl.col("series").is_in(TABLE[name]))
    closing, opening, before, after = (
        known[column].to_numpy() for column in ("vn_pre", "vn_post", "vt_pre", "vt_post")
    )
    return Collisions(known["run"].cast(pl.String).to_numpy(), closing, -opening, before, after)


def by_regression(
    known: Collisions, new: Collisions, law: Law, *, sliding: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Normal and tangential velocities after new collisions."""
    terms, _ = regress_restitution(known.closing, known.leaving, law)
    within = np.clip(new.closing, known.closing.min(), known.closing.max())
    e = np.clip(terms[0] + terms[1] * speed_term(within, law), 0, 1)
    change = known.closing + known.leaving
    kept, _ = regress_tangential(
        known.slip_before[:, None], known.slip_after[:, None], change, sliding=sliding
    )
    return e * new.closing, _slip(new, e, kept, sliding=sliding)


def _slip(new: Collisions, e: np.ndarray, kept: float, *, sliding: bool) -> np.ndarray:
    before = new.slip_before
    if not sliding:
        return kept * before
    return before * (1 - np.minimum(kept * (1 + e) * new.closing / np.maximum(np.abs(before), 1e-300), 1))


def by_carom(recording: Recording, new: Collisions, seed: int) -> tuple[np.ndarray, np.ndarray, str]:
    """The same by a fit, and what it learned."""
    fit = carom.fit(recording, settings=carom.Settings(learn=("auto",), mask=MASK), seed=seed)
    rates = jnp.asarray(-new.closing, jnp.float32)[:, None]
    e = np.array([float(fit.model.restitution_at(rate)[0]) for rate in rates])
    friction = fit.model.friction_coefficient()
    slip = new.slip_before if friction is None else _slip(new, e, float(friction[0]), sliding=True)
    return e * new.closing, slip, ", ".join(fit.settings.learn)


def error(new: Collisions, leaving: np.ndarray, slip: np.ndarray) -> float:
    """Root mean square of a component of the relative velocity after a collision."""
    squares = np.sum((leaving - new.leaving) ** 2) + np.sum((slip - new.slip_after) ** 2)
    return float(np.sqrt(squares / (len(leaving) * (2 if new.slip_before.any() else 1))))


def score(name: str, recording: Recording, collisions: Collisions, seed: int) -> list[dict[str, Any]]:
    """The rows of a split."""
    order = np.random.default_rng([seed, len(recording.runs)]).permutation(len(recording.runs))
    learned = np.sort(order[: round(SHARE * len(order))])
    training = Recording(tuple(recording.runs[i] for i in learned), recording.step_size, recording.scene)
    inside = np.isin(collisions.run, [str(run.label) for run in training.runs])
    known, new = (Collisions(*(part[rows] for part in collisions)) for rows in (inside, ~inside))
    keys = {"experiment": "collisions", "series": name, "seed": seed}
    rows = []
    for law in get_args(Law):
        for sliding in (False, True) if recording.dimension > 1 else (False,):
            tangential = (", friction" if sliding else ", ratio") if recording.dimension > 1 else ""
            value = error(new, *by_regression(known, new, law, sliding=sliding))
            metrics = {"velocity_error": value, "collisions": len(new.run)}
            rows += tidy_rows(keys | {"model": f"{law} e{tangential}"}, metrics)
    began = time.perf_counter()
    leaving, slip, terms = by_carom(training, new, seed)
    metrics = {"velocity_error": error(new, leaving, slip), "seconds": time.perf_counter() - began}
    rows += tidy_rows(keys | {"model": "carom"}, metrics)
    errors = [row for row in rows if row["metric"] == "velocity_error"]
    listed = ", ".join(f"{row['model']} {row['value']:.4f}" for row in errors)
    print(f"{name}, split {seed}, with {terms}: {listed}", flush=True)
    return rows


def main() -> None:
    """Score all series and write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--series", nargs="+", choices=[*TRACK, *TABLE], default=[*TRACK, *TABLE])
    parser.add_argument("--parts", type=Path, default=Path("collisions"), help="folder of finished splits")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/collisions.json"))
    options = parser.parse_args()
    carom.configure()
    options.parts.mkdir(parents=True, exist_ok=True)
    recordings, rows = read_series(options.data), []
    for name in options.series:
        collisions = read_collisions(options.data, name)
        for seed in range(options.splits):
            file = options.parts / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}.json"
            if not file.exists():
                file.write_text(json.dumps(score(name, recordings[name], collisions, seed)))
            rows += json.loads(file.read_text())
    results = write_results(options.out, rows, command="python -m benchmarks.collisions")
    errors = results.rows.filter(metric="velocity_error").group_by("series", "model", maintain_order=True)
    print(errors.agg(pl.col("value").mean().alias("error"), pl.col("value").std().alias("spread")))


if __name__ == "__main__":
    main()
