"""System files: what a user knows of a mechanical set-up, in TOML.

The tables below are the one declaration of the format: reading, error messages and the commented text that
`carom init` writes all follow from it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from carom.data.io import toml_file as toml
from carom.data.io.columns import STANDARD_TIME, Columns, require_counts, standard_columns
from carom.data.io.formats import MAXIMUM_BYTES
from carom.data.io.recording_file import read_recording, table_format
from carom.data.recording import Channel, Recording
from carom.errors import InputError
from carom.mechanics import Pair, Projection, Scene, Wall
from carom.mechanics.geometry import require_candidates
from carom.storage.atomic import write_whole
from carom.storage.input_file import complaint, require_file, shown
from carom.types import VelocityGrid

MAXIMUM_COORDINATES = 4096
"""The most coordinates, bodies × dimension."""
MAXIMUM_CANDIDATES = 4096
"""The most walls, and the most pairs."""

_Count = Annotated[toml.Whole, Field(ge=1, le=MAXIMUM_COORDINATES)]
# One error, not one for every key of every table.
_MANY = Field(max_length=MAXIMUM_CANDIDATES, fail_fast=True)


class SystemTable(toml.TomlTable):
    """`[system]`: the fields of a scene but for its contacts, under the same names."""

    bodies: _Count
    """number of bodies"""
    dimension: _Count
    """coordinates per body"""
    masses: tuple[toml.Positive, ...] = ()
    """one per body; only ratios matter for the motion"""
    restitution: toml.Number = Field(default=1.0, ge=0, le=1)
    """speed kept by a bounce: 0 none, 1 all"""
    friction: toml.Number = Field(default=0.0, ge=0)
    """Coulomb's coefficient of all contacts"""
    velocity_grid: VelocityGrid = "half"
    """how velocities are read: "half" is second order, "sample" as recorded"""
    projection: Projection = "none"
    """how overlaps are removed: "none", "inverse_mass" or "reference_point" """
    reference: tuple[toml.Numbers, ...] = ()
    """where bodies of a pair meet"""


class WallTable(toml.TomlTable):
    """`[[wall]]`: a plane that one body may touch."""

    body: toml.Whole
    """which body may touch it"""
    normal: toml.Numbers
    """direction from the wall to the body, of length 1"""
    offset: toml.Number = 0.0
    """the gap is normal · position − offset"""
    edges: tuple[Annotated[toml.Numbers, Field(min_length=1)], ...] = ()
    """where it ends: normals and offsets of planes that it lies behind"""

    @property
    def candidate(self) -> Wall:
        return Wall(self.body - 1, self.normal, self.offset, tuple((row[:-1], row[-1]) for row in self.edges))


class PairTable(toml.TomlTable):
    """`[[pair]]`: two bodies that may touch."""

    first: toml.Whole
    """in one dimension, the body with the greater coordinate"""
    second: toml.Whole
    """the other body"""
    offset: toml.Number = 0.0
    """distance at contact, the sum of the radii"""

    @property
    def candidate(self) -> Pair:
        return Pair(self.first - 1, self.second - 1, self.offset)


class ColumnsTable(toml.TomlTable):
    """`[columns]`: what a recording's columns are called, where that is not as Carom writes them."""

    run: toml.Name | None = None
    """which run a row belongs to"""
    time: toml.Name = STANDARD_TIME
    """in seconds"""
    position: toml.Names = ()
    """coordinates of body 1, then of body 2 …"""
    velocity: toml.Names | None = None
    """in the same order; [] for none"""
    touch: toml.Names | None = None
    """one per body, 0 or 1; [] for none"""


class SamplingTable(toml.TomlTable):
    """`[sampling]`: the time between samples, and what may be missing."""

    step_size: toml.Positive | None = None
    """seconds between samples, if there are no times"""
    missing: tuple[Channel, ...] = ()
    """channels whose cells may be empty or nan"""


class LearnTable(toml.TomlTable):
    """`[learn]`: what is estimated besides the forces. Which names there are is known to the recipe."""

    parameters: toml.Names = ("surfaces",)
    """estimated, of restitution, restitution-linear, restitution-speed, restitution-spline, friction,
    surfaces, radii, normals, masses, damping, drag, gravity"""


class Document(toml.TomlTable):
    """A system file, table by table."""

    system: SystemTable
    wall: Annotated[tuple[WallTable, ...], _MANY] = ()
    pair: Annotated[tuple[PairTable, ...], _MANY] = ()
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
    stated = read_system_file(system or beside)
    recording = read_recording(
        path, columns=stated.columns, scene=stated.scene, step_size=stated.step_size, missing=stated.missing
    )
    return recording, stated


def write_system_file(system_file: SystemFile, path: str | os.PathLike[str]) -> None:
    """Write a system file with a comment at every key, whole or not at all; an existing file is replaced."""
    path, text = Path(path), format_system_file(system_file)
    parse_system_file(path, text)  # what could not be read again, such as an infinite offset, is refused now
    write_whole(path, text)


def parse_system_file(path: Path, text: str) -> SystemFile:
    """Read the text of a system file; `path` is for error messages."""
    document = toml.validate(path, Document, toml.parse_toml(path, text))
    scene = _scene(path, document)
    columns = None
    if document.columns is not None:
        named = dict(document.columns)
        # A user who only renames the time need not list the rest.
        named["position"] = named["position"] or standard_columns(scene.bodies, scene.dimension).position
        with _within(path, "[columns]"):  # a name with two meanings
            columns = Columns(**named)
        require_counts(path, columns, scene.bodies, scene.dimension)
    sampling = document.sampling
    return SystemFile(scene, columns, sampling.step_size, document.learn.parameters, sampling.missing)


def _scene(path: Path, document: Document) -> Scene:
    """The scene, whose own checks tell what is right by itself, but not by what another key says."""
    system = document.system
    if system.bodies * system.dimension > MAXIMUM_COORDINATES:
        problem = f"{system.bodies} bodies in {system.dimension} dimensions are too many; at most "
        raise complaint(
            path, f"{problem}{MAXIMUM_COORDINATES} coordinates can be learned", "[system], bodies"
        )
    seen: dict[Any, str] = {}
    for kind, tables in (("wall", document.wall), ("pair", document.pair)):
        for number, table in enumerate(tables, start=1):
            title, candidate = f"[[{kind}]] {number}", table.candidate
            with _within(path, title, subject=f"{candidate}"):
                require_candidates(system.bodies, system.dimension, (candidate,))
            # In one dimension the gap keeps its sign and markers may be off centre.
            if kind == "pair" and system.dimension > 1 and table.offset < 0:
                problem = f"write the sum of two radii, which cannot be negative, not {table.offset:g}"
                raise complaint(path, problem, title, "offset")
            if candidate in seen:
                raise complaint(path, f"this contact is the same as {seen[candidate]}; remove one", title)
            seen[candidate] = title
    with _within(path, "[system]"):
        return Scene(**dict(system), candidates=tuple(seen))


@contextmanager
def _within(path: Path, title: str, *, subject: str = "") -> Iterator[None]:
    """Say of an error where in the file its cause is; `subject` is what it would otherwise begin with."""
    try:
        yield
    except InputError as error:
        problem = str(error).removesuffix(".")
        problem = f"it{problem.removeprefix(subject)}" if subject else problem[:1].lower() + problem[1:]
        raise complaint(path, problem, title) from None


def format_system_file(system_file: SystemFile) -> str:
    """The text of a system file. What could be added stands there as a comment."""
    scene, comments = system_file.scene, system_file.comments
    remarks = comments.remarks
    system = {name: getattr(scene, name) for name in SystemTable.model_fields}
    # It has no meaning without that projection.
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
    kinds = ("wall", WallTable, walls, example_wall), ("pair", PairTable, pairs, example_pair)
    for name, declaration, contacts, example in kinds:
        for number, values in enumerate(contacts, start=1):
            yield toml.format_table(name, declaration, values, number=number, remarks=remarks)
        if not contacts and example:
            yield toml.format_table(name, declaration, {}, examples=example, number=1)
