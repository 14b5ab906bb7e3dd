"""System files: what a user knows of a mechanical set-up, in TOML.

The tables below are the one declaration of the format: reading, error messages and the commented text that
`carom init` writes all follow from it.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, model_validator

from carom.data.io import toml_file as toml
from carom.data.io.columns import STANDARD_TIME, Columns, standard_columns
from carom.data.io.formats import MAXIMUM_BYTES
from carom.data.io.recording_file import read_recording, table_format
from carom.data.recording import Channel, Recording
from carom.errors import InputError
from carom.mechanics import Pair, Projection, Scene, Wall
from carom.storage.atomic import write_whole
from carom.storage.input_file import complaint, require_file, shown
from carom.types import VelocityGrid

MAXIMUM_COORDINATES = 4096
"""The most coordinates, bodies × dimension."""
MAXIMUM_CANDIDATES = 4096
"""The most walls, and the most pairs."""

_Count = Annotated[toml.Whole, Field(ge=1, le=MAXIMUM_COORDINATES)]


class SystemTable(toml.TomlTable):
    """`[system]`: the fields of a scene but for its contacts, under the same names."""

    bodies: _Count = Field(description="number of bodies")
    dimension: _Count = Field(description="coordinates per body")
    masses: tuple[toml.Positive, ...] = Field(
        default=(), description="one per body; only ratios matter for the motion"
    )
    restitution: toml.Number = Field(
        default=1.0, ge=0, le=1, description="speed kept by a bounce: 0 none, 1 all"
    )
    friction: toml.Number = Field(default=0.0, ge=0, description="Coulomb's coefficient of all contacts")
    velocity_grid: VelocityGrid = Field(
        default="half", description='"half": second order; "sample": used as recorded'
    )
    projection: Projection = Field(
        default="none", description='of overlaps: "none", "inverse_mass", "reference_point"'
    )
    reference: tuple[toml.Numbers, ...] = Field(default=(), description="where bodies of a pair meet")


class WallTable(toml.TomlTable):
    """`[[wall]]`: a plane that one body may touch."""

    body: toml.Whole = Field(description="which body may touch it")
    normal: toml.Numbers = Field(description="direction from the wall to the body, of length 1")
    offset: toml.Number = Field(default=0.0, description="the gap is normal · position − offset")
    edges: tuple[toml.Numbers, ...] = Field(
        default=(), description="where it ends: normals and offsets of planes that it lies behind"
    )

    @property
    def candidate(self) -> Wall:
        return Wall(self.body - 1, self.normal, self.offset, tuple((row[:-1], row[-1]) for row in self.edges))


class PairTable(toml.TomlTable):
    """`[[pair]]`: two bodies that may touch."""

    first: toml.Whole = Field(description="in one dimension, the body with the greater coordinate")
    second: toml.Whole = Field(description="the other body")
    offset: toml.Number = Field(default=0.0, description="distance at contact, the sum of the radii")

    @property
    def candidate(self) -> Pair:
        return Pair(self.first - 1, self.second - 1, self.offset)


class ColumnsTable(toml.TomlTable):
    """`[columns]`: what a recording's columns are called, where that is not as Carom writes them."""

    run: toml.Name | None = Field(default=None, description="which run a row belongs to")
    time: toml.Name = Field(default=STANDARD_TIME, description="in seconds")
    position: toml.Names = Field(default=(), description="coordinates of body 1, then of body 2 …")
    velocity: toml.Names | None = Field(default=None, description="in the same order; [] for none")
    touch: toml.Names | None = Field(default=None, description="one per body, 0 or 1; [] for none")


class SamplingTable(toml.TomlTable):
    """`[sampling]`: the time between samples, and what may be missing."""

    step_size: toml.Positive | None = Field(
        default=None, description="seconds between samples, if there are no times"
    )
    missing: tuple[Channel, ...] = Field(default=(), description="channels whose cells may be empty or nan")


_FLAGS_OF_0_9 = {
    ("restitution", "constant"): "restitution",
    ("restitution", "speed"): "restitution-speed",
    ("gap", True): "surfaces",
    ("masses", True): "masses",
    ("damping", True): "damping",
}
"""Keys of `[learn]` up to version 0.9 with their values, and the parameters that they stand for."""


class LearnTable(toml.TomlTable):
    """`[learn]`: what is estimated besides the forces. Which names there are is known to the recipe."""

    parameters: toml.Names = Field(
        default=("surfaces",),
        description="estimated, of restitution, restitution-linear, restitution-speed, friction, surfaces, "
        "radii, normals, masses, damping, drag, gravity",
    )

    @model_validator(mode="before")
    @classmethod
    def _require_list(cls, values: Any) -> Any:
        # Every system file that version 0.9 wrote has these keys: state the line that replaces them.
        if isinstance(values, Mapping) and values.keys() & {key for key, _ in _FLAGS_OF_0_9}:
            given = {"gap": True} | dict(values)
            names = [name for (key, value), name in _FLAGS_OF_0_9.items() if given.get(key) == value]
            line = f"parameters = {toml.toml_value(names)}"
            raise ValueError(f"these keys are of Carom 0.9; write {line} instead of them")
        return values


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
    # First: whoever mistypes the recording would otherwise read about its system file.
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    table_format(path)
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
    write_whole(path, text)


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
    for wrong, title, key, problem in _inconsistencies(document):
        if wrong:
            raise complaint(path, problem, *filter(None, (title, key)))
    candidates = tuple(table.candidate for table in (*document.wall, *document.pair))
    scene = Scene(**dict(document.system), candidates=candidates)
    columns = None
    if document.columns is not None:
        named = dict(document.columns)
        # A user who only renames the time need not list the rest.
        named["position"] = named["position"] or standard_columns(scene.bodies, scene.dimension).position
        try:
            columns = Columns(**named)
        except InputError as error:  # a name with two meanings
            problem = str(error).removesuffix(".")
            raise complaint(path, problem[:1].lower() + problem[1:], "[columns]") from None
    sampling = document.sampling
    return SystemFile(scene, columns, sampling.step_size, document.learn.parameters, sampling.missing)


Problem = tuple[bool, str, str, str]
"""Whether it is one, the table, the key and what to do."""


def _inconsistencies(document: Document) -> Iterator[Problem]:
    """What is right by itself, but perhaps not by what another key says."""
    system, title = document.system, "[system]"
    bodies, dimension = system.bodies, system.dimension
    coordinates = bodies * dimension
    problem = f"{bodies} bodies in {dimension} dimensions are too many; at most {MAXIMUM_COORDINATES} "
    yield coordinates > MAXIMUM_COORDINATES, title, "bodies", problem + "coordinates can be learned"
    yield _wrong_count(title, "masses", system.masses or bodies * (1,), bodies, "numbers, one per body")
    needed = system.projection == "reference_point"
    problem = 'leave it out, or write projection = "reference_point"'
    yield bool(system.reference) and not needed, title, "reference", problem
    yield _wrong_count(title, "reference", system.reference, bodies * needed, "positions, one per body")
    for row in system.reference:
        yield _wrong_count(title, "reference", row, dimension, "numbers, one per dimension")
    yield from _contact_inconsistencies(document)
    missing = document.sampling.missing
    problem = "a channel is named twice; name it once"
    yield len({*missing}) < len(missing), "[sampling]", "missing", problem
    names = dict(document.columns or {})
    for key, count in (("position", coordinates), ("velocity", coordinates), ("touch", bodies)):
        if names.get(key):
            per = "body" if key == "touch" else "coordinate of every body"
            yield _wrong_count("[columns]", key, names[key], count, f"names, one per {per}")


def _contact_inconsistencies(document: Document) -> Iterator[Problem]:
    bodies, dimension = document.system.bodies, document.system.dimension
    seen: dict[object, str] = {}
    for number, wall in enumerate(document.wall, start=1):
        title = f"[[wall]] {number}"
        yield _wrong_body(title, "body", wall.body, bodies)
        yield _wrong_count(title, "normal", wall.normal, dimension, "numbers, one per dimension")
        yield _wrong_length(title, "normal", wall.normal)
        for row in wall.edges:
            what = "numbers in every row, a normal and an offset"
            yield _wrong_count(title, "edges", row, dimension + 1, what)
            yield _wrong_length(title, "edges", row[:-1])
        other = seen.setdefault(wall.candidate, title)
        yield other != title, title, "", f"this contact is the same as {other}; remove one of them"
    for number, pair in enumerate(document.pair, start=1):
        title = f"[[pair]] {number}"
        yield _wrong_body(title, "first", pair.first, bodies)
        yield _wrong_body(title, "second", pair.second, bodies)
        problem = f"body {pair.first} cannot touch itself; name another body"
        yield pair.first == pair.second, title, "second", problem
        # In one dimension the gap keeps its sign and markers may be off centre, so any offset has a meaning.
        problem = f"write the sum of two radii, which cannot be negative, not {pair.offset:g}"
        yield dimension > 1 and pair.offset < 0, title, "offset", problem
        # A pair is the same whichever body comes first, and whatever its offset.
        other = seen.setdefault(frozenset(pair.candidate.bodies), title)
        yield other != title, title, "", f"this contact is the same as {other}; remove one of them"


def _wrong_count(title: str, key: str, values: Sequence[Any], count: int, what: str) -> Problem:
    return len(values) != count, title, key, f"write a list of {count} {what}, not {len(values)}"


def _wrong_body(title: str, key: str, body: int, bodies: int) -> Problem:
    return not 1 <= body <= bodies, title, key, f"write a whole number from 1 to {bodies}, not {body}"


def _wrong_length(title: str, key: str, vector: tuple[float, ...]) -> Problem:
    length, remedy = math.hypot(*vector), "divide it by its length"
    if 0 < length < math.inf and len(vector) <= 4:
        remedy = f"write {[round(component / length, 9) for component in vector]}"
    # Six digits, as people write them.
    return abs(length - 1) > 1e-6, title, key, f"the vector must have length 1, not {length:g}; {remedy}"


def format_system_file(system_file: SystemFile) -> str:
    """The text of a system file. What could be added stands there as a comment."""
    scene, comments = system_file.scene, system_file.comments
    remarks = comments.remarks
    system = {name: getattr(scene, name) for name in SystemTable.model_fields}
    # It has no meaning without that projection, and reading would refuse it.
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
