"""What the recipe estimates, as one vector: network weights in natural units, and physical parameters."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.models import ImpactNetwork, PotentialNetwork
from carom.types import RestitutionKind, Values

WEIGHT_SPREAD = 3.0
"""Standard deviation of the prior on weights; smoothness, not size, is what restrains the force."""
MASS_SPREAD = 2.0
"""Standard deviation of the prior on logarithms of ratios of masses."""
SPEED_TERMS = 3
"""Terms of a restitution that depends on the closing speed: a parabola in its logarithm."""


@dataclass(frozen=True)
class Learned:
    """Which physical parameters are estimated; the rest are as the scene states them.

    Arguments:
        restitution: "fixed", "constant" (one e per contact) or "speed" (e falls or rises with closing speed).
        gap: where the surfaces of walls and bodies are.
        masses: ratios of the masses to that of the first body.
        damping: a damping rate per body.
        gap_per_run: a shift of every gap that differs from run to run, such as where markers were glued.
        restitution_per_run: e scatters from run to run about what holds for all; how widely is estimated too.
        masses_per_run: ratios of masses that differ from run to run, where runs are of other bodies.
    """

    restitution: RestitutionKind = "fixed"
    gap: bool = True
    masses: bool = False
    damping: bool = False
    gap_per_run: bool = False
    restitution_per_run: bool = False
    masses_per_run: bool = False

    @property
    def restitution_terms(self) -> int:
        return SPEED_TERMS if self.restitution == "speed" else 1


class Units(NamedTuple):
    """Scales that make the network's weights numbers near 1, taken from the recording.

    `places` are where the smoothness of the force is judged, and `directions` along which, in those units.
    `resolution` is the least noise that positions and velocities are taken to have, which exact data need.
    """

    center: Float[Values, "coordinates"]
    scale: Float[Values, "coordinates"]
    energy: Float[Values, ""]
    places: Float[Values, "places coordinates"]
    directions: Float[Values, "places coordinates"]
    resolution: Float[Values, "2"]


class Shared(NamedTuple):
    """The unknowns that all segments share; what is not estimated has no elements."""

    weight: Float[Values, "hidden coordinates"]
    bias: Float[Values, "hidden"]
    output: Float[Values, "hidden"]
    shift: Float[Values, "gaps"]
    restitution: Float[Values, "contacts terms"]
    log_mass: Float[Values, "bodies"]
    damping: Float[Values, "bodies"]

    @property
    def weights(self) -> int:
        """Number of network weights; they come first in the vector."""
        return self.weight.size + self.bias.size + self.output.size


def initial_shared(
    template: ImpactNetwork,
    learned: Learned,
    *,
    shift: np.ndarray,
    restitution: np.ndarray,
    generator: np.random.Generator,
) -> Shared:
    """Random weights with standard normal entries; physical parameters from a first look at the data."""
    scene = template.scene
    potential = template.potential
    assert isinstance(potential, PotentialNetwork)
    hidden, inputs = potential.weight.shape
    law = np.zeros((scene.contacts, learned.restitution_terms))
    law[:, 0] = restitution
    # NumPy throughout: compiling a dozen tiny programs would take longer than the fit.
    return Shared(
        weight=generator.standard_normal((hidden, inputs)),
        bias=generator.standard_normal(hidden),
        output=0.1 * generator.standard_normal(hidden),
        shift=np.asarray(shift, float) if learned.gap else np.zeros(0),
        restitution=law if learned.restitution != "fixed" else law[:0],
        log_mass=np.zeros(scene.bodies - 1 if learned.masses else 0),
        damping=np.zeros(scene.bodies if learned.damping else 0),
    )  # pyright: ignore


def with_unknowns(template: ImpactNetwork, shared: Shared, units: Units) -> ImpactNetwork:
    """The model that these unknowns describe, weights back in the recording's own units."""
    potential = with_weights(template, shared, units)
    shift = shared.shift if shared.shift.size else template.contact.shift
    restitution = shared.restitution if shared.restitution.size else template.restitution
    mass = template.log_mass
    if shared.log_mass.size:
        mass = mass + jnp.concatenate([jnp.zeros((1,), mass.dtype), shared.log_mass])
    damping = shared.damping if shared.damping.size else template.damping_rate
    return eqx.tree_at(
        lambda m: (m.potential, m.contact.shift, m.restitution, m.log_mass, m.damping_rate),
        template,
        (potential, shift, restitution, mass, damping),
    )


def with_weights(template: ImpactNetwork, shared: Shared, units: Units) -> PotentialNetwork:
    """The potential of these weights in the recording's own units; linear, so changes may be given."""
    potential = template.potential
    assert isinstance(potential, PotentialNetwork)
    weight = shared.weight / units.scale[None, :]
    return eqx.tree_at(
        lambda p: (p.weight, p.bias, p.output),
        potential,
        (
            weight,
            shared.bias - (weight * units.center[None, :]).sum(axis=1),
            shared.output * units.energy / np.sqrt(potential.hidden),
        ),
    )


def shared_bounds(shared: Shared) -> tuple[Shared, Shared]:
    """Lowest and highest values: 0 ≤ e ≤ 1 for a constant restitution, no negative damping."""
    low, high = _filled(shared, -np.inf), _filled(shared, np.inf)
    if shared.restitution.shape[-1] == 1:
        low = low._replace(restitution=np.zeros(shared.restitution.shape))
        high = high._replace(restitution=np.ones(shared.restitution.shape))
    return low._replace(damping=np.zeros(shared.damping.shape)), high


def _filled(like: Shared, value: float) -> Shared:
    return Shared(*(np.full(part.shape, value) for part in like))


def roughness(shared: Shared, units: Units) -> tuple[Float[Array, "places"], Float[Array, "places"]]:
    """How the force changes, and how that changes, along a direction at every place; in natural units.

    A flat force has neither, a spring's has only the first: the prior makes each as small as the data allow.
    """
    derivative = jax.nn.sigmoid
    hidden = len(shared.bias)

    def along(place, direction):
        def push(step):
            inner = jnp.sum(shared.weight * (place + step * direction)[None, :], axis=1) + shared.bias
            slope = jnp.sum(shared.weight * direction[None, :], axis=1)
            return jnp.sum(shared.output * slope * derivative(inner)) / np.sqrt(hidden)

        first = jax.jacfwd(push)
        return first(0.0), jax.jacfwd(first)(0.0)

    change, bend = jax.vmap(along)(units.places, units.directions)
    return change / np.sqrt(len(change)), bend / np.sqrt(len(bend))


def shared_prior(start: Shared, units: Units) -> tuple[Shared, Shared]:
    """Means and precisions: weak for the weights, wide for what is physical."""
    mean, spread = _filled(start, 0.0), _filled(start, WEIGHT_SPREAD)
    if mean.restitution.size:
        mean.restitution[:, 0] = 0.5
    spread = spread._replace(
        shift=np.ones(start.shift.shape) * units.scale.max(),
        restitution=np.full(start.restitution.shape, 1.0),
        log_mass=np.full(start.log_mass.shape, MASS_SPREAD),
        damping=np.full(start.damping.shape, 10.0),
    )
    return mean._replace(shift=start.shift), Shared(*(1 / part**2 for part in spread))
