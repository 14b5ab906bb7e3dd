"""Candidate contacts: where bodies may touch walls and each other.

A candidate j has a gap g_j(Q), negative in overlap. Everything else follows from it: the row
G_j = ∂g_j/∂Q of the contact Jacobian, and the rate of the gap u = G V, negative when closing.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.errors import InputError
from carom.types import Coordinates, Jacobian, PerContact

Plane = tuple[tuple[float, ...], float]
"""Normal n of length 1 and offset: what lies behind it has n·q < offset."""


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


@runtime_checkable
class Surfaces(Protocol):
    """What integrators need to know of candidate contacts, wherever their surfaces come from."""

    @property
    def candidates(self) -> tuple[Candidate, ...]: ...

    @property
    def coupled(self) -> bool: ...

    @property
    def affine(self) -> bool: ...

    def gap(self, position: Coordinates) -> PerContact: ...

    def jacobian(self, position: Coordinates) -> Jacobian: ...


@dataclass(frozen=True)
class ContactGeometry:
    """The candidate contacts of a scene. Immutable and hashable, so it is a constant of compiled programs.

    Example:
        >>> floor = ContactGeometry(bodies=1, dimension=1, candidates=(Wall(body=0, normal=(1.0,)),))
        >>> floor.gap(jnp.array([[0.5]]))
        Array([0.5], dtype=float32)
    """

    bodies: int
    dimension: int
    candidates: tuple[Candidate, ...] = ()

    def __post_init__(self):
        for candidate in self.candidates:
            if not all(0 <= body < self.bodies for body in candidate.bodies):
                raise InputError(f"{candidate} names a body that is not among 0…{self.bodies - 1}.")
            if isinstance(candidate, Pair) and candidate.first == candidate.second:
                raise InputError(f"{candidate} pairs a body with itself.")
            for normal, _ in candidate.planes if isinstance(candidate, Wall) else ():
                if len(normal) != self.dimension:
                    raise InputError(f"{candidate} needs a normal with {self.dimension} components.")
                if abs(np.linalg.norm(normal) - 1) > 1e-6:
                    raise InputError(f"{candidate} needs a normal of length 1.")
        # Walls first: gaps are computed kind by kind and concatenated.
        if self.candidates != self.walls + self.pairs:
            raise InputError("List the walls before the pairs among the candidate contacts.")

    @property
    def walls(self) -> tuple[Wall, ...]:
        return tuple(c for c in self.candidates if isinstance(c, Wall))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(c for c in self.candidates if isinstance(c, Pair))

    @property
    def incidence(self) -> np.ndarray:
        """(contacts, bodies) booleans: which bodies take part in each candidate."""
        table = np.zeros((len(self.candidates), self.bodies), dtype=bool)
        for row, candidate in enumerate(self.candidates):
            table[row, list(candidate.bodies)] = True
        return table

    @property
    def coupled(self) -> bool:
        """Whether some body has several candidates, so that impulses act on each other."""
        return bool((self.incidence.sum(axis=0) > 1).any())

    @property
    def affine(self) -> bool:
        """Whether all gaps are affine functions of the position: planes, or bodies on a line."""
        return (self.dimension == 1 or not self.pairs) and not any(wall.edges for wall in self.walls)

    @property
    def body_pairs(self) -> np.ndarray:
        """(contacts,) booleans: body–body candidates, the ones that projection applies to."""
        return np.array([isinstance(c, Pair) for c in self.candidates], dtype=bool)

    def gap(self, position: Coordinates) -> PerContact:
        """g(Q), one value per candidate."""
        return jnp.concatenate([self._wall_gaps(position), self._pair_gaps(position)])

    def jacobian(self, position: Coordinates) -> Jacobian:
        """G = ∂g/∂Q."""
        rows = jnp.zeros((len(self.candidates), self.bodies, self.dimension), position.dtype)
        if self.walls:
            normal = jnp.asarray([wall.normal for wall in self.walls], position.dtype)
            for row, wall in enumerate(self.walls):
                if wall.edges:
                    planes = jnp.asarray([n for n, _ in wall.planes], position.dtype)
                    normal = normal.at[row].set(planes[jnp.argmax(_plane_gaps(wall, position))])
            body = np.array([wall.body for wall in self.walls])
            rows = rows.at[np.arange(len(body)), body].set(normal)
        if self.pairs:
            first, second = np.array([pair.bodies for pair in self.pairs]).T
            difference = position[first] - position[second]
            if self.dimension == 1:
                unit = jnp.ones_like(difference)
            else:
                unit = difference / jnp.linalg.norm(difference, axis=1, keepdims=True)
            row = len(self.walls) + np.arange(len(first))
            rows = rows.at[row, first].set(unit).at[row, second].set(-unit)
        return rows

    def _wall_gaps(self, position: Coordinates) -> Float[Array, "walls"]:
        if not self.walls:
            return jnp.zeros((0,), position.dtype)
        body = np.array([w.body for w in self.walls])
        normal = jnp.asarray([w.normal for w in self.walls], position.dtype)
        offset = jnp.asarray([w.offset for w in self.walls], position.dtype)
        gap = jnp.sum(normal * position[body], axis=1) - offset
        for row, wall in enumerate(self.walls):
            if wall.edges:
                gap = gap.at[row].set(jnp.max(_plane_gaps(wall, position)))
        return gap

    def _pair_gaps(self, position: Coordinates) -> Float[Array, "pairs"]:
        if not self.pairs:
            return jnp.zeros((0,), position.dtype)
        first = np.array([p.first for p in self.pairs])
        second = np.array([p.second for p in self.pairs])
        offset = jnp.asarray([p.offset for p in self.pairs], position.dtype)
        difference = position[first] - position[second]
        distance = difference[:, 0] if self.dimension == 1 else jnp.linalg.norm(difference, axis=1)
        return distance - offset


def _plane_gaps(wall: Wall, position: Coordinates) -> Float[Array, "planes"]:
    normals, offsets = zip(*wall.planes, strict=True)
    place = position[wall.body]
    return jnp.asarray(normals, place.dtype) @ place - jnp.asarray(offsets, place.dtype)


def chain(bodies: int) -> tuple[Pair, ...]:
    """Neighbouring pairs of point bodies on a line, the greatest coordinate first (Newton's cradle)."""
    return tuple(Pair(first, second) for first, second in pairwise(range(bodies)))


def contact_signs(candidates: tuple[Candidate, ...], bodies: int) -> np.ndarray:
    """(contacts, bodies): +1 at the first body of a candidate and −1 at the second; a wall has no second.

    Its product with velocities is the relative velocity w of every contact as a vector; u = n·w.
    """
    signs = np.zeros((len(candidates), bodies))
    for row, candidate in enumerate(candidates):
        signs[row, list(candidate.bodies)] = (1.0, -1.0)[: len(candidate.bodies)]
    return signs


def contact_normals(jacobian: Jacobian, signs: np.ndarray) -> Float[Array, "contacts dimension"]:
    """n of every contact: what its row of G holds at the first body."""
    return jnp.einsum("ckd,ck->cd", jacobian, jnp.asarray(np.maximum(signs, 0), jacobian.dtype))


def contact_rate(jacobian: Jacobian, velocity: Coordinates) -> PerContact:
    """u = G V, the rate of every gap."""
    return jnp.einsum("ckd,kd->c", jacobian, velocity)


def generalised_impulse(jacobian: Jacobian, impulse: PerContact) -> Coordinates:
    """Gᵀ λ, the momentum that contact impulses λ give to every body."""
    return jnp.einsum("ckd,c->kd", jacobian, impulse)
