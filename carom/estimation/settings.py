"""Settings of our recipe, shared by Python, system files, sweeps and the command line."""

from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval

from carom.errors import SettingsError
from carom.estimation.detection.touch_sensor import Touch, TouchSensor
from carom.estimation.parameters.sharing import Share
from carom.integrators import Detection
from carom.models.mechanism import Potential
from carom.validation import require_valid

Stepper = Literal["auto", "constraint_exact", "cd_lagrange"]
AUTO = "auto"
"""In place of terms: those that regression finds necessary."""
RENAMED = {"gap": "surfaces", "gap-per-run": "surfaces-per-run"}
"""Former names of parameters."""
LAWS = ("restitution", "restitution-linear", "restitution-speed", "restitution-spline")
CHOICES = (("surfaces", "radii"), *combinations(LAWS, 2))
"""Mutually exclusive parameters: two parametrisations of the same quantity."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of our recipe; the defaults are the same for all systems.

    Arguments:
        learn: Parameters to estimate; the others keep the values stated in the scene. The name of a force
            adds that force: gravity, damping, drag. Restitution is a constant (restitution) or a function of
            the closing speed (restitution-linear; in its logarithm, restitution-speed, linear, and
            restitution-spline). Surface positions have one value per contact (surfaces), or one per body and
            per plane (radii); normals are those of the planes. The suffix -per-run (surfaces, restitution,
            masses) gives every run a value of its own. The name auto stands for the terms by which the
            textbook's regression predicts runs left out better.
        share: Whether every contact has its own restitution and friction (each), walls have one value and
            pairs another (kind), or all contacts have the same (all).
        touch: Meaning of the touch columns: perfect readings (observed), readings with errors (imperfect), or
            none (inferred).
        sensor: Known error rates of an imperfect touch sensor; the others are estimated.
        potential: Whether all bodies move in one potential and interact by contact alone (shared), or also
            through their distance (pairs) or in any way (joint), or move freely between impacts (none).
        hidden: Units in the hidden layer of the potential.
        stepper: The integrator; auto uses constraint_exact and, if that explains measured velocities poorly,
            also tries cd_lagrange and keeps the one with the greater likelihood.
        detection: Whether a cd_lagrange step tests gaps at its arrival or at its departure.
        starts: Number of random initial weights.
        horizons: Samples per segment in each stage, each a multiple of the previous one; a last stage with
            whole runs is added.
        longest: Greatest number of samples per segment in that last stage; a multiple of the last horizon.
        mask: Samples either side of an impact to leave out, for contacts of finite duration and smoothed
            positions. By default it is chosen: the shortest with which contacts explain most velocity jumps.
        rounds: Greatest number of rounds of least squares in a stage.
        converged: Change of the log-likelihood below which a stage has converged.
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
    mask: Annotated[int, Ge(0)] | None = None
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
        if "restitution-per-run" in self.learn and not {AUTO, *LAWS} & {*self.learn}:
            raise SettingsError(
                "`learn` restitution-per-run: runs deviate from a common restitution; add "
                + f"{', '.join(LAWS[:-1])} or {LAWS[-1]}."
            )
