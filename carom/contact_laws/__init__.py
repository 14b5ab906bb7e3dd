"""Contact laws, one per file."""

from carom.contact_laws.coulomb import CoulombFriction
from carom.contact_laws.deviations import ImpactDeviations
from carom.contact_laws.duration import ContactDuration
from carom.contact_laws.newton import AbstractRestitution, ConstantRestitution
from carom.contact_laws.speed_dependent import (
    UNLIMITED,
    AbstractRestitutionBySpeed,
    LinearRestitution,
    SpeedDependentRestitution,
    SplineRestitution,
)
