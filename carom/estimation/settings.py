"""Settings of our recipe, declared once for Python, system files, sweeps and the command line."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from carom.errors import SettingsError
from carom.estimation.detection.touch_sensor import Touch, TouchSensor
from carom.estimation.parameters.sharing import Share
from carom.integrators import Detection
from carom.models.mechanism import Potential
from carom.validation import require_valid

Stepper = Literal["auto", "constraint_exact", "cd_lagrange"]
RENAMED = {"gap": "surfaces", "gap-per-run": "surfaces-per-run"}
"""Parameters that older versions called otherwise."""
CHOICES = (("surfaces", "radii"), ("restitution", "restitution-speed"))
"""Parameters of which at most one can be learned: each says in its own way the same thing."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the recipe carom; one set serves all systems.

    Arguments:
        learn: Parameters to estimate; the rest are as the scene states them. The name of a force adds that
            force: gravity, damping, drag. Restitution is one number (restitution) or a function of the
            closing speed (restitution-speed). The position of surfaces has one number per contact (surfaces),
            or one per body and per plane (radii); normals are those of the planes. With -per-run at the end
            of a name (surfaces, restitution, masses) every run has a value of its own.
        share: Whether every contact has a restitution and a friction of its own (each), walls have one and
            pairs another (kind), or all have the same (all).
        touch: What the touch columns mean: perfect readings (observed), readings with errors (imperfect), or
            nothing (inferred).
        sensor: What is known of an imperfect touch sensor; the rest is estimated.
        potential: Whether all bodies move in one potential and interact by contact alone (shared), or also
            through their distance (pairs) or in any way (joint), or move freely between impacts (none).
        hidden: Units in the hidden layer of the potential.
        stepper: The integrator; auto tries constraint_exact, where its diagnostics raise doubts cd_lagrange
            too, and keeps the one with the greater likelihood.
        detection: Whether a cd_lagrange step tests its gaps where it arrives or where it departs.
        starts: Random initial weights that are tried together.
        horizons: Samples per segment, stage by stage, each a multiple of the one before; a last stage with
            whole runs is added.
        longest: Samples beyond which a run is cut into segments in that last stage too; a multiple of the
            last horizon.
        mask: Samples either side of an impact that are left out of the residuals, for contacts that last.
        rounds: Rounds of least squares in a stage at most.
        converged: Change of the log-likelihood that ends a stage.
    """

    learn: tuple[str, ...] = ("surfaces",)
    share: Share = "each"
    touch: Touch = "inferred"
    sensor: TouchSensor = field(default_factory=TouchSensor)
    potential: Potential = "shared"
    # Beyond some hundred units the dense normal equations take longer than the simulations.
    hidden: Annotated[int, Interval(ge=1, le=256)] = 32
    stepper: Stepper = "auto"
    detection: Detection = "arrival"
    starts: Annotated[int, Interval(ge=1, le=64)] = 4
    horizons: tuple[int, ...] = (20, 100, 600)
    longest: Annotated[int, Ge(1)] = 2400
    mask: Annotated[int, Ge(0)] = 0
    rounds: Annotated[int, Interval(ge=1, le=1000)] = 16
    converged: Annotated[float, Gt(0)] = 0.2

    def __post_init__(self):
        object.__setattr__(self, "learn", tuple(self.learn))
        require_valid(self)
        if self.sensor != TouchSensor() and self.touch != "imperfect":
            raise SettingsError("`sensor` is for an imperfect touch sensor; add `touch` imperfect.")
        lengths = (1, *self.horizons, self.longest)
        if any(after < before or after % before for before, after in pairwise(lengths)):
            raise SettingsError(
                f"`horizons` {self.horizons} and `longest` {self.longest}: each must be a multiple of the "
                "previous one."
            )
        for name in self.learn:
            if name in RENAMED:
                raise SettingsError(f"`learn` {name} is called {RENAMED[name]} now.")
        for first, second in CHOICES:
            if {first, second} <= set(self.learn):
                raise SettingsError(f"`learn`: {first} and {second} exclude each other; choose one.")
        if "restitution-per-run" in self.learn and not {"restitution", "restitution-speed"} & {*self.learn}:
            raise SettingsError(
                "`learn` restitution-per-run: runs vary about a common restitution; add restitution or "
                "restitution-speed."
            )
