"""Formulae of mechanics: inertia, contact geometry, impact, friction, projection, energy."""

from carom.mechanics.bodies import Points
from carom.mechanics.configuration import AbstractConfiguration, Euclidean
from carom.mechanics.energy import kinetic_energy, total_momentum
from carom.mechanics.friction import (
    Frictional,
    friction_brake,
    friction_impulses,
    frictional,
    holding_forces,
    length,
    removed_slip,
    share_within,
)
from carom.mechanics.geometry import (
    Candidate,
    ContactGeometry,
    Contacts,
    Pair,
    Plane,
    Wall,
    chain,
    contact_rate,
    generalised_impulse,
)
from carom.mechanics.impact import (
    complementary_impulse,
    impact_impulse,
    restitution_impulse,
    unilateral_impulse,
)
from carom.mechanics.inertia import AbstractInertia, InertiaMatrix, Masses, contact_compliance
from carom.mechanics.parameter import ParameterSpec, at, parameter, parameters_of
from carom.mechanics.part import AbstractPart, named_parts, part_named
from carom.mechanics.projection import (
    Projection,
    inverse_mass_projection,
    project_overlap,
    reference_point_projection,
)
from carom.mechanics.scene import Scene

__all__ = [
    "AbstractConfiguration",
    "AbstractInertia",
    "AbstractPart",
    "Candidate",
    "ContactGeometry",
    "Contacts",
    "Euclidean",
    "Frictional",
    "InertiaMatrix",
    "Masses",
    "Pair",
    "ParameterSpec",
    "Plane",
    "Points",
    "Projection",
    "Scene",
    "Wall",
    "at",
    "chain",
    "complementary_impulse",
    "contact_compliance",
    "contact_rate",
    "friction_brake",
    "friction_impulses",
    "frictional",
    "generalised_impulse",
    "holding_forces",
    "impact_impulse",
    "inverse_mass_projection",
    "kinetic_energy",
    "length",
    "named_parts",
    "parameter",
    "parameters_of",
    "part_named",
    "project_overlap",
    "reference_point_projection",
    "removed_slip",
    "restitution_impulse",
    "share_within",
    "total_momentum",
    "unilateral_impulse",
]
