"""What the recipe estimates, as one vector: network weights in natural units, and physical parameters."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from carom.estimation.parameters.sharing import Laws, Surfaces, law_of, surface_map, tilt_map
from carom.models import ImpactNetwork, PotentialNetwork
from carom.types import RestitutionKind, Values

WEIGHT_SPREAD = 3.0
"""Standard deviation of the prior on weights; smoothness, not size, is what restrains the force."""
MASS_SPREAD = 2.0
"""Standard deviation of the prior on logarithms of ratios of masses."""
FRICTION_SPREAD, TILT_SPREAD = 1.0, 0.3
"""Standard deviations of the priors on friction, and on how far walls are tilted."""
SPEED_TERMS = 3
"""Terms of a restitution that depends on the closing speed: a parabola in its logarithm."""


@dataclass(frozen=True)
class Learned:
    """Which physical parameters are estimated; the rest are as the scene states them.

    Arguments:
        restitution: "fixed", "constant" or "speed" (e falls or rises with closing speed).
        friction: Coulomb's μ.
        laws: whether every contact has a restitution and a friction of its own ("each"), walls have one and
            pairs another ("kind"), or all have the same ("one").
        gap: where the surfaces of walls and bodies are.
        surfaces: whether every contact has a place of its own ("each"), or radii of bodies and offsets of
            planes make them ("bodies").
        normals: how the walls are tilted, plane by plane.
        masses: ratios of the masses to that of the first body.
        damping: a damping rate per body.
        gap_per_run: a shift of every gap that differs from run to run, such as where markers were glued.
        restitution_per_run: e scatters from run to run about what holds for all; how widely is estimated too.
        masses_per_run: ratios of masses that differ from run to run, where runs are of other bodies.
    """

    restitution: RestitutionKind = "fixed"
    friction: bool = False
    laws: Laws = "each"
    gap: bool = True
    surfaces: Surfaces = "each"
    normals: bool = False
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

    `places` are where the smoothness of the force is judged, and `directions` along which, in those units;
    `distances` (a middle and a scale) are those of pairs of bodies.
    `law` is the number of the restitution and the friction that each contact obeys; `surface` tells how the
    unknown places of surfaces shift every gap, and `tilt` how those of planes tilt every normal.
    `resolution` is the least noise that positions and velocities are taken to have, which exact data need.
    """

    center: Float[Values, "coordinates"]
    scale: Float[Values, "coordinates"]
    energy: Float[Values, ""]
    places: Float[Values, "places coordinates"]
    directions: Float[Values, "places coordinates"]
    distances: Float[Values, "2"]
    law: Int[Values, "contacts"]
    surface: Float[Values, "contacts gaps"]
    tilt: Float[Values, "tilts contacts dimension"]
    resolution: Float[Values, "2"]


NETWORK = 6
"""Parts of the shared unknowns that are weights of networks; they come first."""


class Shared(NamedTuple):
    """The unknowns that all segments share; what is not estimated has no elements."""

    weight: Float[Values, "hidden coordinates"]
    bias: Float[Values, "hidden"]
    output: Float[Values, "hidden"]
    pair_weight: Float[Values, "pair_hidden 1"]
    pair_bias: Float[Values, "pair_hidden"]
    pair_output: Float[Values, "pair_hidden"]
    shift: Float[Values, "gaps"]
    restitution: Float[Values, "laws terms"]
    log_mass: Float[Values, "bodies"]
    damping: Float[Values, "bodies"]
    friction: Float[Values, "frictions"]
    tilt: Float[Values, "tilts"]

    @property
    def weights(self) -> int:
        """Number of network weights; they come first in the vector."""
        return sum(part.size for part in self[:NETWORK])


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
    pairs = template.pair_potential.hidden
    obeyed = law_of(scene, learned.laws)
    law = np.zeros((len(np.unique(obeyed)), learned.restitution_terms))
    law[:, 0] = [np.median(restitution[obeyed == number]) for number in range(len(law))]
    made = surface_map(scene, learned.surfaces)
    # NumPy throughout: compiling a dozen tiny programs would take longer than the fit.
    return Shared(
        weight=generator.standard_normal((hidden, inputs)),
        bias=generator.standard_normal(hidden),
        output=0.1 * generator.standard_normal(hidden),
        pair_weight=generator.standard_normal((pairs, 1)),
        pair_bias=generator.standard_normal(pairs),
        pair_output=0.1 * generator.standard_normal(pairs),
        shift=np.linalg.lstsq(made, np.asarray(shift, float), rcond=None)[0] if learned.gap else np.zeros(0),
        restitution=law if learned.restitution != "fixed" else law[:0],
        log_mass=np.zeros(scene.bodies - 1 if learned.masses else 0),
        damping=np.zeros(scene.bodies if learned.damping else 0),
        friction=np.full(len(law) if learned.friction else 0, max(scene.friction, 0.1)),
        tilt=np.zeros(len(tilt_map(scene)) if learned.normals else 0),
    )  # pyright: ignore


def with_unknowns(template: ImpactNetwork, shared: Shared, units: Units) -> ImpactNetwork:
    """The model that these unknowns describe, weights back in the recording's own units."""
    pairs = (shared.pair_weight, shared.pair_bias, shared.pair_output)
    potential = with_weights(template, shared, units)
    between = template.pair_potential
    if between.hidden:
        between = _in_units(between, *pairs, units.distances[:1], units.distances[1:], units.energy)
    shift = units.surface @ shared.shift if shared.shift.size else template.contact.shift
    friction = shared.friction[units.law] if shared.friction.size else template.friction
    tilt = jnp.einsum("t,tcd->cd", shared.tilt, units.tilt) if shared.tilt.size else template.tilt
    restitution = shared.restitution[units.law] if shared.restitution.size else template.restitution
    mass = template.log_mass
    if shared.log_mass.size:
        mass = mass + jnp.concatenate([jnp.zeros((1,), mass.dtype), shared.log_mass])
    damping = shared.damping if shared.damping.size else template.damping_rate
    return eqx.tree_at(
        lambda m: (
            m.potential,
            m.pair_potential,
            m.contact.shift,
            m.restitution,
            m.log_mass,
            m.damping_rate,
            m.friction,
            m.tilt,
        ),
        template,
        (potential, between, shift, restitution, mass, damping, friction, tilt),
    )


def _in_units(potential: PotentialNetwork, weight, bias, output, center, scale, energy) -> PotentialNetwork:
    """A potential whose weights were numbers near 1."""
    weight = weight / scale[None, :]
    return eqx.tree_at(
        lambda p: (p.weight, p.bias, p.output),
        potential,
        (
            weight,
            bias - (weight * center[None, :]).sum(axis=1),
            output * energy / np.sqrt(potential.hidden),
        ),
    )


def with_weights(template: ImpactNetwork, shared: Shared, units: Units) -> PotentialNetwork:
    """The potential of these weights in the recording's own units; linear, so changes may be given."""
    potential = template.potential
    assert isinstance(potential, PotentialNetwork)
    field = shared.weight, shared.bias, shared.output
    return _in_units(potential, *field, units.center, units.scale, units.energy)


def shared_bounds(shared: Shared) -> tuple[Shared, Shared]:
    """Lowest and highest values: 0 ≤ e ≤ 1 for a constant restitution, no negative damping or friction."""
    low, high = _filled(shared, -np.inf), _filled(shared, np.inf)
    if shared.restitution.shape[-1] == 1:
        low = low._replace(restitution=np.zeros(shared.restitution.shape))
        high = high._replace(restitution=np.ones(shared.restitution.shape))
    nothing = {"damping": np.zeros(shared.damping.shape), "friction": np.zeros(shared.friction.shape)}
    return low._replace(**nothing), high


def _filled(like: Shared, value: float) -> Shared:
    return Shared(*(np.full(part.shape, value) for part in like))


def roughness(shared: Shared, units: Units) -> tuple[Float[Array, "places"], Float[Array, "places"]]:
    """How the force changes, and how that changes, along a direction at every place; in natural units.

    A flat force has neither, a spring's has only the first: the prior makes each as small as the data allow.
    """
    field = shared.weight, shared.bias, shared.output
    parts = [_bending(*field, units.places, units.directions)]
    if shared.pair_bias.size:
        places = jnp.linspace(-1, 1, len(units.places))[:, None]
        pairs = shared.pair_weight, shared.pair_bias, shared.pair_output
        parts.append(_bending(*pairs, places, jnp.ones_like(places)))
    change, bend = (jnp.concatenate(both) for both in zip(*parts, strict=True))
    return change / np.sqrt(len(units.places)), bend / np.sqrt(len(units.places))


def _bending(
    weight, bias, output, places, directions
) -> tuple[Float[Array, "places"], Float[Array, "places"]]:
    """First and second derivative of the force of one network along a direction at every place."""

    def along(place, direction):
        def push(step):
            inner = jnp.sum(weight * (place + step * direction)[None, :], axis=1) + bias
            slope = jnp.sum(weight * direction[None, :], axis=1)
            return jnp.sum(output * slope * jax.nn.sigmoid(inner)) / np.sqrt(len(bias))

        first = jax.jacfwd(push)
        return first(0.0), jax.jacfwd(first)(0.0)

    return jax.vmap(along)(places, directions)


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
        friction=np.full(start.friction.shape, FRICTION_SPREAD),
        tilt=np.full(start.tilt.shape, TILT_SPREAD),
    )
    return mean._replace(shift=start.shift), Shared(*(1 / part**2 for part in spread))
