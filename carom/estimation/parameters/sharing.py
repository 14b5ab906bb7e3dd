"""Parameter sharing: linear maps from estimated values to the entries of a parameter, and their names."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from carom.errors import InputError
from carom.mechanics import ParameterSpec, Scene, Wall

Share = Literal["each", "kind", "all"]
"""Which contacts share a value: none, all walls and all pairs, or all contacts."""


class Sharing(NamedTuple):
    """The entries of a parameter as an affine function of estimated values: entries = base + map @ values.

    Arguments:
        map: matrix of entries by values.
        names: of the values.
        contacts: whose impacts determine each value; empty if it does not depend on impacts.
        relative: whether values are changes from the stated entries rather than the entries themselves.
    """

    map: Float[np.ndarray, "entries values"]
    names: tuple[str, ...]
    contacts: tuple[tuple[int, ...], ...]
    relative: bool = False


def share_values(
    spec: ParameterSpec, shape: tuple[int, ...], scene: Scene, share: Share, *, radii: bool
) -> Sharing:
    """The sharing of values between the entries of a parameter.

    Arguments:
        spec: the declaration of the parameter.
        shape: of the field.
        scene: whose contacts and bodies the entries belong to.
        share: which contacts share a contact law.
        radii: whether surface positions follow from radii of bodies and offsets of planes.
    """
    if spec.network:
        size = int(np.prod(shape))
        return Sharing(np.eye(size), (spec.name,) * size, ((),) * size)
    if spec.key == "normals":
        return _tilts(scene)
    if spec.key == "surfaces":
        return _radii(scene) if radii else _by_contact(spec, scene, "each")
    if spec.axis == "contact":
        return _by_contact(spec, scene, share)
    if spec.axis == "body" and spec.logarithm:
        # Motion determines mass ratios only, through impacts with other bodies; −1 stands for no impact.
        others = range(1, scene.bodies)
        names = tuple(f"{spec.name} of body {k + 1} over that of body 1" for k in others)
        pairs = [
            tuple(j for j, c in enumerate(scene.candidates) if len(c.bodies) == 2 and k in c.bodies) or (-1,)
            for k in others
        ]
        return Sharing(np.eye(scene.bodies)[:, 1:], names, tuple(pairs), relative=True)
    size = int(np.prod(shape))
    if spec.axis == "body":
        names = tuple(f"{spec.name} of body {k + 1}" for k in range(size))
    else:
        names = tuple(f"{spec.name} along {'xyz'[k] if size <= 3 else k + 1}" for k in range(size))
    return Sharing(np.eye(size), names, ((),) * size)


def groups_of(scene: Scene, share: Share) -> list[tuple[str, tuple[int, ...]]]:
    """Groups of contacts that share a contact law, with their names."""
    if share == "each":
        return [(scene.contact_name(j), (j,)) for j in range(scene.contacts)]
    if share == "all":
        return [("of all contacts", tuple(range(scene.contacts)))] if scene.contacts else []
    walls = tuple(j for j, c in enumerate(scene.candidates) if isinstance(c, Wall))
    pairs = tuple(j for j in range(scene.contacts) if j not in walls)
    return [(name, group) for name, group in (("between bodies", pairs), ("at walls", walls)) if group]


def _by_contact(spec: ParameterSpec, scene: Scene, share: Share) -> Sharing:
    """One value per group of contacts, and per term of a law with several."""
    groups = groups_of(scene, share)
    terms = len(spec.terms) or 1
    shared = np.zeros((scene.contacts, terms, len(groups), terms))
    for number, (_, group) in enumerate(groups):
        for term in range(terms):
            shared[list(group), term, number, term] = 1.0
    names = [
        f"{spec.name} {name}" + (f", {term}" if term else "")
        for name, _ in groups
        for term in (spec.terms or ("",))
    ]
    contacts = [group for _, group in groups for _ in range(terms)]
    return Sharing(shared.reshape(scene.contacts * terms, -1), tuple(names), tuple(contacts))


def planes_of(scene: Scene) -> tuple[tuple[int, ...], ...]:
    """Walls of several bodies that are the same plane: the first wall of every body, the second, and so on.

    Offsets differ by the radii of the bodies, so only the normals can be compared.
    """
    by_body: dict[int, list[int]] = defaultdict(list)
    for j, candidate in enumerate(scene.candidates):
        if isinstance(candidate, Wall):
            by_body[candidate.body].append(j)
    lists = list(by_body.values())
    result = []
    for walls_of_plane in zip(*lists, strict=False):
        normals = {tuple(np.round(_normal(scene, j), 9)) for j in walls_of_plane}
        if len(normals) > 1 or len({len(walls) for walls in lists}) > 1:
            raise InputError(
                "To separate planes and radii, list the same walls in the same order for all bodies."
            )
        result.append(tuple(walls_of_plane))
    return tuple(result)


def _radii(scene: Scene) -> Sharing:
    """Surface offsets as sums: of a plane offset and a radius at a wall, of two radii for a pair."""
    planes = planes_of(scene)
    sums = np.zeros((scene.contacts, scene.bodies + len(planes)))
    for j, candidate in enumerate(scene.candidates):
        sums[j, list(candidate.bodies)] = 1.0
    for number, walls in enumerate(planes):
        sums[list(walls), scene.bodies + number] = 1.0
    names = [f"radius of body {k + 1}, change" for k in range(scene.bodies)]
    names += [f"offset of {_plane_name(scene, planes, p)}, change" for p in range(len(planes))]
    contacts = tuple(tuple(np.flatnonzero(column).tolist()) for column in sums.T)
    return Sharing(sums, tuple(names), contacts, relative=True)


def _tilts(scene: Scene) -> Sharing:
    """Tilts of every plane along an orthonormal basis of its tangent directions."""
    columns, names, contacts = [], [], []
    planes = planes_of(scene)
    for number, walls in enumerate(planes):
        normal = np.asarray(_normal(scene, walls[0]))
        # QR completes the normal to an orthonormal basis; its signs are fixed below, as they are arbitrary.
        directions = np.linalg.qr(np.column_stack([normal, np.eye(scene.dimension)]))[0][:, 1:]
        for direction in directions.T:
            direction = direction * np.sign(direction[np.argmax(np.abs(direction))])
            tilt = np.zeros((scene.contacts, scene.dimension))
            tilt[list(walls)] = direction
            columns.append(tilt.ravel())
            names.append(f"tilt of {_plane_name(scene, planes, number)} towards {_direction(direction)}")
            contacts.append(walls)
    size = scene.contacts * scene.dimension
    return Sharing(np.array(columns).reshape(-1, size).T, tuple(names), tuple(contacts))


def _normal(scene: Scene, contact: int) -> tuple[float, ...]:
    wall = scene.candidates[contact]
    assert isinstance(wall, Wall)
    return wall.normal


def _plane_name(scene: Scene, planes: Sequence[tuple[int, ...]], plane: int) -> str:
    return f"plane {plane + 1} with normal {_direction(_normal(scene, planes[plane][0]))}"


def _direction(direction: Iterable[float]) -> str:
    """The coordinates of a direction; adding 0 removes negative zeros."""
    return f"({', '.join(f'{x + 0.0:g}' for x in direction)})"
