"""Contact geometry: gaps, normals and Jacobians of all candidate contacts.

A candidate contact j is between a body and a wall, or between two bodies. With the signs s_jk (+1 for the
first body, −1 for the second) its relative position is r = Σ_k s_jk q_k, and its gap, negative in overlap,

    g = max_p (n_p·r − offset_p)    for flat surfaces: a wall, or two bodies on a line
    g = |r| − offset                for two bodies in the plane or in space

They define the normal n = ∂g/∂r, the rows G_jk = s_jk n of the contact Jacobian, and the rate of the gap
u = G V, negative when closing. All functions accept leading batch axes, and JAX or NumPy arrays.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from carom.errors import InputError
from carom.mechanics.parameter import parameter
from carom.types import Coordinates, Jacobian, PerContact, Values

Plane = tuple[tuple[float, ...], float]
"""Unit normal n and offset; points behind the plane have n·q < offset."""
if TYPE_CHECKING:
    # The same functions serve JAX and NumPy, and return arrays of the kind that they receive.
    Vectors: TypeAlias = Any
    Gaps: TypeAlias = Any
    Jacobians: TypeAlias = Any
else:
    Vectors = Float[Values, "*batch contacts dimension"]
    Gaps = Float[Values, "*batch contacts"]
    Jacobians = Float[Values, "*batch contacts bodies dimension"]
Positions = Float[Values, "*batch bodies dimension"]
FAR = 1e30


@dataclass(frozen=True)
class Wall:
    """A body against a fixed plane: g = n·q − offset, with n pointing from the wall to the body.

    A wall with `edges` ends there: it is the solid that lies behind its own plane and behind that of every
    edge, and g = max (n·q − offset) over these planes (a step of a flight of stairs has one edge).
    """

    body: int
    normal: tuple[float, ...]
    offset: float = 0.0
    edges: tuple[Plane, ...] = ()

    @property
    def bodies(self) -> tuple[int, ...]:
        return (self.body,)

    @property
    def planes(self) -> tuple[Plane, ...]:
        """The wall's own plane, then those of its edges."""
        return ((self.normal, self.offset), *self.edges)


@dataclass(frozen=True)
class Pair:
    """Two bodies: g = |q_first − q_second| − offset, where the offset is the sum of their radii.

    In one dimension bodies cannot pass each other, so the gap keeps its sign:
    g = q_first − q_second − offset with `first` on the greater side.
    """

    first: int
    second: int
    offset: float = 0.0

    @property
    def bodies(self) -> tuple[int, ...]:
        return (self.first, self.second)


Candidate = Wall | Pair


class Contacts(NamedTuple):
    """Candidate contacts as arrays, one per row, so that compiled programs can select some by index.

    No module, as Equinox builds one at every access to a method, which takes ten times as long as the methods
    themselves take with NumPy arrays: loops over small steps call them a hundred thousand times.

    Example:
        >>> rows = ContactGeometry(2, 2, (Wall(0, (0.0, 1.0)), Pair(0, 1, offset=1.0))).rows
        >>> rows.take(jnp.array([1])).gap(jnp.array([[0.0, 2.0], [3.0, 6.0]]))
        Array([4.], dtype=float32)
    """

    signs: Float[Values, "contacts bodies"]
    curved: Bool[Values, "contacts"] | None
    """True for two bodies in the plane or in space; None if all surfaces are flat."""
    normal: Float[Values, "contacts planes dimension"]
    offset: Float[Values, "contacts planes"]

    def take(self, index: Int[Array, "some"]) -> "Contacts":
        """The contacts with these indices."""
        return jax.tree.map(lambda part: jnp.asarray(part)[index], self)

    def relative(self, coordinates: Positions) -> Vectors:
        """Positions, velocities or accelerations of first bodies relative to second ones, or to walls."""
        return _namespace(coordinates).asarray(self.signs, dtype=coordinates.dtype) @ coordinates

    def gap(self, position: Positions) -> Gaps:
        """g(Q)."""
        return self.gap_of(self.relative(position))

    def gap_of(self, relative: Vectors) -> Gaps:
        """The gap from relative positions."""
        xp = _namespace(relative)
        flat = self._heights(relative).max(axis=-1)
        if self.curved is None:
            return flat
        offset = xp.asarray(self.offset, dtype=relative.dtype)[:, 0]
        return xp.where(self.curved, length(relative) - offset, flat)

    def normal_of(self, relative: Vectors) -> Vectors:
        """n = ∂g/∂r, the direction in which every gap opens fastest."""
        xp = _namespace(relative)
        normal = xp.asarray(self.normal, dtype=relative.dtype)
        if normal.shape[1] == 1:
            flat = xp.broadcast_to(normal[:, 0], relative.shape)
        else:
            flat = normal[np.arange(len(normal)), self._heights(relative).argmax(axis=-1)]
        if self.curved is None:
            return flat
        distance = length(relative)[..., None]
        # Bodies whose centres coincide have no direction: the normal is 0 there.
        return xp.where(self.curved[:, None], relative / xp.where(distance > 0, distance, 1), flat)

    def jacobian(self, position: Positions) -> Jacobians:
        """G = ∂g/∂Q."""
        normal = self.normal_of(self.relative(position))
        signs = _namespace(position).asarray(self.signs, dtype=position.dtype)
        return signs[:, :, None] * normal[..., :, None, :]

    def _heights(self, relative: Vectors) -> Any:
        xp = _namespace(relative)
        normal, offset = (xp.asarray(part, dtype=relative.dtype) for part in (self.normal, self.offset))
        return (normal * relative[..., None, :]).sum(axis=-1) - offset


class ContactGeometry(eqx.Module):
    """The candidate contacts of a scene: the bodies that they join, and the positions of their surfaces.

    The bodies are static, the positions of surfaces are arrays, so that scenes of one kind share their
    compiled programs.

    Example:
        >>> floor = ContactGeometry(bodies=1, dimension=1, candidates=(Wall(body=0, normal=(1.0,)),))
        >>> floor.gap(jnp.array([[0.5]]))
        Array([0.5], dtype=float32)
    """

    normal: Float[Values, "contacts dimension"]
    """Of walls; 1 for pairs on a line."""
    # Edges are never estimated, so they are no parameters.
    edge_normal: Float[Values, "contacts edges dimension"]
    edge_offset: Float[Values, "contacts edges"]
    joined: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    bodies: int = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    offset: Float[Values, "contacts"] = parameter("surfaces", "surface", unit="length", mean=None)
    tilt: Float[Values, "contacts dimension"] | None = parameter("normals", "tilt", deviation=0.3)
    """Added to the normals of walls, which are then normalised; None if the normals are not estimated."""
    pivot: Float[Values, "dimension"] | None = None
    """Point about which walls are tilted, such as the middle of the motion: offsets are those that their
    planes would have without the tilt."""

    def __init__(self, bodies: int, dimension: int, candidates: tuple[Candidate, ...] = ()):
        require_candidates(bodies, dimension, candidates)
        walls = [c for c in candidates if isinstance(c, Wall)]
        along = (1.0,) + (0.0,) * (dimension - 1)
        count, edges = len(candidates), max((len(wall.edges) for wall in walls), default=0)
        normals = [c.normal if isinstance(c, Wall) else along for c in candidates]
        self.normal = np.array(normals, float).reshape(count, dimension)
        # Offsets are JAX arrays in systems whose parameters are traced.
        offsets = [c.offset for c in candidates]
        traced = any(isinstance(offset, jax.Array) for offset in offsets)
        self.offset = jnp.stack([jnp.asarray(x) for x in offsets]) if traced else np.array(offsets, float)
        # Walls with fewer edges than others are padded with planes far behind every body.
        self.edge_normal, self.edge_offset = np.zeros((count, edges, dimension)), np.full((count, edges), FAR)
        for row, wall in enumerate(walls):
            for number, (normal, offset) in enumerate(wall.edges):
                self.edge_normal[row, number], self.edge_offset[row, number] = normal, offset
        self.tilt = self.pivot = None
        self.joined = tuple(c.bodies for c in candidates)
        self.bodies, self.dimension = bodies, dimension

    def __len__(self) -> int:
        """Number of candidate contacts C."""
        return len(self.joined)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The declarations of the contacts."""
        normals, offsets = (np.asarray(part)[:, 0].tolist() for part in (self.rows.normal, self.rows.offset))
        surfaces = enumerate(zip(normals, offsets, strict=True))
        return tuple(self._candidate(row, tuple(normal), offset) for row, (normal, offset) in surfaces)

    @property
    def walls(self) -> tuple[Wall, ...]:
        return tuple(c for c in self.candidates if isinstance(c, Wall))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(c for c in self.candidates if isinstance(c, Pair))

    def _candidate(self, row: int, normal: tuple[float, ...], offset: float) -> Candidate:
        if len(self.joined[row]) == 2:
            first, second = self.joined[row]
            return Pair(first, second, offset)
        edges = tuple(
            (tuple(float(x) for x in edge), float(edge_offset))
            for edge, edge_offset in zip(self.edge_normal[row], self.edge_offset[row], strict=True)
            if edge_offset < FAR
        )
        return Wall(self.joined[row][0], normal, offset, edges)

    @property
    def body_pairs(self) -> Bool[np.ndarray, "contacts"]:
        """Which candidates join two bodies."""
        return np.array([len(bodies) == 2 for bodies in self.joined], bool)

    @property
    def signs(self) -> Float[np.ndarray, "contacts bodies"]:
        """+1 at the first body of a candidate and −1 at the second; a wall has no second."""
        signs = np.zeros((len(self), self.bodies))
        # Not row by row: scenes of many balls have thousands of candidates.
        signs[np.arange(len(self)), [bodies[0] for bodies in self.joined]] = 1.0
        pairs = np.flatnonzero(self.body_pairs)
        signs[pairs, [self.joined[row][1] for row in pairs]] = -1.0
        return signs

    @property
    def incidence(self) -> Bool[np.ndarray, "contacts bodies"]:
        """Which bodies take part in each candidate."""
        return self.signs != 0

    @property
    def coupled(self) -> bool:
        """Whether some body has several candidates, so that their impulses interact."""
        return bool((self.incidence.sum(axis=0) > 1).any())

    @property
    def edged(self) -> bool:
        """Whether some wall ends at an edge."""
        return self.edge_offset.shape[1] > 0

    @property
    def affine(self) -> bool:
        """Whether all gaps are affine functions of the position: planes, or bodies on a line."""
        return (self.dimension == 1 or not self.body_pairs.any()) and not self.edged

    @property
    def rows(self) -> Contacts:
        """The contacts as arrays."""
        # On a line a pair keeps its sign, so its gap is flat like that of a wall.
        curved = self.body_pairs & (self.dimension > 1)
        # Stated normals are constants: training must not change them by gradient descent.
        normal, offset = _constant(self.normal)[:, None], self.offset[:, None]
        xp = _namespace(self.offset) if self.tilt is None else _namespace(self.tilt)
        if self.tilt is not None:
            stated, normal = normal, normal + self.tilt[:, None]
            normal = normal / xp.sqrt(xp.sum(normal**2, axis=-1, keepdims=True))
            if self.pivot is not None:
                offset = offset + xp.einsum("cpd,d->cp", normal - stated, _constant(self.pivot))
        if self.edged:
            normal = xp.concatenate([normal, _constant(self.edge_normal)], axis=1)
            offset = xp.concatenate([offset, _constant(self.edge_offset)], axis=1)
        return Contacts(self.signs, curved if curved.any() else None, normal, offset)

    def gap(self, position: Positions) -> Gaps:
        """g(Q), one value per candidate."""
        return self.rows.gap(position)

    def jacobian(self, position: Positions) -> Jacobians:
        """G = ∂g/∂Q."""
        return self.rows.jacobian(position)


def length(vectors: Float[Values, "..."], *, axis: int = -1) -> Any:
    """|x| along an axis, with derivative 0 where x = 0."""
    # jnp.linalg.norm has the derivative NaN at 0, where bodies at rest are.
    xp, square = _namespace(vectors), (vectors**2).sum(axis=axis)
    return xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1)), 0)


def _namespace(array: Values) -> Any:
    """The module of an array, JAX or NumPy: detection calls these functions without compilation."""
    return jnp if isinstance(array, jax.Array) else np


def _constant(array: Values) -> Values:
    return jax.lax.stop_gradient(array) if isinstance(array, jax.Array) else array


def require_candidates(bodies: int, dimension: int, candidates: tuple[Candidate, ...]) -> None:
    """Refuse contacts that do not fit bodies and dimension; the message begins with the contact."""
    for candidate in candidates:
        if not all(0 <= body < bodies for body in candidate.bodies):
            raise InputError(f"{candidate} names a body beyond the {bodies} of the scene.")
        if isinstance(candidate, Pair) and candidate.first == candidate.second:
            raise InputError(f"{candidate} pairs a body with itself.")
        for normal, _ in candidate.planes if isinstance(candidate, Wall) else ():
            if len(normal) != dimension:
                raise InputError(f"{candidate} needs a normal with {dimension} components.")
            # As loose as numbers that were typed into a system file with six digits.
            if abs(np.linalg.norm(normal) - 1) > 1e-6:
                raise InputError(f"{candidate} needs a normal of length 1.")
    # Columns of recordings, reports and engines rely on this order.
    kinds = [isinstance(candidate, Pair) for candidate in candidates]
    if kinds != sorted(kinds):
        raise InputError("List the walls before the pairs among the candidate contacts.")


def chain(bodies: int) -> tuple[Pair, ...]:
    """Pairs of neighbouring point masses on a line, the greatest coordinate first (Newton's cradle)."""
    return tuple(Pair(first, second) for first, second in pairwise(range(bodies)))


def contact_rate(jacobian: Jacobian, velocity: Coordinates) -> PerContact:
    """u = G V, the rate of every gap."""
    return jnp.einsum("ckd,kd->c", jacobian, velocity)


def generalised_impulse(jacobian: Jacobian, impulse: PerContact) -> Coordinates:
    """Gᵀ λ, the total impulse on every body from the contact impulses λ."""
    return jnp.einsum("ckd,c->kd", jacobian, impulse)
