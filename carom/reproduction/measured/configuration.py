"""What is done with the measured recordings: series of the air track, what is estimated, and the pendulum."""

from dataclasses import dataclass
from pathlib import Path

from carom.estimation import Settings
from carom.mechanics import Pair, Scene

DATA_VARIABLE, DEFAULT_DATA = "CAROM_DATA", Path("../shared/data")
"""Where the recordings are: an environment variable, and the directory that is tried without it."""
RECORDINGS, CHECKS = Path("air_track/recordings.csv"), Path("air_track/runs.csv")
PENDULUM = Path("pendulum/schmidt_lipson_pendulum.csv")

# Two riders on an air track, positions only. Every run is cropped at random, so that its impact may be
# anywhere, and then trimmed to what surrounds the impact that is detected.

RIDERS = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),))
"""The rider in front, whose coordinate is larger, comes first."""
STRETCH = 0.1
"""Seconds of motion used before a contact, and after it."""
MASKED = 15
"""Samples masked on either side of an impact, 30 ms for every bumper: contacts may last that long."""
EVERY = 5
"""Every fifth run of a series is left out of the fit."""
CROPPED = 0.25
"""The largest share of a run that is cropped at either end."""
LAWS = {"constant": "restitution", "speed": "restitution-speed"}
"""The data choose between these laws of restitution, by the Bayesian information criterion."""
SPEEDS = (0.3, 1.0, 2.0)
"""Closing speeds at which laws are tabulated, in m/s."""


@dataclass(frozen=True)
class Series:
    """Runs with one kind of bumper; where riders change from run to run, so do their masses."""

    title: str
    other_riders: bool = False

    def settings(self, law: str, *, masked: int) -> Settings:
        """A law about which runs scatter, where riders touch in each run, and ratios of masses."""
        masses = "masses-per-run" if self.other_riders else "masses"
        learn = (LAWS[law], "restitution-per-run", "surfaces-per-run", masses)
        # The track is level: without a field there are no weights, and no need of short segments.
        return Settings(learn=learn, stepper="constraint_exact", potential="none", horizons=(), mask=masked)


SERIES = {
    "rubber": Series("Rubber bands"),
    "metal": Series("Metal"),
    "pucks_momentum": Series("Pucks, series “momentum”", other_riders=True),
    "pucks_energy": Series("Pucks, series “energy”", other_riders=True),
}
"""By the name of the bumper in the table of runs."""

# Schmidt and Lipson's pendulum (Science 324, 2009), learned from the first four fifths and rolled out over
# the last. The score is that of Greydanus, Dzamba and Yosinski (Hamiltonian neural networks, 2019).

TRAINING_SHARE = 0.8
PUBLISHED = {"plain network": (0.386, 0.069), "Hamiltonian network": (0.0145, 0.0047)}
"""Energy errors with their standard errors, as published."""
VARIANTS = {
    name: Settings(learn=("damping",) if damped else (), stepper="constraint_exact")
    for name, damped in (("no damping", False), ("damping", True))
}
"""The one that does better on the last fifth of the training data is used."""
