"""What can be learned from 800 short glimpses of five balls in a box: restitution, and ratios of masses.

The set-up is that of DiffCoSim (2021): radius 0.1, a unit box, 800 chunks of 5 steps of 0.01 s, noise on
positions and velocities.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from carom.data import Recording, Run, add_noise
from carom.estimation import LatentFit, LatentSettings, Learned, fit_latent
from carom.evaluation.ball_oracle import fit_ball_oracle
from carom.execution.tasks import Piece
from carom.execution.workers import Tell
from carom.storage.fingerprint import fingerprint
from carom.systems import BallBox, Billiards
from carom.types import State

CHUNKS, STEPS, STEP_SIZE = 800, 5, 0.01
REPEATS = 3
"""Seeds that are used at most, the first ones."""
MASSES = (1.0, 2.0, 6.0, 8.0, 10.0)
RESTITUTION_FIT = LatentSettings(
    learned=Learned(restitution="constant", laws="one", gap=False),
    scheme="constraint_exact",
    field="none",
    hidden=1,
    starts=1,
)
"""Told are the radii, the walls, the masses and that the table is level; not e, the starts or the noise."""
MASS_FIT = replace(RESTITUTION_FIT, learned=replace(RESTITUTION_FIT.learned, masses=True))
"""Told are the radii, the walls and that the table is level."""


@dataclass(frozen=True)
class LearningRow:
    """One thing to learn.

    Arguments:
        quantity: "restitution", whose error is absolute, or "masses", whose errors are relative.
        bound: what the error must not exceed.
        peer: what DiffCoSim has learned, where that is published.
    """

    name: str
    quantity: str
    restitution: float
    noise: float
    bound: float
    peer: float | None = None

    @property
    def system(self) -> Billiards:
        masses = MASSES if self.quantity == "masses" else ()
        return Billiards(restitution=self.restitution, ball_masses=masses)

    @property
    def settings(self) -> LatentSettings:
        return MASS_FIT if self.quantity == "masses" else RESTITUTION_FIT


ROWS = (
    LearningRow("restitution-1-noise-0.01", "restitution", 1.0, 0.01, 0.01, peer=0.927),
    LearningRow("restitution-0.8-noise-0.01", "restitution", 0.8, 0.01, 0.01),
    LearningRow("restitution-0.5-noise-0.01", "restitution", 0.5, 0.01, 0.01),
    LearningRow("restitution-1-noise-0.05", "restitution", 1.0, 0.05, 0.02, peer=0.037),
    LearningRow("restitution-0.8-noise-0.05", "restitution", 0.8, 0.05, 0.02),
    LearningRow("restitution-0.5-noise-0.05", "restitution", 0.5, 0.05, 0.02),
    LearningRow("masses-noise-0", "masses", 1.0, 0.0, 0.01),
    LearningRow("masses-noise-0.01", "masses", 1.0, 0.01, 0.05),
)


def learning_pieces(seeds: Sequence[int], folder: Path) -> list[Piece]:
    """The work, each row kept in a file of the folder."""
    seeds = tuple(seeds[:REPEATS])
    return [
        Piece(
            folder / f"learning.{row.name}.json",
            fingerprint("learning", row, row.settings, CHUNKS, STEPS, STEP_SIZE, seeds),
            partial(learn_row, row, seeds),
            cost=len(seeds) * (2.0 if row.quantity == "masses" else 1.0),
        )
        for row in ROWS
    ]


def learn_row(row: LearningRow, seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """One fit per seed, each with starts and noise of its own, beside the oracle."""
    lines = []
    for number, seed in enumerate(seeds):
        recording, starts = glimpses(row.system, seed=seed, noise=row.noise)
        # The scene tells a learner what is stated; of what it is to find it has a default.
        told = replace(recording.scene, restitution=1.0, masses=()) if recording.scene else None
        assert told is not None
        fit = fit_latent(recording.with_scene(told), row.settings)
        lines.append({"seed": seed, **_found(row, fit), **_oracle(row, recording, starts)})
        tell((number + 1) / len(seeds))
    return {"row": asdict(row), "rows": lines}


def glimpses(
    system: Billiards | BallBox,
    *,
    seed: int,
    noise: float,
    chunks: int = CHUNKS,
    steps: int = STEPS,
    step_size: float = STEP_SIZE,
) -> tuple[Recording, State]:
    """Short runs from random starts, and these starts: every seed has starts and noise of its own."""
    random = np.random.default_rng(seed)
    each = [system.random_start(int(number)) for number in random.integers(0, 2**31, chunks)]
    starts = jax.tree.map(lambda *parts: jnp.asarray(np.stack([np.asarray(x) for x in parts])), *each)
    motions = system.motions(starts, steps=steps, step_size=step_size)
    time = step_size * np.arange(steps + 1)
    runs = tuple(
        Run(time, motions.position[:, chunk], motions.velocity[:, chunk], None) for chunk in range(chunks)
    )
    return add_noise(Recording(runs, step_size, system.scene()), noise, seed=seed), starts


def _found(row: LearningRow, fit: LatentFit) -> dict[str, Any]:
    values = {parameter.name: parameter for parameter in fit.parameters}
    chosen = [
        name for name in values if name.startswith("mass" if row.quantity == "masses" else row.quantity)
    ]
    truth = np.array(MASSES[1:]) if row.quantity == "masses" else np.array([row.restitution])
    estimates = np.array([_number(values[name].value) for name in chosen])
    errors = np.abs(estimates - truth) / (truth if row.quantity == "masses" else 1)
    intervals = [(_number(values[name].low), _number(values[name].high)) for name in chosen]
    return {
        "estimates": estimates.tolist(),
        "standard_errors": [_number(values[name].standard_error) for name in chosen],
        "covered": [bool(low <= true <= high) for (low, high), true in zip(intervals, truth, strict=True)],
        "error": float(np.max(errors)),
        "impacts": int(sum(found.chosen.sum() for found in fit.impacts)),
        "set_aside": int(sum(not found.explained for found in fit.impacts)),
        "noise": list(fit.noise),
        "seconds": fit.seconds,
    }


def _oracle(row: LearningRow, recording: Recording, starts: State) -> dict[str, Any]:
    """The true equations and the true starts, with only these parameters fitted."""

    def with_restitution(values: np.ndarray) -> Billiards:
        return replace(row.system, restitution=float(np.clip(values[0], 0, 1)))

    def with_masses(values: np.ndarray) -> Billiards:
        return replace(row.system, ball_masses=(1.0, *np.exp(values).tolist()))

    make: Callable[[np.ndarray], Billiards] = with_restitution
    truth, shown = np.array([row.restitution]), lambda values: np.clip(values, 0, 1)
    if row.quantity == "masses":
        make, truth, shown = with_masses, np.log(MASSES[1:]), np.exp
    found = shown(fit_ball_oracle(make, truth, recording, starts))
    errors = np.abs(found - shown(truth)) / (shown(truth) if row.quantity == "masses" else 1)
    return {"oracle": found.tolist(), "oracle_error": float(np.max(errors))}


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
