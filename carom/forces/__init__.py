"""Forces, one per file; a new one is a new file, and nothing else has to know of it."""

from carom.forces.base import AbstractDissipation, AbstractForce, AbstractPotential
from carom.forces.damping import LinearDamping
from carom.forces.drag import QuadraticDrag
from carom.forces.gravity import UniformGravity
from carom.forces.learned_potential import (
    AbstractLearnedPotential,
    LearnedJointPotential,
    LearnedPairPotential,
    LearnedPotential,
    LinearisedPotentialForce,
    NaturalUnits,
)
