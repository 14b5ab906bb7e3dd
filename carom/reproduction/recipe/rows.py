"""What the recipe `carom` reaches, row by row, beside the oracle on the same data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from carom.data import Recording, add_noise, disturb_touch
from carom.data.recording import run_from_trajectory
from carom.errors import InputError
from carom.estimation import LatentFit, LatentSettings, Learned, Touch, TouchSensor, fit_latent_many
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.execution.tasks import Piece, run_pieces, unfinished
from carom.execution.workers import Tell
from carom.models import forecast
from carom.models.impact_network import Detection
from carom.reproduction.paper.published import published_motion
from carom.reproduction.paper.scores import held_out_forecasts, held_out_starts, single
from carom.storage.fingerprint import fingerprint
from carom.systems import AbstractSystem, BentBall, BouncingBall, NewtonsCradle, Pendulum
from carom.types import State, Trajectory

Truth = Literal["published", "exact"]
TOGETHER = 5
"""Seeds that are fitted as one batch on a processor."""
IMPERFECT = TouchSensor(missed=0.1, false=0.01, delay=1)


@dataclass(frozen=True)
class Row:
    """One line of the table: what is recorded, what is known, and what must come out.

    Arguments:
        title: for the table.
        system: the true mechanics.
        truth: which solution is recorded.
        touch: what is known of contacts.
        learned: the physical parameters that are estimated.
        start_given: whether the noise-free first state is known, as it is to the oracle and in scoring.
        velocities: whether velocities are recorded.
        runs: how many; several begin at starts drawn like the held-out ones, one at the system's own.
        oracle: whether the true equations are fitted too; a field without a closed solution takes too long.
        bound: the greatest mean error that is asked for.
        paper: what the paper reports, with touch.
    """

    title: str
    system: AbstractSystem
    truth: Truth = "exact"
    touch: Touch = "inferred"
    learned: Learned = Learned()  # noqa: RUF009 (frozen)
    start_given: bool = True
    velocities: bool = True
    step_size: float = 0.02
    steps: int = 519
    noise: float = 0.2
    runs: int = 1
    grid_stretch: float = 1.0
    detection: Detection = "arrival"
    oracle: bool = True
    bound: float | None = None
    paper: str = ""

    @property
    def settings(self) -> LatentSettings:
        return LatentSettings(
            touch=self.touch, sensor=IMPERFECT, learned=self.learned, detection=self.detection
        )

    def motion(self, system: AbstractSystem, start: State, steps: int | None = None) -> Trajectory:
        """The motion that is recorded, without noise; of the length of a forecast by default."""
        steps = self.steps if steps is None else steps
        if self.truth == "published":
            return published_motion(system, start, steps, self.step_size, grid_stretch=self.grid_stretch)
        return system.exact(start, np.arange(steps + 1) * self.step_size)

    def starts(self, seed: int) -> list[State]:
        """Where the runs of one seed begin."""
        if self.runs == 1:
            return [self.system.start]
        return held_out_starts(self.system, self.runs, seed=[seed, self.runs])

    def record(self, seed: int) -> tuple[Recording, Trajectory]:
        """The noisy recording of one seed, and the motion from the system's own start."""
        motion = self.motion(self.system, self.system.start)
        recorded = [self.motion(self.system, start) for start in self.starts(seed)]
        published_pair = self.truth == "published" and isinstance(self.system, NewtonsCradle)
        scene = self.system.scene(
            velocity_grid="sample" if self.truth == "published" else "half",
            projection="reference_point" if published_pair else "none",
        )
        clean = Recording(tuple(run_from_trajectory(r, scene) for r in recorded), self.step_size, scene)
        noisy = add_noise(clean, self.noise, seed=seed)
        if self.touch == "imperfect":
            noisy = disturb_touch(noisy, missed=0.1, false=0.01, shift=1, seed=seed)
        if not self.velocities:
            noisy = replace(noisy, runs=tuple(replace(run, velocity=None) for run in noisy.runs))
        return noisy, motion


_BALL = Row("Ball, e = 1 given, floor learned", BouncingBall(radius=0.01), bound=0.06, paper="1.9 ± 1.0")
_CRADLE = Row(
    "Cradle", NewtonsCradle(), learned=Learned(gap=False), step_size=0.01, steps=539, noise=0.02,
    bound=0.06, paper="0.4 ± 0.1",
)  # fmt: skip
_INELASTIC = Row(
    "Ball, e = 0.7 given", BouncingBall(radius=0.01, restitution=0.7), bound=0.3, paper="2.076 (no noise)"
)
_PENDULUM = Row("Pendulum", Pendulum(), steps=199, bound=0.1, paper="0.538")
_UNKNOWN = replace(
    _BALL, title="Ball, e unknown", learned=Learned(restitution="constant"), bound=None,
    start_given=False, paper="not attempted",
)  # fmt: skip

ROWS: dict[str, Row] = {
    **{
        f"ball.{truth}.{touch}": replace(_BALL, truth=truth, touch=touch)
        for truth in ("published", "exact")
        for touch in ("observed", "inferred", "imperfect")
    },
    "ball.exact.inferred.start-unknown": replace(_BALL, start_given=False),
    "ball.published.inferred.start-unknown": replace(_BALL, truth="published", start_given=False),
    "inelastic.exact.observed": replace(_INELASTIC, touch="observed"),
    "inelastic.exact.inferred": _INELASTIC,
    "cradle.exact.observed": replace(_CRADLE, touch="observed"),
    "cradle.exact.inferred": _CRADLE,
    "cradle.exact.inferred.start-unknown": replace(_CRADLE, start_given=False),
    "cradle.published.inferred": replace(_CRADLE, truth="published", detection="departure", bound=None),
    "pendulum.exact": _PENDULUM,
    "pendulum.published": replace(_PENDULUM, truth="published", grid_stretch=200 / 199),
    "pendulum.exact.start-unknown": replace(_PENDULUM, start_given=False),
    "unknown-e-0.7": replace(_UNKNOWN, system=BouncingBall(radius=0.01, restitution=0.7)),
    "unknown-e-0.95": replace(_UNKNOWN, system=BouncingBall(radius=0.01, restitution=0.95)),
    "unknown-e-1": _UNKNOWN,
    "bent": Row(
        "Ball in a bent potential, e = 0.8 unknown", BentBall(restitution=0.8),
        learned=Learned(restitution="constant"), start_given=False, noise=0.1, oracle=False,
        paper="not attempted",
    ),
    "positions.published": replace(
        _BALL, title="Ball, positions only", truth="published", velocities=False, bound=0.15,
        paper="not attempted",
    ),
    "positions.exact": replace(
        _BALL, title="Ball, positions only", velocities=False, bound=0.15, paper="not attempted"
    ),
    **{
        f"starts.{name}": replace(row, title=f"{row.title}, five starts", runs=5, bound=None)
        for name, row in (("ball", _BALL), ("cradle", _CRADLE), ("pendulum", _PENDULUM))
    },
}  # fmt: skip


def find_rows(names: Sequence[str]) -> dict[str, Row]:
    """The rows whose names begin with one of `names`; all where none is given."""
    unknown = [name for name in names if not any(key.startswith(name) for key in ROWS)]
    if unknown:
        raise InputError(f"There is no row {unknown[0]}; the names are {', '.join(ROWS)}.")
    return {key: row for key, row in ROWS.items() if not names or any(key.startswith(n) for n in names)}


def run_rows(
    rows: dict[str, Row],
    seeds: Sequence[int],
    folder: Path,
    *,
    workers: int = 1,
    progress: Tell | None = None,
) -> dict[str, dict[str, Any]]:
    """Run what is not yet in `folder`; a killed run continues here."""
    # A processor core spends no less on a large batch, and small ones are easier to share out.
    together = TOGETHER if jax.default_backend() == "cpu" else len(seeds)
    groups = [tuple(seeds[first : first + together]) for first in range(0, len(seeds), together)]
    pieces = [_piece(name, row, group, folder) for name, row in rows.items() for group in groups]
    found = run_pieces(pieces, workers=workers, progress=progress)
    return {
        name: _joined(found[index * len(groups) : (index + 1) * len(groups)])
        for index, name in enumerate(rows)
    }


def _piece(name: str, row: Row, seeds: tuple[int, ...], folder: Path) -> Piece:
    path = folder / f"{name}.seeds-{seeds[0]}-{seeds[-1]}.json"
    function = partial(_run_row, row, seeds, unfinished(path))
    return Piece(path, fingerprint(row, seeds), function, row.steps * row.runs * len(seeds))


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result from those of groups of seeds."""
    return {**parts[0], "rows": [line for part in parts for line in part["rows"]]}


def _run_row(row: Row, seeds: tuple[int, ...], checkpoints: Path, tell: Tell) -> dict[str, Any]:
    recorded = [row.record(seed) for seed in seeds]
    truth = recorded[0][1]
    starts = [row.starts(seed) for seed in seeds] if row.start_given else None
    recordings = [recording for recording, _ in recorded]
    fits = fit_latent_many(recordings, row.settings, starts=starts, seeds=seeds, checkpoints=checkpoints)
    tell(0.7)
    others = held_out_starts(row.system, 50 if row.oracle else 5)
    held_out = [row.motion(row.system, start) for start in others]
    lines = []
    for done, (seed, fit, (recording, _)) in enumerate(zip(seeds, fits, recorded, strict=True)):
        line = {"seed": seed, **_score(row, fit, truth, others, held_out)}
        if row.oracle:
            line |= _oracle(row, seed, recording, truth, others, held_out)
        lines.append(line)
        tell(0.7 + 0.3 * done / len(seeds))
    return {
        "title": row.title,
        "truth": row.truth,
        "touch": row.touch,
        "start_given": row.start_given,
        "velocities": row.velocities,
        "noise": row.noise,
        "bound": row.bound,
        "paper": row.paper,
        "rows": lines,
    }


def _score(row: Row, fit: LatentFit, truth: Trajectory, others, held_out) -> dict[str, Any]:
    predicted = forecast(fit.model, single(row.system.start), row.steps)
    errors, mistimed = held_out_forecasts(fit.model, others, held_out)
    result: dict[str, Any] = {
        "scheme": fit.model.scheme,
        "paper_rmse": paper_rmse(predicted, truth),
        "held_out_median": float(np.median(errors)),
        "held_out_mistimed": mistimed,
        "noise": list(fit.noise),
        "seconds": fit.seconds,
        "by_gap_alone": fit.free,
        "failed": fit.failed,
        "misfit": list(fit.misfit.messages),
        "parameters": [
            {"name": p.name, "value": p.value, "error": p.standard_error, "low": p.low, "high": p.high}
            for p in fit.parameters
        ],
    }
    if truth.contact.shape[1]:
        touching = np.asarray(predicted.contact[:, 0]) > 0.5
        score = contact_score(touching, truth.contact[:, 0])
        result |= {
            "impacts": score.true_events,
            "mistimed": score.mistimed,
            "missed": score.missed,
            "spurious": score.spurious,
        }
    result |= _slope(row, fit, truth)
    return result


def _slope(row: Row, fit: LatentFit, truth: Trajectory) -> dict[str, float]:
    """The error of ∂U/∂q over the samples, as a share of its range there."""
    places = jax.numpy.asarray(truth.position, "float32")
    learned = np.asarray(jax.vmap(fit.model.slope)(places))
    true = np.asarray(jax.vmap(jax.grad(row.system.potential))(places))
    span = max(float(np.ptp(true)), 1e-9)
    away = np.abs(learned - true)
    # A flat force has no range; its size stands in.
    scale = span if span > 1e-3 * np.abs(true).max() else float(np.abs(true).max())
    return {
        "slope_rmse_share": float(np.sqrt(np.mean(away**2)) / scale),
        "slope_95_share": float(np.quantile(away, 0.95) / scale),
    }


def _oracle(row: Row, seed: int, recording: Recording, truth: Trajectory, others, held_out) -> dict[str, Any]:
    """The true equations with gravity fitted, on the same recording and from the same starts.

    Where the learner has to find the floor, there is also an oracle that has to.
    """
    gravity: dict[str, tuple[float, float]] = {"gravity": (9.6, 10.0)}

    def fitted(bounds: dict[str, tuple[float, float]]) -> AbstractSystem:
        return fit_oracle(
            row.system, recording, bounds=bounds, starts=row.starts(seed), solve=row.motion, grid=17
        ).system

    def median_error(system: AbstractSystem) -> float:
        pairs = zip(others, held_out, strict=True)
        return float(np.median([paper_rmse(row.motion(system, start), motion) for start, motion in pairs]))

    oracle = fitted(gravity)
    result = {
        "oracle": paper_rmse(row.motion(oracle, row.system.start), truth),
        "oracle_held_out_median": median_error(oracle),
    }
    if isinstance(row.system, BouncingBall) and row.learned.gap and row.truth == "exact":
        without_floor = fitted(gravity | {"radius": (-0.15, 0.15)})
        result["oracle_without_floor_held_out_median"] = median_error(without_floor)
    return result
