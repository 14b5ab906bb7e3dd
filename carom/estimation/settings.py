"""Settings of our recipe."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from carom.errors import InputError, require_choice, require_range
from carom.estimation.detection.touch_sensor import Touch, TouchSensor
from carom.estimation.parameters.sharing import Share
from carom.integrators import Detection
from carom.models.mechanism import Potential

Stepper = Literal["auto", "constraint_exact", "cd_lagrange"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a fit; one set serves all systems.

    Arguments:
        learn: names of the parameters that are estimated; the rest are as the scene states them. A name that
        belongs
            to a force adds that force ("gravity", "damping", "drag"). "restitution" is one number,
            "restitution-speed" a function of the closing speed. "surfaces" has a number for every contact,
            "radii"
            one for every body and every plane; "normals" are those of the planes. With "-per-run" at the end
            of a name
            ("surfaces-per-run", "restitution-per-run", "masses-per-run") every run has a value of its own.
        share: which contacts share a restitution and a friction.
        touch: whether touch readings are perfect ("observed"), ignored ("inferred"), or "imperfect".
        sensor: rates and delay of an imperfect sensor; what it does not state is estimated.
        potential: what the learned potential depends on.
        hidden: units of its hidden layer.
        stepper: the scheme; "auto" tries the exact one, and where diagnostics reject it the other too, and
        keeps the
            likelier.
        detection: where the CD-Lagrange step tests its gaps.
        starts: random initial weights that are tried together.
        horizons: samples per segment, stage by stage, each a multiple of the one before; whole runs come
        last.
        longest: samples beyond which a run is not followed in one segment; a multiple of the last horizon.
        mask: samples either side of an impact that are not compared, for contacts that last.
        rounds: rounds of a stage at most.
        converged: change of the log-likelihood that ends a stage, of up to 10 000 samples.
    """

    learn: tuple[str, ...] = ("surfaces",)
    share: Share = "each"
    touch: Touch = "inferred"
    sensor: TouchSensor = field(default_factory=TouchSensor)
    potential: Potential = "shared"
    hidden: int = 32
    stepper: Stepper = "auto"
    detection: Detection = "arrival"
    starts: int = 4
    horizons: tuple[int, ...] = (20, 100, 600)
    longest: int = 2400
    mask: int = 0
    rounds: int = 16
    converged: float = 0.2

    def __post_init__(self):
        object.__setattr__(self, "learn", tuple(self.learn))
        for name, value, choices in (
            ("share", self.share, Share),
            ("touch", self.touch, Touch),
            ("potential", self.potential, Potential),
            ("stepper", self.stepper, Stepper),
            ("detection", self.detection, Detection),
        ):
            require_choice(name, value, choices)
        require_range("hidden", self.hidden, 1, 256)
        require_range("mask", self.mask, 0, 10_000)
        stages = (*self.horizons, self.longest)
        if any(longer % shorter for shorter, longer in pairwise(stages)):
            raise InputError(f"Every horizon must be a multiple of the one before, unlike {stages}.")
        if {"surfaces", "radii"} <= set(self.learn):
            raise InputError("learn: surfaces and radii are two ways to say where surfaces are; choose one.")
        if {"restitution", "restitution-speed"} <= set(self.learn):
            raise InputError("learn: restitution is constant or restitution-speed; choose one.")
