"""Hyperparameters of the recipe `carom`."""

from dataclasses import dataclass, field
from typing import Literal

from carom.estimation.detection.touch_sensor import Touch, TouchSensor
from carom.estimation.parameters.unknowns import Learned
from carom.models.impact_network import Detection, Field, ImpactScheme


@dataclass(frozen=True)
class LatentSettings:
    """Hyperparameters of the recipe; one set serves all systems.

    Arguments:
        touch: whether touch readings are perfect ("observed"), ignored ("inferred"), or "imperfect".
        sensor: rates and delay of an imperfect sensor; what it does not state is estimated.
        learned: which physical parameters are estimated.
        scheme: the model's step; "auto" tries the exact one, and where that leaves doubts the other too, and
            keeps the likelier.
        detection: where the CD-Lagrange step looks for contacts.
        field: whether all bodies move in one field and act on each other by contact alone ("shared"), or by
            their distance too ("pairs"), or in any way ("joint"), or move freely ("none").
        hidden: units of the potential's hidden layer.
        starts: random initial weights that are tried together.
        horizons: samples per segment, stage by stage, each a multiple of the one before; whole runs come last
            by themselves.
        longest: samples beyond which a run is not followed in one piece; a multiple of the last horizon.
        blind: samples either side of an impact that are not compared, for contacts that last.
    """

    touch: Touch = "inferred"
    sensor: TouchSensor = field(default_factory=TouchSensor)
    learned: Learned = field(default_factory=Learned)
    scheme: ImpactScheme | Literal["auto"] = "auto"
    detection: Detection = "arrival"
    field: Field = "shared"
    hidden: int = 32
    starts: int = 4
    horizons: tuple[int, ...] = (20, 100, 600)
    longest: int = 2400
    blind: int = 0
