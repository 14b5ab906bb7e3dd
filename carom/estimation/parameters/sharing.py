"""Which entries of a parameter share a value, as linear maps, and what the shared values are called."""

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
    """Values that are estimated, and how the entries of a parameter follow from them: entries = base + map @
    values.

    Arguments:
        map: entries by values.
        names: of the values, in words.
        contacts: which contacts tell of each value; none where others do.
        relative: whether values are changes of what is stated, rather than the entries themselves.
    """

    map: Float[np.ndarray, "entries values"]
    names: tuple[str, ...]
    contacts: tuple[tuple[int, ...], ...]
    relative: bool = False


def share_values(
    spec: ParameterSpec, shape: tuple[int, ...], scene: Scene, share: Share, *, radii: bool
) -> Sharing:
    """How the entries of a parameter share values.

    Arguments:
        spec: what the part declares.
        shape: that of the field.
        scene: whose contacts and bodies the entries belong to.
        share: which contacts share a contact law.
        radii: whether the places of surfaces are made of radii of bodies and offsets of planes.
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
        # Only ratios to the first body are determined. Impacts of a body with others tell its mass.
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


def contact_name(scene: Scene, contact: int) -> str:
    """A contact in words; bodies are counted from 1."""
    candidate = scene.candidates[contact]
    if not isinstance(candidate, Wall):
        return f"between bodies {candidate.first + 1} and {candidate.second + 1}"
    walls = sum(1 for c in scene.candidates if c.bodies == candidate.bodies)
    return f"of body {candidate.body + 1} at {'the wall' if walls == 1 else f'wall {contact + 1}'}"


def groups_of(scene: Scene, share: Share) -> list[tuple[str, tuple[int, ...]]]:
    """Contacts that share their laws, with a name for each group."""
    if share == "each":
        return [(contact_name(scene, j), (j,)) for j in range(scene.contacts)]
    if share == "all":
        return [("of all contacts", tuple(range(scene.contacts)))] if scene.contacts else []
    walls = tuple(j for j, c in enumerate(scene.candidates) if isinstance(c, Wall))
    pairs = tuple(j for j in range(scene.contacts) if j not in walls)
    return [(name, members) for name, members in (("between bodies", pairs), ("at walls", walls)) if members]


def _by_contact(spec: ParameterSpec, scene: Scene, share: Share) -> Sharing:
    """A value per group of contacts, and per term where the parameter has several."""
    groups = groups_of(scene, share)
    terms = len(spec.terms) or 1
    shared = np.zeros((scene.contacts, terms, len(groups), terms))
    for number, (_, members) in enumerate(groups):
        for term in range(terms):
            shared[list(members), term, number, term] = 1.0
    names = [
        f"{spec.name} {name}" + (f", {term}" if term else "")
        for name, _ in groups
        for term in (spec.terms or ("",))
    ]
    contacts = [members for _, members in groups for _ in range(terms)]
    return Sharing(shared.reshape(scene.contacts * terms, -1), tuple(names), tuple(contacts))


def planes_of(scene: Scene) -> tuple[tuple[int, ...], ...]:
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
        normals = {tuple(np.round(_normal(scene, j), 9)) for j in members}
        if len(normals) > 1 or len({len(walls) for walls in lists}) > 1:
            raise InputError(
                "To tell planes from radii, list the same walls in the same order for every body with walls."
            )
        result.append(tuple(members))
    return tuple(result)


def _radii(scene: Scene) -> Sharing:
    """Surfaces by radii and planes: a wall by a plane and a radius, a pair by two radii."""
    planes = planes_of(scene)
    made = np.zeros((scene.contacts, scene.bodies + len(planes)))
    for j, candidate in enumerate(scene.candidates):
        made[j, list(candidate.bodies)] = 1.0
    for number, members in enumerate(planes):
        made[list(members), scene.bodies + number] = 1.0
    names = [f"radius of body {k + 1}, change" for k in range(scene.bodies)]
    names += [f"offset of {_plane_name(scene, planes, p)}, change" for p in range(len(planes))]
    contacts = tuple(tuple(np.flatnonzero(column).tolist()) for column in made.T)
    return Sharing(made, tuple(names), contacts, relative=True)


def _tilts(scene: Scene) -> Sharing:
    """Every plane tilted along each direction within it."""
    columns, names, contacts = [], [], []
    planes = planes_of(scene)
    for number, members in enumerate(planes):
        normal = np.asarray(_normal(scene, members[0]))
        # The rest of an orthonormal basis that begins with the normal; its signs do not depend on rounding.
        directions = np.linalg.qr(np.column_stack([normal, np.eye(scene.dimension)]))[0][:, 1:]
        for direction in directions.T:
            direction = direction * np.sign(direction[np.argmax(np.abs(direction))])
            tilt = np.zeros((scene.contacts, scene.dimension))
            tilt[list(members)] = direction
            columns.append(tilt.ravel())
            names.append(f"tilt of {_plane_name(scene, planes, number)} towards {_direction(direction)}")
            contacts.append(members)
    size = scene.contacts * scene.dimension
    return Sharing(np.array(columns).reshape(-1, size).T, tuple(names), tuple(contacts))


def _normal(scene: Scene, contact: int) -> tuple[float, ...]:
    wall = scene.candidates[contact]
    assert isinstance(wall, Wall)
    return wall.normal


def _plane_name(scene: Scene, planes: Sequence[tuple[int, ...]], plane: int) -> str:
    return f"plane {plane + 1} with normal {_direction(_normal(scene, planes[plane][0]))}"


def _direction(direction: Iterable[float]) -> str:
    """A direction by its coordinates, without negative zeros."""
    return f"({', '.join(f'{x + 0.0:g}' for x in direction)})"
