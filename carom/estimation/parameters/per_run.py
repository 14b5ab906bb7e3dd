"""What is estimated for one run alone: where it starts, and what it adds to what all runs share."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from carom.estimation.parameters.unknowns import Learned
from carom.mechanics import Scene
from carom.models import ImpactNetwork
from carom.types import State, Values


class RunUnknowns(NamedTuple):
    """What a run adds to the parameters of all runs; what is not estimated has no elements."""

    gap: Float[Values, "*runs gaps"]
    """To the place of every surface."""
    restitution: Float[Values, "*runs laws"]
    """To e of every contact, at any speed."""
    log_mass: Float[Values, "*runs masses"]
    """To the logarithms of the ratios of masses to that of the first body."""


@dataclass(frozen=True)
class RunShape:
    """From the vector of what is estimated for a run to its parts.

    Hashable, so that programs are compiled once per shape.
    """

    bodies: int
    dimension: int
    gaps: int
    laws: int
    masses: int

    @classmethod
    def of(cls, scene: Scene, learned: Learned) -> "RunShape":
        return cls(
            scene.bodies,
            scene.dimension,
            scene.contacts * learned.gap_per_run,
            scene.contacts * learned.restitution_per_run,
            (scene.bodies - 1) * learned.masses_per_run,
        )

    @property
    def state(self) -> int:
        """Elements of the start state; they come first in the vector."""
        return 2 * self.bodies * self.dimension

    @property
    def restitution(self) -> slice:
        """Where in the vector the restitutions are."""
        start = self.state + self.gaps
        return slice(start, start + self.laws)

    def start(self, local: Float[Array, "local"]) -> State:
        position, velocity = local[: self.state].reshape(2, self.bodies, self.dimension)
        return State(position, velocity)

    def unknowns(self, local: Float[Values, "*runs local"]) -> RunUnknowns:
        laws = self.restitution
        return RunUnknowns(local[..., self.state : laws.start], local[..., laws], local[..., laws.stop :])


def with_run(model: ImpactNetwork, run: RunUnknowns) -> ImpactNetwork:
    """The model as it is in one run."""
    shift, restitution, log_mass = model.contact.shift, model.restitution, model.log_mass
    if run.gap.size:
        shift = shift + run.gap
    if run.restitution.size:
        restitution = restitution.at[:, 0].add(run.restitution)
    if run.log_mass.size:
        log_mass = log_mass.at[1:].add(run.log_mass)
    return eqx.tree_at(
        lambda m: (m.contact.shift, m.restitution, m.log_mass), model, (shift, restitution, log_mass)
    )
