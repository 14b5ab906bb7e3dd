"""The free parameters of a fit: from vectors of estimated values to a mechanism, and what is known of them
before.

Which parameters are free, and whether one value serves all runs or each run has its own, belongs to the fit.
Shapes are
hashable, so that programs are compiled once for each; maps, priors and bounds are arrays, so that they are
not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.errors import InputError
from carom.estimation.parameters.sharing import Share, Sharing, share_values
from carom.forces import AbstractForce, AbstractLearnedPotential, NaturalUnits
from carom.forces.learned_potential import Collocation
from carom.mechanics import ParameterSpec, at, named_parts, parameters_of
from carom.mechanics.parameter import Path
from carom.models import Mechanism
from carom.types import State, Values

PER_RUN = "-per-run"
"""What is added to the name of a parameter that each run has a value of its own for."""
ALWAYS_LEARNED = "potential"


@dataclass(frozen=True)
class Block:
    """Where in a mechanism some estimated values go."""

    path: Path
    shape: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Layout:
    """Vectors of estimated values: one for all runs, weights of networks first; and one for every segment.

    That of a segment has its start state first, then what its run adds to the parameters of all; of these the
    ones that scatter with an estimated standard deviation come first.
    """

    shared: tuple[Block, ...]
    local: tuple[Block, ...]
    bodies: int
    dimension: int
    weights: int
    pooled: int
    """How many values of a run scatter with an estimated standard deviation."""

    @property
    def size(self) -> int:
        """How many values all runs share."""
        return sum(block.count for block in self.shared)

    @property
    def state(self) -> int:
        """Elements of a start state."""
        return 2 * self.bodies * self.dimension

    @property
    def local_size(self) -> int:
        """How many values a segment has."""
        return self.state + sum(block.count for block in self.local)

    @property
    def pooled_slice(self) -> slice:
        """Where in the vector of a segment the pooled values are."""
        return slice(self.state, self.state + self.pooled)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields of a mechanism that depend on estimated values."""
        return tuple(dict.fromkeys(block.path for block in (*self.shared, *self.local)))

    def start(self, local: Float[Array, "local"]) -> State:
        """The start state of a segment."""
        position, velocity = local[: self.state].reshape(2, self.bodies, self.dimension)
        return State(position, velocity)


class Maps(NamedTuple):
    """How entries of fields follow from values, block by block: entries = base + map @ values."""

    base: tuple[Float[Values, "entries"], ...]
    shared: tuple[Float[Values, "entries values"] | None, ...]
    """None where the values are the entries themselves."""
    local: tuple[Float[Values, "entries values"], ...]


class Priors(NamedTuple):
    """What is known before any data.

    Arguments:
        mean, precision: of the shared values.
        lower, upper: bounds of the shared values.
        local_precision: of what a run adds to the parameters of all.
        collocation: where the roughness of each learned force is judged.
        resolution: the least noise that positions and velocities are taken to have, which exact data need.
    """

    mean: Float[Values, "shared"]
    precision: Float[Values, "shared"]
    lower: Float[Values, "shared"]
    upper: Float[Values, "shared"]
    local_precision: Float[Values, "added"]
    collocation: tuple[Collocation, ...]
    resolution: Float[Values, "2"]


def free_leaves(layout: Layout, maps: Maps, template: Mechanism, shared, local=None) -> tuple[Array, ...]:
    """The fields that depend on estimated values, in the order of `layout.paths`."""
    values: dict[Path, Array] = {}
    first = 0
    for block, base, shared_map in zip(layout.shared, maps.base, maps.shared, strict=True):
        part = jnp.asarray(shared)[first : first + block.count]
        first += block.count
        entries = part if shared_map is None else jnp.asarray(base) + jnp.asarray(shared_map) @ part
        values[block.path] = entries.reshape(block.shape)
    first = layout.state
    for block, local_map in zip(layout.local, maps.local, strict=True):
        before = values.get(block.path)
        if before is None:
            before = jnp.asarray(at(block.path)(template)[0])
        if local is not None:
            part = jnp.asarray(local)[first : first + block.count]
            added = jnp.asarray(local_map, part.dtype) @ part
            before = before + added.reshape(block.shape)
        first += block.count
        values[block.path] = before
    return tuple(values[path] for path in layout.paths)


def with_leaves(layout: Layout, template: Mechanism, leaves: Sequence[Array]) -> Mechanism:
    """The mechanism with these fields."""
    return eqx.tree_at(at(*layout.paths), template, tuple(leaves)) if layout.paths else template


def with_values(layout: Layout, maps: Maps, template: Mechanism, shared, local=None) -> Mechanism:
    """The mechanism that estimated values describe, as it is in one run where those of a segment are
    given."""
    return with_leaves(layout, template, free_leaves(layout, maps, template, shared, local))


def with_added(layout: Layout, maps: Maps, mechanism: Mechanism, added: Float[Values, "added"]) -> Mechanism:
    """A fitted mechanism as it is in one run: `added` is what comes after the start state of a segment."""
    if not layout.local:
        return mechanism
    bare = Layout((), layout.local, layout.bodies, layout.dimension, 0, layout.pooled)
    local = jnp.concatenate([jnp.zeros(layout.state, jnp.asarray(added).dtype), jnp.asarray(added)])
    return with_values(bare, Maps((), (), maps.local), mechanism, jnp.zeros(0), local)


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """All that a fit knows of its parameters before it begins, for one recording."""

    template: Mechanism
    """With the numbers that the estimate starts from."""
    layout: Layout
    maps: Maps
    specs: tuple[ParameterSpec, ...]
    """Of the shared blocks."""
    sharings: tuple[Sharing, ...]
    local_specs: tuple[ParameterSpec, ...]
    local_sharings: tuple[Sharing, ...]

    @classmethod
    def of(cls, template: Mechanism, learn: Sequence[str], *, share: Share = "each") -> "FreeParameters":
        """What of a mechanism is free.

        Arguments:
            template: with the numbers that are stated or where the estimate starts.
            learn: names of parameters; with "-per-run" at the end, each run has a value of its own.
            share: which contacts share a contact law.
        """
        scene = template.scene
        names = set(learn) | {ALWAYS_LEARNED}
        radii = "radii" in names
        names = (names | {"surfaces"}) - {"radii"} if radii else names
        found = sorted(parameters_of(template), key=lambda item: not item[1].network)
        per_run = {name.removesuffix(PER_RUN) for name in names if name.endswith(PER_RUN)}
        shared, local = [], []
        for path, spec in found:
            shape = np.shape(at(path)(template)[0])
            if spec.key in names and np.prod(shape):
                shared.append((path, spec, shape, share_values(spec, shape, scene, share, radii=radii)))
            # Runs differ in the first term of a law; what its further terms say holds for all.
            if spec.key.split("-speed")[0] in per_run:
                each = share_values(spec, shape, scene, "each", radii=False)
                terms = len(spec.terms) or 1
                first = slice(None, None, terms)
                each = Sharing(each.map[:, first], each.names[first], each.contacts[first])
                local.append((path, spec, shape, each))
        local.sort(key=lambda item: not item[1].pooled)
        layout = Layout(
            tuple(Block(path, shape, sharing.map.shape[1]) for path, _, shape, sharing in shared),
            tuple(Block(path, shape, sharing.map.shape[1]) for path, _, shape, sharing in local),
            scene.bodies,
            scene.dimension,
            sum(sharing.map.shape[1] for _, spec, _, sharing in shared if spec.network),
            sum(sharing.map.shape[1] for _, spec, _, sharing in local if spec.pooled),
        )
        stated = [np.ravel(at(path)(template)[0]).astype(float) for path, *_ in shared]
        maps = Maps(
            tuple(
                value if sharing.relative else np.zeros_like(value)
                for value, (*_, sharing) in zip(stated, shared, strict=True)
            ),
            tuple(None if _is_identity(sharing.map) else sharing.map for *_, sharing in shared),
            tuple(sharing.map for *_, sharing in local),
        )
        return cls(
            template,
            layout,
            maps,
            tuple(spec for _, spec, _, _ in shared),
            tuple(sharing for *_, sharing in shared),
            tuple(spec for _, spec, _, _ in local),
            tuple(sharing for *_, sharing in local),
        )

    def values_of(self, mechanism: Mechanism) -> Float[np.ndarray, "shared"]:
        """The values that describe a mechanism best, such as one with the numbers that an estimate starts
        from."""
        parts = [np.zeros(0)]
        for block, base, sharing in zip(self.layout.shared, self.maps.base, self.sharings, strict=True):
            entries = np.ravel(np.asarray(at(block.path)(mechanism)[0], float)) - base
            counts = sharing.map.sum(axis=0)
            if set(np.unique(sharing.map)) <= {0.0, 1.0} and not sharing.relative:
                # Entries that share a value: their median, which one that is far off does not move.
                parts.append(
                    np.array([np.median(entries[column > 0]) for column in sharing.map.T])
                    if len(counts)
                    else counts
                )
            else:
                parts.append(np.linalg.lstsq(sharing.map, entries, rcond=None)[0])
        return np.concatenate(parts)

    def priors(
        self, units: NaturalUnits, start: Float[np.ndarray, "shared"], resolution: np.ndarray
    ) -> Priors:
        """Priors in the units of a recording; those without a natural mean are centred at the start."""
        mean, deviation, lower, upper = (np.zeros(0) for _ in range(4))
        for block, spec in zip(self.layout.shared, self.specs, strict=True):
            scale = spec.scale(units.length, units.time)
            first = np.arange(block.count) % (len(spec.terms) or 1) == 0
            here = start[len(mean) : len(mean) + block.count]
            centred = here if spec.mean is None else np.where(first, spec.mean * scale, 0.0)
            mean = np.concatenate([mean, centred])
            deviation = np.concatenate([deviation, np.full(block.count, spec.deviation * scale)])
            lower = np.concatenate([lower, np.full(block.count, spec.lower)])
            upper = np.concatenate([upper, np.full(block.count, spec.upper)])
        added = [
            np.full(block.count, (spec.deviation * spec.scale(units.length, units.time)) ** -2)
            for block, spec in zip(self.layout.local, self.local_specs, strict=True)
        ]
        learned = [force for force in self.template.forces if isinstance(force, AbstractLearnedPotential)]
        return Priors(
            mean,
            deviation**-2,
            lower,
            upper,
            np.concatenate([np.zeros(0), *added]),
            tuple(force.collocation(units) for force in learned),
            resolution,
        )


def roughness(
    layout: Layout, mechanism: Mechanism, collocation: Sequence[Collocation]
) -> Float[Array, "2 points"]:
    """How the learned forces change, and how that changes, at their collocation points."""
    learned = [force for force in mechanism.forces if isinstance(force, AbstractLearnedPotential)]
    if not learned:
        return jnp.zeros((2, 1))
    parts = [force.network.roughness(points) for force, points in zip(learned, collocation, strict=True)]
    return jnp.stack([jnp.concatenate(both) for both in zip(*parts, strict=True)])


def require_learnable(template: Mechanism, learn: Sequence[str]) -> None:
    """Refuse names that no part of the mechanism has."""
    known = {spec.key for _, spec in parameters_of(template)} | {"radii"}
    offered = known | set(named_parts(AbstractForce))
    for name in learn:
        plain = name.removesuffix(PER_RUN)
        if plain not in known and f"{plain}-speed" not in known:
            raise InputError(
                f"There is nothing called {name!r} to learn; there are {', '.join(sorted(offered))}."
            )


def _is_identity(matrix: np.ndarray) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == np.eye(len(matrix))).all())
