"""The free parameters of a fit: the map from vectors of estimated values to a mechanism, and their priors.

Which parameters are free, and whether one value serves all runs or each run has its own, belongs to the fit.
Shapes are static and hashable, since programs are compiled for each; maps, priors and bounds are arrays, so
that a change of their numbers does not recompile anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.contact_laws import AbstractRestitution
from carom.errors import SettingsError
from carom.estimation.parameters.sharing import Share, Sharing, share_values
from carom.forces import AbstractForce, AbstractLearnedPotential, NaturalUnits
from carom.forces.learned_potential import Collocation
from carom.mechanics import ParameterSpec, at, named_parts, parameters_of
from carom.mechanics.parameter import Path
from carom.models import Mechanism
from carom.types import State, Values

PER_RUN = "-per-run"
"""Suffix of the name of a parameter that has one value per run."""
PER_IMPACT = "scatter"
"""Name of the deviations of single impacts."""
ALWAYS_LEARNED = "potential"


@dataclass(frozen=True)
class Block:
    """Estimated values that determine one field of a mechanism."""

    path: Path
    shape: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Layout:
    """The vector of values shared by all runs, network weights first, and the local vector of a segment.

    A local vector holds the start state, then the deviations of the impacts in the segment, and those of the
    run, from the shared parameters. Pooled ones, whose standard deviation is estimated, come first.
    """

    shared: tuple[Block, ...]
    local: tuple[Block, ...]
    bodies: int
    dimension: int
    weights: int
    impacts: tuple[int, ...]
    """Numbers of deviations of single impacts, of each kind; those of a kind have one standard deviation."""
    pooled: int
    """Number of deviations of a run whose standard deviation is estimated."""

    @property
    def size(self) -> int:
        """Number of values shared by all runs."""
        return sum(block.count for block in self.shared)

    @property
    def state(self) -> int:
        """Size of a start state."""
        return 2 * self.bodies * self.dimension

    @property
    def local_size(self) -> int:
        """Size of the local vector of a segment."""
        return self.state + sum(block.count for block in self.local)

    @property
    def pools(self) -> tuple[int, ...]:
        """Numbers of pooled deviations that have one standard deviation."""
        return self.impacts + (1,) * self.pooled

    @property
    def pooled_slice(self) -> slice:
        """The pooled deviations within a local vector."""
        return slice(self.state, self.own + self.pooled)

    @property
    def own(self) -> int:
        """Place of the first deviation of the run within a local vector."""
        return self.state + sum(self.impacts)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields of a mechanism that depend on estimated values, each once."""
        return tuple(dict.fromkeys(block.path for block in (*self.shared, *self.local)))

    def shared_slices(self) -> Iterator[tuple[Block, slice]]:
        """The shared blocks, each with its place in the shared vector."""
        return _slices(self.shared, 0)

    def local_slices(self) -> Iterator[tuple[Block, slice]]:
        """The local blocks, each with its place in the local vector of a segment."""
        return _slices(self.local, self.state)

    def start(self, local: Float[Array, "local"]) -> State:
        """The start state of a segment."""
        position, velocity = local[: self.state].reshape(2, self.bodies, self.dimension)
        return State(position, velocity)


def _slices(blocks: Sequence[Block], first: int) -> Iterator[tuple[Block, slice]]:
    for block in blocks:
        yield block, slice(first, first + block.count)
        first += block.count


class Maps(NamedTuple):
    """Entries of fields as affine functions of values, block by block: entries = base + map @ values."""

    base: tuple[Float[Values, "entries"], ...]
    shared: tuple[Float[Values, "entries values"] | None, ...]
    """None for the identity, which saves a product per step for network weights."""
    local: tuple[Float[Values, "entries values"], ...]


class Priors(NamedTuple):
    """Gaussian priors and bounds.

    Arguments:
        mean, precision: of the shared values.
        lower, upper: bounds of the shared values.
        local_precision: of the deviations of a run from the shared values.
        collocation: points at which the roughness of each learned force is evaluated.
        spread: scales of the standard deviations of pooled deviations.
        resolution: lower bounds on the noise of positions and velocities, so that noise-free data have a
            finite likelihood.
    """

    mean: Float[Values, "shared"]
    precision: Float[Values, "shared"]
    lower: Float[Values, "shared"]
    upper: Float[Values, "shared"]
    local_precision: Float[Values, "added"]
    collocation: tuple[Collocation, ...]
    spread: Float[Values, "pools"]
    resolution: Float[Values, "2"]


def free_leaves(layout: Layout, maps: Maps, template: Mechanism, shared, local=None) -> tuple[Array, ...]:
    """The fields that depend on estimated values, in the order of `layout.paths`."""
    fields: dict[Path, Array] = {}
    for (block, rows), base, shared_map in zip(layout.shared_slices(), maps.base, maps.shared, strict=True):
        values = jnp.asarray(shared)[rows]
        entries = values if shared_map is None else jnp.asarray(base) + jnp.asarray(shared_map) @ values
        fields[block.path] = entries.reshape(block.shape)
    for (block, rows), local_map in zip(layout.local_slices(), maps.local, strict=True):
        # A parameter may be estimated per run only; the runs then deviate from the template.
        common = fields.get(block.path)
        if common is None:
            common = jnp.asarray(at(block.path)(template)[0])
        if local is not None:
            values = jnp.asarray(local)[rows]
            deviation = jnp.asarray(local_map, values.dtype) @ values
            common = common + deviation.reshape(block.shape)
        fields[block.path] = common
    return tuple(fields[path] for path in layout.paths)


def with_leaves(layout: Layout, template: Mechanism, leaves: Sequence[Array]) -> Mechanism:
    """The mechanism with these fields, given in the order of `layout.paths`."""
    return eqx.tree_at(at(*layout.paths), template, tuple(leaves)) if layout.paths else template


def with_values(layout: Layout, maps: Maps, template: Mechanism, shared, local=None) -> Mechanism:
    """The mechanism with estimated values: the common one, or that of one run if `local` is given."""
    return with_leaves(layout, template, free_leaves(layout, maps, template, shared, local))


def with_added(layout: Layout, maps: Maps, mechanism: Mechanism, added: Float[Values, "added"]) -> Mechanism:
    """A fitted mechanism with the deviations of one run: the local vector without its start state."""
    if not layout.local:
        return mechanism
    bare = Layout((), layout.local, layout.bodies, layout.dimension, 0, (), layout.pooled)
    local = jnp.concatenate([jnp.zeros(layout.state, jnp.asarray(added).dtype), jnp.asarray(added)])
    return with_values(bare, Maps((), (), maps.local), mechanism, jnp.zeros(0), local)


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """The free parameters of a mechanism for one recording."""

    template: Mechanism
    """Holds the fixed parameters, and the initial values of the free ones."""
    layout: Layout
    maps: Maps
    specs: tuple[ParameterSpec, ...]
    """Of the shared blocks."""
    sharings: tuple[Sharing, ...]
    local_specs: tuple[ParameterSpec, ...]
    local_sharings: tuple[Sharing, ...]

    @classmethod
    def of(cls, template: Mechanism, learn: Sequence[str], *, share: Share = "each") -> "FreeParameters":
        """Select the free parameters of a mechanism.

        Arguments:
            template: the mechanism with its fixed and initial values.
            learn: names of parameters; the suffix "-per-run" gives each run a value of its own.
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
            if spec.axis == "impact":
                size = int(np.prod(shape))
                local.append((path, spec, shape, Sharing(np.eye(size), (spec.name,) * size, ((),) * size)))
                continue
            if spec.key in names and np.prod(shape):
                shared.append((path, spec, shape, share_values(spec, shape, scene, share, radii=radii)))
            # Runs deviate in the constant term of a law only; single runs hardly determine the higher terms.
            if spec.key.split("-")[0] in per_run:
                each = share_values(spec, shape, scene, "each", radii=False)
                terms = len(spec.terms) or 1
                first = slice(None, None, terms)
                each = Sharing(each.map[:, first], each.names[first], each.contacts[first])
                local.append((path, spec, shape, each))
        local.sort(key=lambda item: (item[1].axis != "impact", not item[1].pooled))
        layout = Layout(
            tuple(Block(path, shape, sharing.map.shape[1]) for path, _, shape, sharing in shared),
            tuple(Block(path, shape, sharing.map.shape[1]) for path, _, shape, sharing in local),
            scene.bodies,
            scene.dimension,
            sum(sharing.map.shape[1] for _, spec, _, sharing in shared if spec.network),
            tuple(sharing.map.shape[1] for _, spec, _, sharing in local if spec.axis == "impact"),
            sum(
                sharing.map.shape[1] for _, spec, _, sharing in local if spec.pooled and spec.axis != "impact"
            ),
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

    def without_impacts(self) -> "FreeParameters":
        """The same without deviations of single impacts, as for motions that have not been recorded."""
        kinds = len(self.layout.impacts)
        return replace(
            self,
            template=replace(self.template, deviations=None),
            layout=replace(self.layout, local=self.layout.local[kinds:], impacts=()),
            maps=self.maps._replace(local=self.maps.local[kinds:]),
            local_specs=self.local_specs[kinds:],
            local_sharings=self.local_sharings[kinds:],
        )

    def values_of(self, mechanism: Mechanism) -> Float[np.ndarray, "shared"]:
        """The shared values that reproduce a mechanism best, for example its initial values."""
        parts = [np.zeros(0)]
        for block, base, sharing in zip(self.layout.shared, self.maps.base, self.sharings, strict=True):
            entries = np.ravel(np.asarray(at(block.path)(mechanism)[0], float)) - base
            counts = sharing.map.sum(axis=0)
            if set(np.unique(sharing.map)) <= {0.0, 1.0} and not sharing.relative:
                # Entries that share a value: their median is robust to a single bad initial guess.
                parts.append(
                    np.array([np.median(entries[column > 0]) for column in sharing.map.T])
                    if len(counts)
                    else counts
                )
            else:
                parts.append(np.linalg.lstsq(sharing.map, entries, rcond=None)[0])
        return np.concatenate(parts)

    def _scales(self, units: NaturalUnits) -> Float[np.ndarray, "pools"]:
        """Of pooled deviations: one for each kind of those of impacts, one for each of those of runs."""
        scales = []
        for block, spec in zip(self.layout.local, self.local_specs, strict=True):
            if spec.pooled:
                scales += [spec.scale(units.length, units.time)] * (
                    1 if spec.axis == "impact" else block.count
                )
        return np.array(scales)

    def priors(
        self, units: NaturalUnits, start: Float[np.ndarray, "shared"], resolution: np.ndarray
    ) -> Priors:
        """Priors in the units of a recording; those without a natural mean are centred at `start`."""
        mean, deviation, lower, upper = (np.zeros(0) for _ in range(4))
        for (block, rows), spec in zip(self.layout.shared_slices(), self.specs, strict=True):
            scale = spec.scale(units.length, units.time)
            first = np.arange(block.count) % (len(spec.terms) or 1) == 0
            centre = start[rows] if spec.mean is None else np.where(first, spec.mean * scale, 0.0)
            mean = np.concatenate([mean, centre])
            deviation = np.concatenate([deviation, np.full(block.count, spec.deviation * scale)])
            lower = np.concatenate([lower, np.full(block.count, spec.lower)])
            upper = np.concatenate([upper, np.full(block.count, spec.upper)])
        local_precision = [
            np.full(block.count, (spec.deviation * spec.scale(units.length, units.time)) ** -2)
            for block, spec in zip(self.layout.local, self.local_specs, strict=True)
        ]
        learned = [force for force in self.template.forces if isinstance(force, AbstractLearnedPotential)]
        return Priors(
            mean,
            deviation**-2,
            lower,
            upper,
            np.concatenate([np.zeros(0), *local_precision]),
            tuple(force.collocation(units) for force in learned),
            self._scales(units),
            resolution,
        )


def roughness(mechanism: Mechanism, collocation: Sequence[Collocation]) -> Float[Array, "2 points"]:
    """First and second derivatives of the learned forces at their collocation points."""
    learned = [force for force in mechanism.forces if isinstance(force, AbstractLearnedPotential)]
    if not learned:
        return jnp.zeros((2, 1))
    parts = [force.network.roughness(points) for force, points in zip(learned, collocation, strict=True)]
    return jnp.stack([jnp.concatenate(both) for both in zip(*parts, strict=True)])


def require_learnable(template: Mechanism, learn: Sequence[str]) -> None:
    """Raise an error for a name that no part of the mechanism declares."""
    known = {spec.key for _, spec in parameters_of(template)} | {"radii"}
    # Potentials are chosen by a setting of their own.
    forces = {name for name in named_parts(AbstractForce) if "potential" not in name}
    laws = set(named_parts(AbstractRestitution))
    offered = (known - {"potential"}) | forces | laws | {"friction", "duration", "normals", PER_IMPACT}
    for name in learn:
        plain = name.removesuffix(PER_RUN)
        # Runs may deviate from a law with several terms as well as from a constant.
        if plain not in known and (plain == name or plain not in {key.split("-")[0] for key in known}):
            raise SettingsError(
                f"`learn` {name}: there is no such parameter; choose among {', '.join(sorted(offered))}."
            )


def _is_identity(matrix: np.ndarray) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == np.eye(len(matrix))).all())
