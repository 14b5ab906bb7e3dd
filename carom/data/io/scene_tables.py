"""The tables of a system file that make a scene: [system], [[wall]] and [[pair]]."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

from carom.data.io.toml_table import TomlTable
from carom.mechanics import Candidate, Pair, Projection, Scene, Wall
from carom.storage.input_file import complaint
from carom.types import VelocityGrid

SYSTEM_KEYS = (
    "bodies",
    "dimension",
    "masses",
    "restitution",
    "friction",
    "velocity_grid",
    "projection",
    "reference",
)
WALL_KEYS = ("body", "normal", "offset", "edges")
PAIR_KEYS = ("first", "second", "offset")
MAXIMUM_COORDINATES = 4096
"""The most coordinates, bodies × dimension."""
MAXIMUM_CANDIDATES = 4096
"""The most candidate contacts, walls and pairs together."""


def read_scene(path: Path, tables: Mapping[str, Any]) -> Scene:
    """The scene of a system file.

    Arguments:
        path: the file, for complaints.
        tables: all tables of the file. Bodies are counted from 1 there, from 0 in the scene.
    """
    if "system" not in tables:
        raise complaint(path, "the table is missing; add it with bodies and dimension", "[system]")
    system = TomlTable(path, "[system]", tables["system"], SYSTEM_KEYS)
    bodies = system.whole("bodies", maximum=MAXIMUM_COORDINATES)
    dimension = system.whole("dimension", maximum=MAXIMUM_COORDINATES)
    if bodies * dimension > MAXIMUM_COORDINATES:
        problem = f"{bodies} bodies in {dimension} dimensions are too many; at most {MAXIMUM_COORDINATES} "
        raise system.wrong("bodies", problem + "coordinates can be learned")

    masses = ()
    if "masses" in system.values:
        masses = system.numbers("masses", length=bodies, per="body")
        if min(masses) <= 0:
            raise system.wrong("masses", f"write masses greater than 0, not {min(masses):g}")
    restitution = system.number("restitution", default=1.0)
    if not 0 <= restitution <= 1:
        raise system.wrong(
            "restitution", f"write a number from 0 (no bounce) to 1 (elastic), not {restitution:g}"
        )
    friction = system.number("friction", default=0.0)
    if friction < 0:
        raise system.wrong("friction", f"write a number of at least 0 (no friction), not {friction:g}")
    velocity_grid = system.choice("velocity_grid", choices=get_args(VelocityGrid), default="half")
    projection = system.choice("projection", choices=get_args(Projection), default="none")
    reference = ()
    if projection == "reference_point":
        reference = system.rows("reference", rows=bodies, length=dimension)
    elif "reference" in system.values:
        raise system.wrong("reference", 'leave it out, or write projection = "reference_point"')
    return Scene(
        bodies=bodies,
        dimension=dimension,
        candidates=_candidates(path, tables, bodies, dimension),
        masses=masses,
        restitution=restitution,
        friction=friction,
        velocity_grid=cast(VelocityGrid, velocity_grid),
        projection=cast(Projection, projection),
        reference=reference,
    )


def _candidates(path: Path, tables: Mapping[str, Any], bodies: int, dimension: int) -> tuple[Candidate, ...]:
    walls, pairs = _array(path, tables, "wall"), _array(path, tables, "pair")
    if len(walls) + len(pairs) > MAXIMUM_CANDIDATES:
        problem = f"{len(walls)} walls and {len(pairs)} pairs are too many; list at most {MAXIMUM_CANDIDATES}"
        raise complaint(path, problem, "[[wall]]" if walls else "[[pair]]")
    candidates: dict[object, tuple[Candidate, str]] = {}

    def add(table: TomlTable, key: str, candidate: Candidate, meaning: object) -> None:
        if meaning in candidates:
            raise table.wrong(
                key, f"this contact is the same as {candidates[meaning][1]}; remove one of them"
            )
        candidates[meaning] = candidate, table.title

    for number, values in enumerate(walls, start=1):
        table = TomlTable(path, f"[[wall]] {number}", values, WALL_KEYS)
        wall = _wall(table, bodies, dimension)
        add(table, "body", wall, wall)
    for number, values in enumerate(pairs, start=1):
        table = TomlTable(path, f"[[pair]] {number}", values, PAIR_KEYS)
        pair = _pair(table, bodies, dimension)
        add(table, "first", pair, frozenset(pair.bodies))
    return tuple(candidate for candidate, _ in candidates.values())


def _wall(table: TomlTable, bodies: int, dimension: int) -> Wall:
    body = table.whole("body", maximum=bodies) - 1
    normal = table.numbers("normal", length=dimension, per="dimension")
    _require_unit(table, "normal", normal)
    edges = []
    for *edge, offset in table.matrix("edges", length=dimension + 1, what="a normal and an offset"):
        _require_unit(table, "edges", tuple(edge))
        edges.append((tuple(edge), offset))
    return Wall(body, normal, table.number("offset", default=0.0), tuple(edges))


def _require_unit(table: TomlTable, key: str, normal: tuple[float, ...]) -> None:
    length = math.hypot(*normal)
    if abs(length - 1) > 1e-6:
        remedy = "divide it by its length"
        if 0 < length < math.inf and len(normal) <= 4:
            remedy = f"write {[round(component / length, 9) for component in normal]}"
        raise table.wrong(key, f"the vector must have length 1, not {length:g}; {remedy}")


def _pair(table: TomlTable, bodies: int, dimension: int) -> Pair:
    first, second = (table.whole(key, maximum=bodies) - 1 for key in ("first", "second"))
    if first == second:
        raise table.wrong("second", f"body {first + 1} cannot touch itself; name another body")
    offset = table.number("offset", default=0.0)
    # In one dimension the gap keeps its sign and positions may be of markers, so any offset has a meaning.
    if dimension > 1 and offset < 0:
        raise table.wrong(
            "offset", f"the sum of two radii cannot be negative, but it is {offset:g}; correct it"
        )
    return Pair(first, second, offset)


def _array(path: Path, tables: Mapping[str, Any], name: str) -> list[Any]:
    array = tables.get(name, [])
    if not isinstance(array, list):
        raise complaint(path, f"write every {name} under a line [[{name}]], with two brackets", f"[[{name}]]")
    return array
