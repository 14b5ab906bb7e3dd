"""System files: what a user knows of a mechanical set-up, in TOML.

The tables below are the one declaration of the format: reading, error messages and the commented text that
`carom init` writes all follow from it.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import model_validator

from carom.data.io import toml_file as toml
from carom.data.io.columns import STANDARD_TIME, Columns, standard_columns
from carom.data.io.recording_file import read_recording
from carom.data.io.tables import MAXIMUM_BYTES
from carom.data.recording import Channel, Recording
from carom.errors import InputError
from carom.mechanics import Pair, Projection, Scene, Wall
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file, shown
from carom.types import VelocityGrid

MAXIMUM_COORDINATES = 4096
"""The most coordinates, bodies × dimension."""
MAXIMUM_CANDIDATES = 4096
"""The most walls, and the most pairs."""

_COUNT = f"a whole number from 1 to {MAXIMUM_COORDINATES}"
_FLAGS = {"restitution": "restitution", "masses": "masses", "damping": "damping", "gap": "surfaces"}
"""Keys of `[learn]` until version 0.9, and the parameters they stood for."""
_COLUMN, _COLUMNS = "the name of a column in quotes", 'a list of columns such as ["q1"]'


class SystemTable(toml.TomlTable):
    """`[system]`: the fields of a scene but for its contacts, under the same names."""

    bodies: toml.Whole = toml.key("number of bodies", _COUNT, ge=1, le=MAXIMUM_COORDINATES)
    dimension: toml.Whole = toml.key("coordinates per body", _COUNT, ge=1, le=MAXIMUM_COORDINATES)
    masses: tuple[toml.Positive, ...] = toml.key(
        "one per body; only ratios matter for the motion",
        "a list of finite numbers greater than 0, one per body",
        (),
    )
    restitution: toml.Number = toml.key(
        "speed kept by a bounce: 0 none, 1 all",
        "a finite number from 0 (no bounce) to 1 (elastic)",
        1.0,
        ge=0,
        le=1,
    )
    friction: toml.Number = toml.key(
        "Coulomb's coefficient of all contacts", "a finite number of at least 0 (no friction)", 0.0, ge=0
    )
    velocity_grid: VelocityGrid = toml.key(
        '"half": second order; "sample": used as recorded', toml.one_of(VelocityGrid), "half"
    )
    projection: Projection = toml.key(
        'of overlaps: "none", "inverse_mass", "reference_point"', toml.one_of(Projection), "none"
    )
    reference: tuple[toml.Numbers, ...] = toml.key(
        "where bodies of a pair meet", "a list of positions, one per body", ()
    )


class WallTable(toml.TomlTable):
    """`[[wall]]`: a plane that one body may touch."""

    body: toml.Whole = toml.key("which body may touch it", "the number of a body")
    normal: toml.Numbers = toml.key(
        "direction from the wall to the body, of length 1", "a list of finite numbers, one per dimension"
    )
    offset: toml.Number = toml.key("the gap is normal · position − offset", "a finite number", 0.0)
    edges: tuple[toml.Numbers, ...] = toml.key(
        "where it ends: normals and offsets of planes that it lies behind",
        "a list of rows of finite numbers, each a normal and an offset",
        (),
    )

    @property
    def candidate(self) -> Wall:
        return Wall(self.body - 1, self.normal, self.offset, tuple((row[:-1], row[-1]) for row in self.edges))


class PairTable(toml.TomlTable):
    """`[[pair]]`: two bodies that may touch."""

    first: toml.Whole = toml.key(
        "in one dimension, the body with the greater coordinate", "the number of a body"
    )
    second: toml.Whole = toml.key("the other body", "the number of a body")
    offset: toml.Number = toml.key("distance at contact, the sum of the radii", "a finite number", 0.0)

    @property
    def candidate(self) -> Pair:
        return Pair(self.first - 1, self.second - 1, self.offset)


class ColumnsTable(toml.TomlTable):
    """`[columns]`: what a recording's columns are called, where that is not as Carom writes them."""

    run: toml.Name | None = toml.key("which run a row belongs to", _COLUMN, None)
    time: toml.Name = toml.key("in seconds", _COLUMN, STANDARD_TIME)
    position: toml.Names = toml.key("coordinates of body 1, then of body 2 …", _COLUMNS, ())
    velocity: toml.Names | None = toml.key("in the same order; [] for none", _COLUMNS, None)
    touch: toml.Names | None = toml.key("one per body, 0 or 1; [] for none", _COLUMNS, None)


class SamplingTable(toml.TomlTable):
    """`[sampling]`: the time between samples, and what may be missing."""

    step_size: toml.Positive | None = toml.key(
        "seconds between samples, if there are no times", "a finite number of seconds greater than 0", None
    )
    missing: tuple[Channel, ...] = toml.key(
        "channels whose cells may be empty or nan", 'a list of "position", "velocity" or both', ()
    )


class LearnTable(toml.TomlTable):
    """`[learn]`: what is estimated besides the forces. Which names there are is known to the recipe."""

    parameters: toml.Names = toml.key(
        "estimated, of restitution, restitution-speed, friction, surfaces, radii, normals, masses, damping, "
        "drag, gravity",
        'a list of names such as ["restitution", "surfaces"]',
        ("surfaces",),
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_flags(cls, table: Any) -> Any:
        """Until version 0.9 every parameter had a key of its own; surfaces were learned unless denied."""
        old = [key for key in _FLAGS if key in table] if isinstance(table, dict) else []
        if not old:
            return table
        names = [_FLAGS[key] for key in old if table[key] not in (False, "fixed")]
        if table.get("restitution") == "speed":
            names[0] = "restitution-speed"
        names += ["surfaces"] * ("gap" not in table)
        raise ValueError(
            f"{' and '.join(old)} {'is' if len(old) == 1 else 'are'} now named in a list; write "
            f"parameters = {toml.toml_value(names)}"
        )


class Document(toml.TomlTable):
    """A system file, table by table."""

    system: SystemTable
    wall: tuple[WallTable, ...] = ()
    pair: tuple[PairTable, ...] = ()
    columns: ColumnsTable | None = None
    sampling: SamplingTable = SamplingTable()
    learn: LearnTable = LearnTable()


@dataclass(frozen=True)
class Comments:
    """What to add to the comments of a system file that is written.

    Arguments:
        remarks: such as that a value is a guess, by table and key: "system.masses"; "wall.1" is for the first
            wall as a whole.
        unused: columns of the recording that are left out, with the reason.
        found_step: the step of its times, which is shown where no other is stated.
    """

    remarks: Mapping[str, str] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)
    found_step: float | None = None


@dataclass(frozen=True)
class SystemFile:
    """The content of a system file.

    Arguments:
        scene: bodies, candidate contacts and known constants. Python counts bodies from 0, the file from 1.
        columns: the names of a recording's columns; None for those that Carom writes.
        step_size: time between samples in seconds, for recordings without times.
        learn: names of the parameters that are estimated.
        missing: channels whose cells may be empty or nan, "position" or "velocity" or both.
        comments: for people; not read again.

    Example:
        >>> SystemFile(Scene(bodies=1, dimension=1)).learn
        ('surfaces',)
    """

    scene: Scene
    columns: Columns | None = None
    step_size: float | None = None
    learn: tuple[str, ...] = ("surfaces",)
    missing: tuple[Channel, ...] = ()
    comments: Comments = field(default_factory=Comments, compare=False)


def read_system_file(path: str | os.PathLike[str]) -> SystemFile:
    """Read a system file; a wrong key, type or value is an `InputError` that names it and says what is right.

    Arguments:
        path: a TOML file.
    """
    path = Path(path)
    return parse_system_file(path, toml.read_toml_text(path, kind="system file"))


def read_described(path: Path, system: Path | None = None) -> tuple[Recording, SystemFile]:
    """Read a recording together with the system file that describes it.

    Arguments:
        path: a `.csv`, `.parquet` or `.npz` file.
        system: its system file, by default the `.toml` beside it.
    """
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    beside = path.with_suffix(".toml")
    if system is None and not beside.exists():
        problem = f"there is no system file {shown(beside, length=1000)} beside it"
        raise complaint(path, f"{problem}; write one with `carom init`, or name one with --system")
    content = read_system_file(system or beside)
    recording = read_recording(
        path,
        columns=content.columns,
        scene=content.scene,
        step_size=content.step_size,
        missing=content.missing,
    )
    return recording, content


def write_system_file(system_file: SystemFile, path: str | os.PathLike[str]) -> None:
    """Write a system file with a comment at every key, whole or not at all; an existing file is replaced."""
    path, text = Path(path), format_system_file(system_file)
    parse_system_file(path, text)  # what could not be read again, such as an infinite offset, is refused now
    with atomic_write(path) as temporary:
        temporary.write_bytes(text.encode())


def parse_system_file(path: Path, text: str) -> SystemFile:
    """Read the text of a system file; `path` is for error messages."""
    tables = toml.parse_toml(path, text)
    # Before validation, which would make an error for every key of every table.
    for name in ("wall", "pair"):
        found = tables.get(name)
        if isinstance(found, list) and len(found) > MAXIMUM_CANDIDATES:
            problem = f"{len(found)} {name}s are too many; list at most {MAXIMUM_CANDIDATES}"
            raise complaint(path, problem, f"[[{name}]]")
    document = toml.validate(path, Document, tables)
    _require_consistent(path, document)
    candidates = tuple(table.candidate for table in (*document.wall, *document.pair))
    scene = Scene(**dict(document.system), candidates=candidates)
    columns = None
    if document.columns is not None:
        named = dict(document.columns)
        named["position"] = named["position"] or standard_columns(scene.bodies, scene.dimension).position
        try:
            columns = Columns(**named)
        except InputError as error:  # a name with two meanings
            problem = str(error).removesuffix(".")
            raise complaint(path, problem[:1].lower() + problem[1:], "[columns]") from None
    sampling = document.sampling
    return SystemFile(scene, columns, sampling.step_size, document.learn.parameters, sampling.missing)


@dataclass(frozen=True)
class _Checked:
    """A table whose values are right by themselves, to be checked against what other keys say."""

    path: Path
    title: str

    def require(self, fine: bool, key: str, problem: str) -> None:
        if not fine:
            raise complaint(self.path, problem, self.title, *([key] if key else []))

    def require_count(self, key: str, values: Sequence[Any], count: int, what: str) -> None:
        self.require(len(values) == count, key, f"write a list of {count} {what}, not {len(values)}")

    def require_body(self, key: str, body: int, bodies: int) -> None:
        self.require(1 <= body <= bodies, key, f"write a whole number from 1 to {bodies}, not {body}")

    def require_unit(self, key: str, vector: tuple[float, ...]) -> None:
        length, remedy = math.hypot(*vector), "divide it by its length"
        if 0 < length < math.inf and len(vector) <= 4:
            remedy = f"write {[round(component / length, 9) for component in vector]}"
        problem = f"the vector must have length 1, not {length:g}; {remedy}"
        # Six digits, as people write them.
        self.require(abs(length - 1) <= 1e-6, key, problem)


def _require_consistent(path: Path, document: Document) -> None:
    """Refuse what is right by itself, but not by what another key says."""
    system, table = document.system, _Checked(path, "[system]")
    bodies, dimension = system.bodies, system.dimension
    coordinates = bodies * dimension
    problem = f"{bodies} bodies in {dimension} dimensions are too many; at most {MAXIMUM_COORDINATES} "
    table.require(coordinates <= MAXIMUM_COORDINATES, "bodies", problem + "coordinates can be learned")
    if system.masses:
        table.require_count("masses", system.masses, bodies, "numbers, one per body")
    needed = system.projection == "reference_point"
    problem = 'leave it out, or write projection = "reference_point"'
    table.require(needed or not system.reference, "reference", problem)
    table.require_count("reference", system.reference, bodies * needed, "positions, one per body")
    for row in system.reference:
        table.require_count("reference", row, dimension, "numbers, one per dimension")
    contacts: dict[object, str] = {}
    for number, wall in enumerate(document.wall, start=1):
        table = _Checked(path, f"[[wall]] {number}")
        table.require_body("body", wall.body, bodies)
        table.require_count("normal", wall.normal, dimension, "numbers, one per dimension")
        table.require_unit("normal", wall.normal)
        for row in wall.edges:
            table.require_count("edges", row, dimension + 1, "numbers in every row, a normal and an offset")
            table.require_unit("edges", row[:-1])
        other = contacts.setdefault(wall.candidate, table.title)
        table.require(other == table.title, "", f"this contact is the same as {other}; remove one of them")
    for number, pair in enumerate(document.pair, start=1):
        table = _Checked(path, f"[[pair]] {number}")
        table.require_body("first", pair.first, bodies)
        table.require_body("second", pair.second, bodies)
        problem = f"body {pair.first} cannot touch itself; name another body"
        table.require(pair.first != pair.second, "second", problem)
        # In one dimension the gap keeps its sign and markers may be off centre, so any offset has a meaning.
        problem = f"write the sum of two radii, which cannot be negative, not {pair.offset:g}"
        table.require(dimension == 1 or pair.offset >= 0, "offset", problem)
        # A pair is the same whichever body comes first, and whatever its offset.
        other = contacts.setdefault(frozenset(pair.candidate.bodies), table.title)
        table.require(other == table.title, "", f"this contact is the same as {other}; remove one of them")
    missing = document.sampling.missing
    table = _Checked(path, "[sampling]")
    table.require(len({*missing}) == len(missing), "missing", "a channel is named twice; name it once")
    table, names = _Checked(path, "[columns]"), dict(document.columns or {})
    for key, count in (("position", coordinates), ("velocity", coordinates), ("touch", bodies)):
        if names.get(key):
            per = "body" if key == "touch" else "coordinate of every body"
            table.require_count(key, names[key], count, f"names, one per {per}")


def format_system_file(system_file: SystemFile) -> str:
    """The text of a system file. What could be added stands there as a comment."""
    scene, comments = system_file.scene, system_file.comments
    remarks = comments.remarks
    system = {name: getattr(scene, name) for name in SystemTable.model_fields}
    if scene.projection != "reference_point":
        del system["reference"]
    columns = {} if system_file.columns is None else vars(system_file.columns)
    examples = {} if columns else vars(standard_columns(scene.bodies, scene.dimension))
    sampling = {"step_size": system_file.step_size, "missing": system_file.missing or None}
    unstated = {"step_size": comments.found_step or 0.02, "missing": get_args(Channel)}
    unused = [f"# not used: {toml.toml_value(name)}: {why}" for name, why in comments.unused.items()]
    tables = [
        ["# What is known of this system. Bodies are counted from 1, like the columns."],
        toml.format_table("system", SystemTable, system, remarks=remarks),
        *_contacts(scene, remarks),
        toml.format_table("columns", ColumnsTable, columns, examples=examples, remarks=remarks) + unused,
        toml.format_table("sampling", SamplingTable, sampling, examples=unstated, remarks=remarks),
        toml.format_table("learn", LearnTable, {"parameters": system_file.learn}, remarks=remarks),
    ]
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _contacts(scene: Scene, remarks: Mapping[str, str]) -> Iterator[Sequence[str]]:
    """The tables [[wall]] and [[pair]]; where there are none, a commented example of each."""
    walls, pairs = [], []
    for candidate in scene.candidates:
        if isinstance(candidate, Pair):
            pairs.append(vars(candidate) | {"first": candidate.first + 1, "second": candidate.second + 1})
        else:
            edges = [(*normal, offset) for normal, offset in candidate.edges]
            walls.append(vars(candidate) | {"body": candidate.body + 1, "edges": edges or None})
    example_wall = {"body": 1, "normal": (1.0,) + (0.0,) * (scene.dimension - 1), "offset": 0.0}
    example_pair = {"first": 1, "second": 2, "offset": 0.0} if scene.bodies > 1 else None
    for name, declaration, contacts, example in (
        ("wall", WallTable, walls, example_wall),
        ("pair", PairTable, pairs, example_pair),
    ):
        for number, values in enumerate(contacts, start=1):
            yield toml.format_table(name, declaration, values, number=number, remarks=remarks)
        if not contacts and example:
            yield toml.format_table(name, declaration, {}, examples=example, number=1)
