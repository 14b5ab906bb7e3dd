"""Many bodies: what is estimated from short trajectories, and transfers to other scenes."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from carom.estimation import Settings
from carom.systems import BallBox, Billiards

STEP_SIZE = 0.01
"""Between samples, in seconds."""

# Learning, in the setting of DiffCoSim (Zhong, Dey and Chakraborty, 2021): five balls of radius 0.1 in a unit
# box, 800 trajectories of 5 steps of 0.01 s, noise on positions and velocities.

TRAJECTORIES, TRAJECTORY_STEPS = 800, 5
LEARNING_SEEDS = 3
"""At most, the first ones."""
MASSES = (1.0, 2.0, 6.0, 8.0, 10.0)
RESTITUTION_FIT = Settings(learn=("restitution",), share="all", stepper="constraint_exact", potential="none")
"""Known are radii, walls, masses and that the table is level; unknown e, the start states and the noise."""
MASS_FIT = replace(RESTITUTION_FIT, learn=("restitution", "masses"))


@dataclass(frozen=True)
class Estimation:
    """Parameters to estimate from short trajectories.

    Arguments:
        quantity: "restitution", whose error is absolute, or ratios of masses, whose errors are relative.
        published: the restitution that DiffCoSim learns (2021).
    """

    quantity: Literal["restitution", "masses"]
    restitution: float
    noise: float
    published: float | None = None

    @property
    def system(self) -> Billiards:
        masses = MASSES if self.quantity == "masses" else ()
        return Billiards(restitution=self.restitution, ball_masses=masses)

    @property
    def settings(self) -> Settings:
        return MASS_FIT if self.quantity == "masses" else RESTITUTION_FIT

    @property
    def bodies(self) -> tuple[int | None, ...]:
        """Those that the estimates belong to."""
        return (2, 3, 4, 5) if self.quantity == "masses" else (None,)

    @property
    def truth(self) -> tuple[float, ...]:
        """The restitution; or the masses of bodies 2 to 5 over that of body 1."""
        return MASSES[1:] if self.quantity == "masses" else (self.restitution,)

    def error(self, estimates: np.ndarray) -> float:
        """The largest error, absolute or relative."""
        unit = self.truth if self.quantity == "masses" else 1.0
        return float(np.max(np.abs(estimates - self.truth) / unit))


ESTIMATIONS = (
    Estimation("restitution", 1.0, 0.01, published=0.927),
    Estimation("restitution", 0.8, 0.01),
    Estimation("restitution", 0.5, 0.01),
    Estimation("restitution", 1.0, 0.05, published=0.037),
    Estimation("restitution", 0.8, 0.05),
    Estimation("restitution", 0.5, 0.05),
    Estimation("masses", 1.0, 0.0),
    Estimation("masses", 1.0, 0.01),
)

# Transfer: a model learned on some balls, in one box and at one step, forecasts others.

TRANSFER_TRAJECTORIES, TRANSFER_NOISE, TRANSFER_SECONDS, TRANSFER_STARTS = 400, 0.01, 0.4, 40
"""To learn from, and their noise; duration of the forecasts, and how many there are."""
TRANSFER_SEEDS = 1
"""At most, the first ones; every setting takes a fit of its own."""
TRANSFER_FIT = Settings(learn=("restitution",), share="kind", stepper="constraint_exact", hidden=8, starts=1)
"""Known are radii and walls; unknown the field, and the restitution of walls and of pairs."""


@dataclass(frozen=True)
class Setting:
    """Balls that fall in a box, recorded at a step."""

    balls: int
    size: tuple[float, ...] = (1.0, 1.0)
    step_size: float = STEP_SIZE

    @property
    def system(self) -> BallBox:
        return BallBox(size=self.size, radii=(0.1,) * self.balls, restitution=0.9, gravity=2.0)

    @property
    def title(self) -> str:
        size = " × ".join(f"{length:g}" for length in self.size)
        return f"{self.balls} balls, box {size}, step {self.step_size:g} s"


FIVE = Setting(5)
TRANSFERS: dict[str, tuple[Setting, Setting]] = {
    "two balls to five": (Setting(2), FIVE),
    "one box to a smaller one": (FIVE, replace(FIVE, size=(0.8, 0.9))),
    "one box to a wider one": (FIVE, replace(FIVE, size=(1.6, 0.8))),
    "h to h over 4": (FIVE, replace(FIVE, step_size=0.0025)),
    "h to 4 h": (FIVE, replace(FIVE, step_size=0.04)),
}
"""Where a model is learned, and where it forecasts."""
