"""Pure formulae: inertia, contact operators, impact, projection, energy."""

from carom.mechanics.contact import (
    Candidate,
    ContactGeometry,
    Pair,
    Surfaces,
    Wall,
    chain,
    contact_rate,
    generalised_impulse,
)
from carom.mechanics.energy import kinetic_energy, total_momentum
from carom.mechanics.impact import complementary_impulse, restitution_impulse, unilateral_impulse
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
    "InertiaMatrix",
    "Masses",
    "Pair",
    "Projection",
    "Scene",
    "Surfaces",
    "Wall",
    "chain",
    "complementary_impulse",
    "contact_compliance",
    "contact_rate",
    "generalised_impulse",
    "inverse_mass_projection",
    "kinetic_energy",
    "project_overlap",
    "reference_point_projection",
    "restitution_impulse",
    "total_momentum",
    "unilateral_impulse",
]
