"""Formulae of mechanics: inertia, contact geometry, impact, friction, projection, energy."""

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
    length,
)
from carom.mechanics.impact import impact_impulse, lasting_contact, restitution_impulse, unilateral_impulse
from carom.mechanics.inertia import (
    AbstractInertia,
    InertiaMatrix,
    Masses,
    Points,
    contact_compliance,
    kinetic_energy,
)
from carom.mechanics.parameter import ParameterSpec, at, parameter, parameters_of
from carom.mechanics.part import AbstractPart, named_parts, part_named
from carom.mechanics.projection import Projection, project_overlap
from carom.mechanics.scene import Scene
