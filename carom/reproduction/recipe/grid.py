"""How far each learner gets with the ball: noise × amount of data × touch, and the oracle beside them.

Every learner has the same recordings: exact truth, e = 1 given, dropped from 10 m, ended at the top of the
flight after the last bounce. None is told the start state, the floor or the noise; the oracle, which fits
gravity alone to the true equations, is told start and floor. All forecasts are of one length, from the true
start and from starts that were not recorded.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from carom.data import Recording
from carom.errors import InputError
from carom.estimation import LatentFit, Parameter, Touch, fit_latent_many
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.evaluation.metrics import Motion
from carom.execution.tasks import Piece, Result, run_pieces, unfinished
from carom.execution.workers import Tell
from carom.models import MODELS, AbstractModel, Forecast, forecast_many
from carom.reproduction.paper.experiments import EXPERIMENTS
from carom.reproduction.paper.scores import HELD_OUT_STARTS, held_out_starts, single
from carom.reproduction.recipe.rows import ROWS, Row
from carom.storage.fingerprint import fingerprint
from carom.systems import AbstractSystem, BouncingBall
from carom.training import TrainingSettings, train_many
from carom.types import State, Trajectory

NOISES = (0.0, 0.05, 0.2, 0.5, 1.0)
BOUNCES = (1, 2, 5, 20)
QUICK_NOISES, QUICK_BOUNCES, QUICK_STEPS, QUICK_STARTS = (0.0, 0.2), (1, 2), 200, 5
FORECAST_STEPS = 519
"""Length of every forecast; four bounces from the recorded start."""
TRAINING_STEPS = 10_000
"""Updates of the weights by the paper's recipe, whose own runs have 48 000: the same for all recordings."""
_BALL = ROWS["ball.exact.inferred.start-unknown"]
_PAPER = EXPERIMENTS["ball"]

Recipe = Literal["carom", "paper", "oracle"]


class Learner(NamedTuple):
    """A panel of the heat map: a recipe, the touch readings it has, and for the paper's its model."""

    title: str
    recipe: Recipe
    touch: Touch
    model: str = ""
    """In the paper's experiment with the ball."""


LEARNERS: dict[str, Learner] = {
    "carom-observed": Learner("recipe carom, touch observed", "carom", "observed"),
    "carom-imperfect": Learner("recipe carom, touch imperfect", "carom", "imperfect"),
    "carom-inferred": Learner("recipe carom, touch inferred", "carom", "inferred"),
    "oracle": Learner("oracle: true equations, g fitted", "oracle", "inferred"),
    "cd-lagrange": Learner("paper's recipe, touch observed", "paper", "observed", "CD-Lagrange"),
    "cd-lagrange-no-touch": Learner(
        "paper's recipe, no touch", "paper", "inferred", "CD-Lagrange (no touch)"
    ),
    "resnet": Learner("ResNet", "paper", "inferred", "ResNet"),
    "resnet-contact": Learner("ResNetContact, touch observed", "paper", "observed", "ResNetContact"),
}


@dataclass(frozen=True)
class Cell:
    """One learner with recordings of so many bounces and so much noise.

    Arguments:
        learner: name in `LEARNERS`.
        noise: standard deviation on positions (m) and velocities (m/s).
        bounces: in every recording.
        training_steps: updates of the weights by the paper's recipe.
        held_out: starts that were not recorded.
    """

    learner: str
    noise: float
    bounces: int
    training_steps: int = TRAINING_STEPS
    held_out: int = HELD_OUT_STARTS

    @property
    def row(self) -> Row:
        """What is recorded."""
        touch = LEARNERS[self.learner].touch
        return replace(_BALL, touch=touch, noise=self.noise, steps=recorded_steps(self.bounces))

    @property
    def training(self) -> TrainingSettings:
        """The paper's recipe as in the authors' code, for as many epochs as `training_steps` make."""
        settings = _PAPER.settings("published", LEARNERS[self.learner].model)
        windows = self.row.steps + 1 - settings.horizon
        return replace(
            settings, epochs=max(1, round(self.training_steps / math.ceil(windows / settings.batch_size)))
        )

    @property
    def cost(self) -> float:
        """Work per seed, about in seconds of one core."""
        recipe = LEARNERS[self.learner].recipe
        if recipe == "paper":
            return self.training_steps / 1000
        return self.row.steps / (50 if recipe == "carom" else 1000)

    def piece(self, seeds: Sequence[int], folder: Path) -> Piece:
        """The work to do, kept in a file of the folder."""
        learner = LEARNERS[self.learner]
        settings = self.training if learner.recipe == "paper" else self.row.settings
        path = folder / f"{self.learner}.noise-{self.noise:g}.bounces-{self.bounces}.json"
        return Piece(
            path,
            fingerprint(self, learner._asdict(), self.row, settings, FORECAST_STEPS, tuple(seeds)),
            partial(_run_cell, self, tuple(seeds), unfinished(path)),
            self.cost,
        )


def recorded_steps(bounces: int) -> int:
    """Steps to the top of the flight that follows the last of `bounces`.

    Example:
        >>> [recorded_steps(bounces) for bounces in (1, 2, 20)]
        [143, 285, 2854]
    """
    system = _BALL.system
    assert isinstance(system, BouncingBall)
    fall = math.sqrt(2 * (float(system.start.position[0, 0]) - system.radius) / system.gravity)
    return round(2 * bounces * fall / _BALL.step_size)


def plan_grid(names: Sequence[str] = (), *, quick: bool = False) -> list[Cell]:
    """The cells of the learners whose names begin with one of `names`, all where none is given.

    A quick grid has few cells, few starts and hardly any training: to see that everything works.
    """
    unknown = [name for name in names if not any(learner.startswith(name) for learner in LEARNERS)]
    if unknown:
        raise InputError(f"There is no learner {unknown[0]}; the names are {', '.join(LEARNERS)}.")
    changes = {"training_steps": QUICK_STEPS, "held_out": QUICK_STARTS} if quick else {}
    return [
        Cell(learner, noise, bounces, **changes)
        for learner in LEARNERS
        if not names or any(learner.startswith(name) for name in names)
        for bounces in (QUICK_BOUNCES if quick else BOUNCES)
        for noise in (QUICK_NOISES if quick else NOISES)
    ]


def run_grid(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    folder: Path,
    *,
    workers: int = 1,
    progress: Tell | None = None,
) -> list[Result]:
    """Run the cells that are not yet in `folder`, all seeds of one together; a killed run continues here."""
    pieces = [cell.piece(seeds, folder) for cell in cells]
    return run_pieces(pieces, workers=workers, progress=progress)


class _Job(NamedTuple):
    """What a learner of one cell is given."""

    cell: Cell
    recordings: list[Recording]
    seeds: Sequence[int]
    starts: list[State]
    checkpoints: Path
    tell: Tell


class _Fitted(NamedTuple):
    """What one seed forecasts from every start, and what is to be said of its fit."""

    forecasts: list[Motion]
    details: dict[str, Any]


def _run_cell(cell: Cell, seeds: tuple[int, ...], checkpoints: Path, tell: Tell) -> Result:
    row = cell.row
    recordings = [row.record(seed)[0] for seed in seeds]
    starts = [single(row.system.start), *held_out_starts(row.system, cell.held_out)]
    truths = [_motion(row.system, start) for start in starts]
    fitted = _RECIPES[LEARNERS[cell.learner].recipe](_Job(cell, recordings, seeds, starts, checkpoints, tell))
    return {
        "learner": cell.learner,
        "noise": cell.noise,
        "bounces": cell.bounces,
        "steps": row.steps,
        "rows": [
            {"seed": seed, **_score(forecasts, truths), **details}
            for seed, (forecasts, details) in zip(seeds, fitted, strict=True)
        ],
    }


def _by_carom(job: _Job) -> list[_Fitted]:
    fits = fit_latent_many(
        job.recordings, job.cell.row.settings, seeds=job.seeds, checkpoints=job.checkpoints
    )
    return [
        _Fitted(
            _forecasts(fit.model, job.starts),
            {
                "failed": fit.failed,
                "found_bounces": int(sum(impacts.chosen.sum() for impacts in fit.impacts)),
                "by_gap_alone": fit.free,
                "scheme": fit.model.scheme,
                "fitted_noise": list(fit.noise),
                "misfit": list(fit.misfit.messages),
                "floor": floor.value,
                "floor_error": floor.standard_error,
                "seconds": fit.seconds,
            },
        )
        for fit in fits
        for floor in [_floor(fit)]
    ]


def _floor(fit: LatentFit) -> Parameter:
    (floor,) = (parameter for parameter in fit.parameters if parameter.name.startswith("surface"))
    return floor


def _by_paper(job: _Job) -> list[_Fitted]:
    settings = job.cell.training
    name = LEARNERS[job.cell.learner].model
    kind, options = MODELS[_PAPER.trained[name].model], _PAPER.options("published", name)
    models = [
        kind.for_recording(recording, key=jax.random.key(seed), **options)
        for recording, seed in zip(job.recordings, job.seeds, strict=True)
    ]
    fits = train_many(
        models, job.recordings, settings, seeds=job.seeds, progress=job.tell, checkpoints=job.checkpoints
    )
    return [
        _Fitted(
            _forecasts(fit.model, job.starts),
            {"failed": fit.failed, "epochs": settings.epochs, "seconds": fit.seconds / len(fits)},
        )
        for fit in fits
    ]


def _by_oracle(job: _Job) -> list[_Fitted]:
    row, found = job.cell.row, []
    for recording in job.recordings:
        fit = fit_oracle(row.system, recording, bounds={"gravity": (9.0, 10.6)}, solve=row.motion)
        found.append(_Fitted([_motion(fit.system, start) for start in job.starts], fit.parameters))
        job.tell(len(found) / len(job.recordings))
    return found


_RECIPES: dict[Recipe, Callable[..., list[_Fitted]]] = {
    "carom": _by_carom,
    "paper": _by_paper,
    "oracle": _by_oracle,
}


def _forecasts(model: AbstractModel, starts: list[State]) -> list[Motion]:
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    together = jax.tree.map(np.asarray, forecast_many(model, stacked, FORECAST_STEPS))
    return [Forecast(*(part[index] for part in together)) for index in range(len(starts))]


def _motion(system: AbstractSystem, start: State) -> Trajectory:
    """The exact motion over the length of a forecast."""
    return replace(_BALL, steps=FORECAST_STEPS).motion(system, start)


def scheme_error() -> float:
    """What the CD-Lagrange step, which the paper's network has, costs with the true gravity and floor."""
    scheme = _BALL.system.scheme(_BALL.system.start, steps=FORECAST_STEPS, step_size=_BALL.step_size)
    return paper_rmse(scheme, _motion(_BALL.system, _BALL.system.start))


def _score(forecasts: Sequence[Motion], truths: Sequence[Motion]) -> dict[str, Any]:
    """Scores from the recorded start, which comes first, and the median error from the others."""
    error, *others = [paper_rmse(one, truth) for one, truth in zip(forecasts, truths, strict=True)]
    bounces = contact_score(rises(forecasts[0]), rises(truths[0]))
    return {
        "paper_rmse": error,
        "held_out_median": float(np.median(others)),
        "forecast_bounces": bounces.true_events,
        "mistimed": bounces.mistimed,
        "missed": bounces.missed,
        "spurious": bounces.spurious,
    }


def rises(motion: Motion) -> Bool[np.ndarray, "samples"]:
    """Samples at which the ball has begun to rise, which is a bounce, whether a model knows contacts or not.

    Example:
        >>> motion = _BALL.system.exact(_BALL.system.start, np.arange(100) * 0.02)
        >>> bool((rises(motion) == motion.contact[:, 0]).all())
        True
    """
    velocity = np.asarray(motion.velocity)[:, 0, 0]
    return np.concatenate([[False], (velocity[:-1] < 0) & (velocity[1:] > 0)])
