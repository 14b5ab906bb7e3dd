"""Scenes: the bodies, candidate contacts and known constants of a set-up."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from carom.errors import InputError, require_choice
from carom.mechanics.geometry import Candidate, ContactGeometry, Wall
from carom.mechanics.projection import Projection
from carom.types import VelocityGrid


@dataclass(frozen=True)
class Scene:
    """Bodies, candidate contacts and known constants.

    Systems and recordings have a scene; a model is built for one. Immutable and hashable.

    Arguments:
        bodies: number of bodies K.
        dimension: coordinates per body d.
        candidates: possible contacts, walls before pairs.
        masses: one per body; all 1 by default (only ratios matter for the motion).
        restitution: e in [0, 1] for every candidate.
        friction: Coulomb's μ ≥ 0 for every candidate.
        velocity_grid: whether recorded velocities are half-step velocities already ("sample"), or are
            converted by half kicks ("half"), which is second order on physical data.
        projection: removes overlap at body–body contacts.
        reference: positions at which the bodies of a pair meet, for the projection "reference_point".

    Example:
        >>> from carom.mechanics import Wall
        >>> scene = Scene(bodies=1, dimension=1, candidates=(Wall(0, normal=(1.0,)),), restitution=0.9)
        >>> scene.contacts
        1
    """

    bodies: int
    dimension: int
    candidates: tuple[Candidate, ...] = ()
    masses: tuple[float, ...] = ()
    restitution: float = 1.0
    friction: float = 0.0
    velocity_grid: VelocityGrid = "half"
    projection: Projection = "none"
    reference: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self):
        if self.bodies < 1 or self.dimension < 1:
            raise InputError("A scene needs at least one body and one dimension.")
        # Frozen, so that a scene can be a static field of compiled programs.
        if not self.masses:
            object.__setattr__(self, "masses", (1.0,) * self.bodies)
        if len(self.masses) != self.bodies:
            raise InputError(f"{len(self.masses)} masses were given for {self.bodies} bodies.")
        if not all(np.isfinite(m) and m > 0 for m in self.masses):
            raise InputError(f"Masses must be positive, but they are {self.masses}.")
        if not 0 <= self.restitution <= 1:
            raise InputError(f"Restitution must lie between 0 and 1, but it is {self.restitution}.")
        if not 0 <= self.friction < np.inf:
            raise InputError(f"Friction must be at least 0, but it is {self.friction}.")
        require_choice("velocity_grid", self.velocity_grid, VelocityGrid)
        require_choice("projection", self.projection, Projection)
        given = [len(position) for position in self.reference]
        if self.projection == "reference_point" and given != [self.dimension] * self.bodies:
            raise InputError('The projection "reference_point" needs a reference position for every body.')
        _ = self.geometry  # checks the candidates

    @cached_property
    def geometry(self) -> ContactGeometry:
        return ContactGeometry(self.bodies, self.dimension, self.candidates)

    @property
    def contacts(self) -> int:
        """Number of candidate contacts C."""
        return len(self.candidates)

    @property
    def coordinates(self) -> int:
        """Number of coordinates K·d."""
        return self.bodies * self.dimension

    def without_contacts(self) -> "Scene":
        """The same bodies without candidate contacts."""
        return replace(self, candidates=(), projection="none", reference=())

    def contact_name(self, contact: int) -> str:
        """The name of a contact in a sentence; bodies are counted from 1."""
        candidate = self.candidates[contact]
        if not isinstance(candidate, Wall):
            return f"between bodies {candidate.first + 1} and {candidate.second + 1}"
        walls = sum(1 for c in self.candidates if c.bodies == candidate.bodies)
        return f"of body {candidate.body + 1} at {'the wall' if walls == 1 else f'wall {contact + 1}'}"
