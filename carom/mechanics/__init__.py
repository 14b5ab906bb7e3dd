"""Pure formulae: inertia, contact operators, impact, projection, energy."""

from carom.mechanics.contact import (
    Candidate,
    ContactGeometry,
    Pair,
    Plane,
    Surfaces,
    Wall,
    chain,
    contact_normals,
    contact_rate,
    contact_signs,
    generalised_impulse,
)
from carom.mechanics.contact_rows import ContactRows
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
from carom.mechanics.impact import (
    complementary_impulse,
    impact_impulse,
    restitution_impulse,
    unilateral_impulse,
)
from carom.mechanics.inertia import AbstractInertia, InertiaMatrix, Masses, contact_compliance
from carom.mechanics.projection import (
    Projection,
    inverse_mass_projection,
    project_overlap,
    reference_point_projection,
)
from carom.mechanics.scene import Scene

__all__ = [
    "AbstractInertia",
    "Candidate",
    "ContactGeometry",
    "ContactRows",
    "Frictional",
    "InertiaMatrix",
    "Masses",
    "Pair",
    "Plane",
    "Projection",
    "Scene",
    "Surfaces",
    "Wall",
    "chain",
    "complementary_impulse",
    "contact_compliance",
    "contact_normals",
    "contact_rate",
    "contact_signs",
    "friction_brake",
    "friction_impulses",
    "frictional",
    "generalised_impulse",
    "holding_forces",
    "impact_impulse",
    "inverse_mass_projection",
    "kinetic_energy",
    "length",
    "project_overlap",
    "reference_point_projection",
    "removed_slip",
    "restitution_impulse",
    "share_within",
    "total_momentum",
    "unilateral_impulse",
]
