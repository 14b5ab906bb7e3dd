"""Learned potentials: networks whose weights are of order 1 in the natural units of a recording.

    U(x) = E/√h · w · softplus(W (x − c)/s + b)

with the centre c and half range s of the data, an energy E and h hidden units. In these units one prior on
the weights serves every recording, whatever its units are; smoothness, not the size of weights, is what
restrains the force.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from carom.forces.base import AbstractPotential
from carom.mechanics import Scene, length, parameter
from carom.networks import PotentialNetwork, potential_network
from carom.types import Coordinates, PerBody, Values

COLLOCATION_POINTS, WIDER = 32, 3.0
"""Where smoothness is judged: so many points along one coordinate, twice as many among more of them, and as
many again in a region so many times as wide, since a model is also used outside of the data."""
WEIGHTS: dict[str, Any] = {"deviation": 3.0, "network": True}
"""The prior on weights is weak, as smoothness restrains them."""
Scales = tuple[np.ndarray, np.ndarray, float]
Learned = TypeVar("Learned", bound="AbstractLearnedPotential")


class NaturalUnits(NamedTuple):
    """Scales of a recording.

    Arguments:
        positions: all positions, of which those of one body or of all are taken.
        distances: the centre and half the range of distances between bodies.
        acceleration: a typical size of accelerations between impacts.
        length: half the widest range of positions.
        time: in which typical speeds cover that length.
    """

    positions: Float[np.ndarray, "samples bodies dimension"]
    distances: Float[np.ndarray, "2"]
    acceleration: float
    length: float
    time: float


class Collocation(NamedTuple):
    """Points, in natural units, where the roughness of a force is judged, and a direction at each."""

    points: Float[Values, "points inputs"]
    directions: Float[Values, "points inputs"]


class ScaledNetwork(eqx.Module):
    """A potential network in natural units."""

    centre: Float[Values, "inputs"]
    scale: Float[Values, "inputs"]
    unit: Float[Values, ""]
    weight: Float[Values, "hidden inputs"] = parameter("potential", "weight", **WEIGHTS)
    bias: Float[Values, "hidden"] = parameter("potential", "bias", **WEIGHTS)
    output: Float[Values, "hidden"] = parameter("potential", "output weight", **WEIGHTS)

    @classmethod
    def zero(cls, inputs: int, hidden: int) -> "ScaledNetwork":
        """All weights 0, in units of 1."""
        weights = np.zeros((hidden, inputs)), np.zeros(hidden), np.zeros(hidden)
        return cls(np.zeros(inputs), np.ones(inputs), np.ones(()), *weights)

    @property
    def weights(self) -> tuple[Any, Any, Any]:
        """What is learned; of any type, since `eqx.tree_at` puts markers in their places."""
        return self.weight, self.bias, self.output

    def random(self, generator: np.random.Generator) -> "ScaledNetwork":
        """Random weights where an estimate may begin."""
        weight, bias, output = (generator.standard_normal(part.shape) for part in self.weights)
        # Small output weights: an estimate begins with almost no force.
        return eqx.tree_at(lambda n: n.weights, self, (weight, bias, 0.1 * output))

    def glorot(self, key: Key[Array, ""]) -> "ScaledNetwork":
        """Random weights as the paper's recipe begins with."""
        hidden, inputs = self.weight.shape
        plain = potential_network(inputs, hidden=hidden, activation="softplus", key=key)
        return eqx.tree_at(lambda n: n.weights, self, (plain.weight, plain.bias, plain.output))

    def energy(self, x: Float[Array, "inputs"]) -> Float[Array, ""]:
        """U(x)."""
        unit, inside = self._units(x)
        return unit * self._network(inside[None])

    def gradient(self, x: Float[Array, "inputs"]) -> Float[Array, "inputs"]:
        """∂U/∂x."""
        unit, inside = self._units(x)
        slope = self._network.gradient(inside[None])[0]
        return unit * slope / jax.lax.stop_gradient(jnp.asarray(self.scale, x.dtype))

    def roughness(self, collocation: Collocation) -> tuple[Float[Array, "points"], Float[Array, "points"]]:
        """How the force changes along a direction at every point, and how that changes; in natural units.

        A uniform force has neither, a spring's has only the first: the prior makes each as small as the data
        allow.
        """
        hidden = self.bias.shape[-1]

        def along(point, direction):
            def component(step):
                inner = jnp.sum(self.weight * (point + step * direction)[None, :], axis=1) + self.bias
                slope = jnp.sum(self.weight * direction[None, :], axis=1)
                return jnp.sum(self.output * slope * jax.nn.sigmoid(inner)) / np.sqrt(hidden)

            first = jax.jacfwd(component)
            return first(0.0), jax.jacfwd(first)(0.0)

        count = np.sqrt(len(collocation.points))
        change, bend = jax.vmap(along)(*(jnp.asarray(part) for part in collocation))
        return change / count, bend / count

    @property
    def _network(self) -> PotentialNetwork:
        weight, bias, output = (jnp.asarray(part) for part in self.weights)
        # Softplus is smooth and grows linearly, so that the force stays bounded outside of the data.
        return PotentialNetwork(weight, bias, output, "softplus")

    def _units(self, x: Float[Array, "inputs"]) -> tuple[Float[Array, ""], Float[Array, "inputs"]]:
        # Units are constants: no gradient may move them.
        centre, scale, unit = (
            jax.lax.stop_gradient(jnp.asarray(part, x.dtype)) for part in (self.centre, self.scale, self.unit)
        )
        return unit / np.sqrt(self.bias.shape[-1]), (x - centre) / scale


class AbstractLearnedPotential(AbstractPotential):
    """A potential with a network in it."""

    network: eqx.AbstractVar[ScaledNetwork]

    @classmethod
    @abstractmethod
    def inputs(cls, scene: Scene) -> int:
        """How many numbers the network depends on."""

    @abstractmethod
    def scales(self, units: NaturalUnits) -> Scales:
        """The centre and half range of its inputs, and the length over which the force does work."""

    @classmethod
    def for_scene(cls: type[Learned], scene: Scene, *, hidden: int = 32) -> Learned:
        return cls(ScaledNetwork.zero(cls.inputs(scene), hidden))

    @property
    def options(self) -> dict[str, Any]:
        # The size of a network is not a static field, but the shape of its weights.
        return {"hidden": self.network.bias.shape[-1]}

    def in_units(self: Learned, units: NaturalUnits) -> Learned:
        """The same with a network in the natural units of a recording."""
        centre, scale, reach = self.scales(units)
        # A recording without accelerations or without motion has no scale of its own: no division by 0.
        energy = np.asarray(max(units.acceleration, 1e-9 * units.length / units.time**2) * reach)
        places = lambda f: (f.network.centre, f.network.scale, f.network.unit)  # noqa: E731
        return eqx.tree_at(places, self, (centre, scale, energy))

    def collocation(self, units: NaturalUnits) -> Collocation:
        """Where the roughness of the force is judged."""
        width = self.network.weight.shape[1]
        if width == 1:
            points = np.linspace(-1, 1, COLLOCATION_POINTS)[:, None]
            return Collocation(points, np.ones_like(points))
        values = units.positions.reshape(-1, width)
        whole = values[np.isfinite(values).all(axis=1)]
        # A grid over several coordinates would be too large: points of the data, and those pushed outwards.
        chosen = whole[np.linspace(0, len(whole) - 1, 2 * COLLOCATION_POINTS).astype(int)]
        inside = (chosen - np.asarray(self.network.centre)) / np.asarray(self.network.scale)
        points = np.concatenate([inside, WIDER * inside])
        directions = np.random.default_rng(0).standard_normal(points.shape)
        return Collocation(points, directions / np.linalg.norm(directions, axis=1, keepdims=True))


def _range_of_positions(self: AbstractLearnedPotential, units: NaturalUnits) -> Scales:
    values = units.positions.reshape(-1, self.network.weight.shape[1])
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    scale = np.maximum(0.5 * (high - low), 1e-9 * units.length)
    return 0.5 * (low + high), scale, scale.max()


class LearnedPotential(AbstractLearnedPotential):
    """All bodies move in one field, U = Σ m_k φ(q_k), and act on each other by contact alone."""

    name: ClassVar[str] = "potential"
    network: ScaledNetwork
    scales = _range_of_positions

    @classmethod
    def inputs(cls, scene: Scene) -> int:
        return scene.dimension

    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        return jnp.sum(masses * jax.vmap(self.network.energy)(position))

    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        return masses[:, None] * jax.vmap(self.network.gradient)(position)


class LearnedJointPotential(AbstractLearnedPotential):
    """U is any function of all coordinates together."""

    name: ClassVar[str] = "joint-potential"
    network: ScaledNetwork
    scales = _range_of_positions

    @classmethod
    def inputs(cls, scene: Scene) -> int:
        return scene.coordinates

    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        return self.network.energy(position.ravel())

    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        return self.network.gradient(position.ravel()).reshape(position.shape)


class LearnedPairPotential(AbstractLearnedPotential):
    """Each two bodies act on each other by their distance, U = Σ_{i<j} ψ(|q_i − q_j|), whatever their
    number."""

    name: ClassVar[str] = "pair-potential"
    network: ScaledNetwork

    @classmethod
    def inputs(cls, scene: Scene) -> int:
        return 1

    def scales(self, units: NaturalUnits) -> Scales:
        centre, half = units.distances
        return np.array([centre]), np.array([half]), units.length

    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        _, distance = _differences(position)
        return jnp.sum(jax.vmap(self.network.energy)(distance[:, None]))

    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        first, second = np.triu_indices(len(position), 1)
        apart, distance = _differences(position)
        slope = jax.vmap(self.network.gradient)(distance[:, None])[:, 0]
        # Bodies whose centres coincide have no direction: their difference is 0, and so is the force.
        along = (slope / jnp.maximum(distance, jnp.finfo(distance.dtype).tiny))[:, None] * apart
        return jnp.zeros_like(position).at[first].add(along).at[second].add(-along)


class LinearisedPotentialForce(AbstractPotential):
    """A learned potential to first order in a change of its weights: U(q; θ) + ∂U/∂θ · δθ.

    The Laplace approximation is exact for this one. A network with changed weights would bend where the data
    determine only what the weights do together.
    """

    base: AbstractLearnedPotential
    change: ScaledNetwork
    """δθ, stored in the place of the weights."""

    @classmethod
    def for_scene(cls, scene: Scene) -> "LinearisedPotentialForce":
        raise TypeError("A linearised potential is made from a fit.")

    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        return self._first_order(lambda force: force.energy(position, masses))

    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        return self._first_order(lambda force: force.gradient(position, masses))

    def _first_order(self, of: Callable[[AbstractLearnedPotential], Array]) -> Array:
        def value(*weights):
            return of(eqx.tree_at(lambda force: force.network.weights, self.base, weights))

        # The centre and the units are no weights: only these three have a tangent.
        at, along = (tuple(map(jnp.asarray, net.weights)) for net in (self.base.network, self.change))
        base, tangent = jax.jvp(value, at, along)
        return base + tangent


def _differences(position: Coordinates) -> tuple[Float[Array, "pairs dimension"], Float[Array, "pairs"]]:
    first, second = np.triu_indices(len(position), 1)
    apart = position[first] - position[second]
    return apart, length(apart)
