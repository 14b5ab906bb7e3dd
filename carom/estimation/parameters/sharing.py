"""Which contacts share an unknown: laws of restitution and friction, radii of bodies, planes of walls."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from carom.errors import InputError
from carom.mechanics import Pair, Scene, Wall

Laws = Literal["each", "kind", "one"]
"""Who shares a restitution and a friction: no contacts, all walls and all pairs, or all."""
Surfaces = Literal["each", "bodies"]
"""What the places of surfaces are made of: one number per contact, or radii of bodies and planes of walls."""


def law_of(scene: Scene, laws: Laws) -> Int[np.ndarray, "contacts"]:
    """The number of the law that each contact obeys."""
    if laws == "one":
        return np.zeros(scene.contacts, int)
    if laws == "kind":
        kinds = [isinstance(candidate, Wall) for candidate in scene.candidates]
        return np.unique(kinds, return_inverse=True)[1]
    return np.arange(scene.contacts)


def law_name(scene: Scene, laws: Laws, members: Int[np.ndarray, "some"]) -> str:
    """Which contacts obey a law."""
    if laws == "each":
        return contact_name(scene, int(members[0]))
    if laws == "one":
        return "of all contacts"
    return "between bodies" if isinstance(scene.candidates[members[0]], Pair) else "at walls"


def contact_name(scene: Scene, j: int) -> str:
    """A contact in words; bodies are counted from 1."""
    candidate = scene.candidates[j]
    if isinstance(candidate, Pair):
        return f"between bodies {candidate.first + 1} and {candidate.second + 1}"
    walls = sum(1 for c in scene.candidates if c.bodies == candidate.bodies)
    return f"of body {candidate.body + 1} at {'the wall' if walls == 1 else f'wall {j + 1}'}"


def planes(scene: Scene) -> tuple[tuple[int, ...], ...]:
    """The walls of all bodies that are one plane: the first of every body, the second of every body, …

    Bodies differ by their radii, so that their walls lie at other offsets but have the same normal.
    """
    by_body: dict[int, list[int]] = defaultdict(list)
    for j, candidate in enumerate(scene.candidates):
        if isinstance(candidate, Wall):
            by_body[candidate.body].append(j)
    lists = list(by_body.values())
    result = []
    for members in zip(*lists, strict=False):
        normals = {tuple(np.round(scene.geometry.walls[j].normal, 9)) for j in members}
        if len(normals) > 1 or len({len(walls) for walls in lists}) > 1:
            raise InputError(
                "To tell planes from radii, list the same walls in the same order for every body with walls."
            )
        result.append(tuple(members))
    return tuple(result)


def surface_names(scene: Scene, surfaces: Surfaces) -> list[str]:
    """What is estimated of the places of surfaces, in words."""
    if surfaces == "each":
        return [f"surface {contact_name(scene, j)}" for j in range(scene.contacts)]
    radii = [f"radius of body {k + 1}, change" for k in range(scene.bodies)]
    return radii + [f"offset of {plane_name(scene, p)}, change" for p in range(len(planes(scene)))]


def plane_name(scene: Scene, plane: int) -> str:
    """A plane by its number and its stated normal."""
    normal = scene.geometry.walls[planes(scene)[plane][0]].normal
    return f"plane {plane + 1} with normal {direction_name(normal)}"


def direction_name(direction: Iterable[float]) -> str:
    """A direction by its coordinates, without negative zeros."""
    return f"({', '.join(f'{x + 0.0:g}' for x in direction)})"


def surface_map(scene: Scene, surfaces: Surfaces) -> Float[np.ndarray, "contacts unknowns"]:
    """How the unknowns shift the gaps: a wall by a plane and a radius, a pair by two radii."""
    if surfaces == "each":
        return np.eye(scene.contacts)
    result = np.zeros((scene.contacts, scene.bodies + len(planes(scene))))
    for j, candidate in enumerate(scene.candidates):
        result[j, list(candidate.bodies)] = 1.0
    for plane, members in enumerate(planes(scene)):
        result[list(members), scene.bodies + plane] = 1.0
    return result


def tilt_map(scene: Scene) -> Float[np.ndarray, "unknowns contacts dimension"]:
    """How the unknowns tilt the normals of walls: every plane along each direction within it."""
    result = []
    for members in planes(scene):
        normal = np.asarray(scene.geometry.walls[members[0]].normal)
        # The rest of an orthonormal basis that begins with the normal; its signs do not depend on rounding.
        directions = np.linalg.qr(np.column_stack([normal, np.eye(scene.dimension)]))[0][:, 1:]
        for direction in directions.T:
            tilt = np.zeros((scene.contacts, scene.dimension))
            tilt[list(members)] = direction * np.sign(direction[np.argmax(np.abs(direction))])
            result.append(tilt)
    return np.array(result).reshape(-1, scene.contacts, scene.dimension)
