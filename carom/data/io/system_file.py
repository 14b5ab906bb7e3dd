"""System files: what a user knows of a mechanical set-up, in TOML."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from carom.data.io.columns import Columns, repeated, standard_columns
from carom.data.io.scene_tables import PAIR_KEYS, SYSTEM_KEYS, WALL_KEYS, read_scene
from carom.data.io.system_text import system_text
from carom.data.io.toml_table import TomlTable
from carom.data.io.toml_text import parse_toml, read_toml_text
from carom.data.recording import Channel
from carom.mechanics import Scene
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, shown, suggestion
from carom.types import RestitutionKind

COLUMNS_KEYS = ("run", "time", "position", "velocity", "touch")
SAMPLING_KEYS = ("step_size", "missing")
LEARN_KEYS = ("masses", "damping", "restitution", "gap")
TABLES = {
    "system": SYSTEM_KEYS,
    "wall": WALL_KEYS,
    "pair": PAIR_KEYS,
    "columns": COLUMNS_KEYS,
    "sampling": SAMPLING_KEYS,
    "learn": LEARN_KEYS,
}


@dataclass(frozen=True)
class Learn:
    """What is to be learned besides the forces.

    Arguments:
        masses: whether masses are estimated, starting from those stated.
        damping: whether a damping of all velocities is estimated.
        restitution: whether e is as stated ("fixed"), estimated ("constant"), or estimated as a function of
            the closing speed ("speed").
        gap: whether the places of walls and the distances at which bodies touch are estimated.
    """

    masses: bool = False
    damping: bool = False
    restitution: RestitutionKind = "fixed"
    gap: bool = True


@dataclass(frozen=True)
class SystemFile:
    """The content of a system file.

    Arguments:
        scene: bodies, candidate contacts and known constants. Python counts bodies from 0, the file from 1.
        columns: the names of a recording's columns; None for those that Carom writes.
        step_size: time between samples in seconds, for recordings without times.
        learn: what is to be learned besides the forces.
        missing: channels whose cells may be empty or nan, "position" or "velocity" or both.

    Example:
        >>> SystemFile(Scene(bodies=1, dimension=1)).learn
        Learn(masses=False, damping=False, restitution='fixed', gap=True)
    """

    scene: Scene
    columns: Columns | None = None
    step_size: float | None = None
    learn: Learn = field(default_factory=Learn)
    missing: tuple[Channel, ...] = ()


def read_system_file(path: str | os.PathLike[str]) -> SystemFile:
    """Read a system file; a wrong key, type or value is an `InputError` that names it and says what is right.

    Arguments:
        path: a TOML file.
    """
    path = Path(path)
    return parse_system_file(path, read_toml_text(path, kind="system file"))


def write_system_file(
    system_file: SystemFile,
    path: str | os.PathLike[str],
    *,
    remarks: Mapping[str, str] | None = None,
    unused: Mapping[str, str] | None = None,
    found_step: float | None = None,
) -> None:
    """Write a system file with a comment at every key, whole or not at all.

    Arguments:
        system_file: the content.
        path: a TOML file, replaced if it exists.
        remarks: what to add to the comment of a key, such as that its value is a guess.
        unused: columns of the recording that are left out, with the reason.
        found_step: the step of its times, which is shown as a comment.
    """
    path = Path(path)
    text = format_system_file(system_file, remarks=remarks, unused=unused, found_step=found_step)
    parse_system_file(path, text)  # what could not be read again, such as an infinite offset, is refused now
    with atomic_write(path) as temporary:
        temporary.write_bytes(text.encode())


def format_system_file(
    system_file: SystemFile,
    *,
    remarks: Mapping[str, str] | None = None,
    unused: Mapping[str, str] | None = None,
    found_step: float | None = None,
) -> str:
    """The text of a system file."""
    learn = system_file.learn
    return system_text(
        system_file.scene,
        system_file.columns,
        system_file.step_size,
        missing=system_file.missing,
        learn=asdict(learn),
        remarks=remarks,
        unused=unused,
        found_step=found_step,
    )


def parse_system_file(path: Path, text: str) -> SystemFile:
    """Read the text of a system file; `path` is for complaints."""
    tables = parse_toml(path, text)
    for name in tables:
        if name not in TABLES:
            owner = next((table for table, keys in TABLES.items() if name in keys), None)
            if owner is not None:
                raise complaint(path, f"the key stands outside the tables; write it under [{owner}]", name)
            raise complaint(path, f"there is no such table; {suggestion(name, TABLES)}", name)
    scene = read_scene(path, tables)
    sampling = TomlTable(path, "[sampling]", tables.get("sampling", {}), SAMPLING_KEYS)
    step_size = None
    if "step_size" in sampling.values:
        step_size = sampling.number("step_size", default=0.0)
        if step_size <= 0:
            raise sampling.wrong("step_size", f"write a number of seconds greater than 0, not {step_size:g}")
    learn = TomlTable(path, "[learn]", tables.get("learn", {}), LEARN_KEYS)
    restitution = learn.choice("restitution", choices=get_args(RestitutionKind), default="fixed")
    return SystemFile(
        scene,
        _columns(path, tables, scene) if "columns" in tables else None,
        step_size,
        Learn(
            masses=learn.flag("masses", default=False),
            damping=learn.flag("damping", default=False),
            restitution=cast(RestitutionKind, restitution),
            gap=learn.flag("gap", default=True),
        ),
        cast(tuple[Channel, ...], sampling.words("missing", choices=get_args(Channel))),
    )


def _columns(path: Path, tables: Mapping[str, Any], scene: Scene) -> Columns:
    table = TomlTable(path, "[columns]", tables["columns"], COLUMNS_KEYS)
    standard = standard_columns(scene.bodies, scene.dimension)
    time = table.name("time", default=standard.time) or standard.time
    run = table.name("run", default=None)
    lists = {
        "position": (table.names("position", default=standard.position), scene.coordinates),
        "velocity": (table.names("velocity"), scene.coordinates),
        "touch": (table.names("touch"), scene.bodies),
    }
    for key, (names, wanted) in lists.items():
        if len(names) != wanted and (names or key == "position"):
            per = "coordinate of every body" if key != "touch" else "body"
            raise table.wrong(key, f"write {wanted} names, one per {per}, not {len(names)}")
    position, velocity, touch = (names for names, _ in lists.values())
    if twice := repeated([time, *position, *velocity, *touch, *([] if run is None else [run])]):
        raise complaint(path, f"the column {shown(twice)} is named twice; give it one meaning", "[columns]")
    # Channels that are left out have the usual names, where the recording has them.
    return Columns(
        position,
        velocity if "velocity" in table.values else None,
        touch if "touch" in table.values else None,
        time,
        run,
    )
