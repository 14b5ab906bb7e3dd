"""A model learned on some balls, in one box and at one step, asked for others: beside one trained in place.

Balls fall in a box. The field and restitution are learned from short glimpses; forecasts are judged
by exact physics, from starts that were never seen.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from carom.estimation import LatentSettings, Learned, fit_latent
from carom.evaluation import paper_rmse, position_rmse
from carom.execution.tasks import Piece
from carom.execution.workers import Tell
from carom.models import ImpactNetwork, forecast, in_scene
from carom.reproduction.bodies.learning import glimpses
from carom.storage.fingerprint import fingerprint
from carom.systems import BallBox
from carom.types import State

CHUNKS, NOISE, SECONDS, STARTS = 400, 0.01, 0.4, 40
"""Glimpses to learn from and their noise; how long a forecast lasts, and from how many starts."""
REPEATS = 1
"""Seeds that are used at most, the first ones; every setting takes a fit of its own."""
SETTINGS = LatentSettings(
    learned=Learned(restitution="constant", laws="kind", gap=False),
    scheme="constraint_exact",
    hidden=8,
    starts=1,
)
"""Told are the radii and the walls; not the field, nor the restitution of walls and of pairs."""


@dataclass(frozen=True)
class Setting:
    """Balls in a box, recorded at a step."""

    balls: int
    size: tuple[float, ...] = (1.0, 1.0)
    step_size: float = 0.01

    @property
    def system(self) -> BallBox:
        return BallBox(size=self.size, radii=(0.1,) * self.balls, restitution=0.9, gravity=2.0)


FIVE = Setting(5)
TRANSFERS: dict[str, tuple[Setting, Setting]] = {
    "two balls to five": (Setting(2), FIVE),
    "one box to a smaller one": (FIVE, replace(FIVE, size=(0.8, 0.9))),
    "one box to a wider one": (FIVE, replace(FIVE, size=(1.6, 0.8))),
    "h to h over 4": (FIVE, replace(FIVE, step_size=0.0025)),
    "h to 4 h": (FIVE, replace(FIVE, step_size=0.04)),
}
"""Where a model is learned, and where it forecasts."""


def transfer_pieces(seeds: Sequence[int], folder: Path) -> list[Piece]:
    """The work, each transfer kept in a file of the folder."""
    seeds = tuple(seeds[:REPEATS])
    constants = SETTINGS, CHUNKS, NOISE, SECONDS, STARTS
    return [
        Piece(
            folder / f"transfer.{name.replace(' ', '-')}.json",
            fingerprint("transfer", there, here, constants, seeds),
            partial(transfer, name, seeds),
            cost=2.0 * len(seeds),
        )
        for name, (there, here) in TRANSFERS.items()
    ]


def transfer(name: str, seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """Errors of a model from elsewhere and of one trained in place, per seed."""
    there, here = TRANSFERS[name]
    lines = []
    for number, seed in enumerate(seeds):
        elsewhere, in_place = learned(there, seed), learned(here, seed)
        moved = in_scene(elsewhere, here.system.scene(), step_size=here.step_size)
        lines.append(
            {
                "seed": seed,
                "transferred": forecast_errors(moved, here, seed),
                "in_place": forecast_errors(in_place, here, seed),
            }
        )
        tell((number + 1) / len(seeds))
    return {"name": name, "learned": asdict(there), "forecast": asdict(here), "rows": lines}


@cache  # since most transfers begin or end where others do
def learned(setting: Setting, seed: int) -> ImpactNetwork:
    """The model of a setting from glimpses of it."""
    recording, _ = glimpses(
        setting.system, seed=seed, noise=NOISE, chunks=CHUNKS, step_size=setting.step_size
    )
    scene = replace(setting.system.scene(), restitution=1.0)
    return fit_latent(recording.with_scene(scene), SETTINGS, seed=seed).model


def forecast_errors(model: ImpactNetwork, setting: Setting, seed: int) -> dict[str, list[float]]:
    """Errors against exact physics, from starts that no glimpse has.

    The paper's error leaps where an impact is mistimed by a sample; that of positions does not.
    """
    steps = round(SECONDS / setting.step_size)
    system = setting.system
    # Glimpses draw the numbers of their starts below 2³¹.
    starts = [system.random_start(2**31 + 1000 * seed + number) for number in range(STARTS)]
    stacked = jax.tree.map(lambda *parts: jnp.stack([jnp.asarray(part) for part in parts]), *starts)
    truth = system.motions(stacked, steps=steps, step_size=setting.step_size)
    predicted = jax.vmap(lambda start: forecast(model, start, steps))(stacked)
    pairs = [
        (
            State(predicted.position[number], predicted.velocity[number]),
            State(jnp.asarray(truth.position[:, number]), jnp.asarray(truth.velocity[:, number])),
        )
        for number in range(STARTS)
    ]
    return {
        "paper": [paper_rmse(*pair) for pair in pairs],
        "position": [position_rmse(*pair) for pair in pairs],
    }
