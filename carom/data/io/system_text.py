"""The text of a system file, with a comment at every key."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import tomlkit

from carom.data.io.columns import Columns, standard_columns
from carom.data.recording import Channel
from carom.mechanics import Pair, Scene, Wall


def system_text(
    scene: Scene,
    columns: Columns | None,
    step_size: float | None,
    *,
    missing: Sequence[str],
    learn: Mapping[str, Any],
    remarks: Mapping[str, str] | None = None,
    unused: Mapping[str, str] | None = None,
    found_step: float | None = None,
) -> str:
    """A system file as text. What could be added stands there as a comment.

    Arguments:
        scene: bodies, candidate contacts and known constants.
        columns: the names of a recording's columns, where they are not those that Carom writes.
        step_size: time between samples, for recordings without times.
        missing: channels whose cells may be empty.
        learn: what is to be learned.
        remarks: what to add to the comment of a key, such as that its value is a guess; "wall 1" is for the
            first wall, "learn.masses" for that key of the last table.
        unused: columns that are left out, with the reason.
        found_step: the step of the times, which is shown where no other is stated.
    """
    said = remarks or {}
    example_wall = Wall(0, (1.0,) + (0.0,) * (scene.dimension - 1))
    example_pair = [_comment(_pair(Pair(0, 1)))] if scene.bodies > 1 else []
    example_columns = standard_columns(scene.bodies, scene.dimension)
    tables = [
        ["# What is known of this system. Bodies are counted from 1, like the columns."],
        _remarked(_system(scene), said),
        *(
            [_titled(_wall(w), said.get(f"wall {i}")) for i, w in enumerate(scene.geometry.walls, start=1)]
            or [_comment(_wall(example_wall))]
        ),
        *(
            [_titled(_pair(p), said.get(f"pair {i}")) for i, p in enumerate(scene.geometry.pairs, start=1)]
            or example_pair
        ),
        [
            *(_remarked(_columns(columns), said) if columns else _comment(_columns(example_columns))),
            *(f"# not used: {_value(name)}: {reason}" for name, reason in (unused or {}).items()),
        ],
        _remarked(_sampling(step_size, missing, found_step), said),
        _remarked(
            [
                "[learn]",
                _line("masses", learn["masses"], "estimate the masses, starting from those above"),
                _line("damping", learn["damping"], "estimate a damping of all velocities"),
                _line(
                    "restitution", learn["restitution"], '"fixed" as above, or estimated: "constant", "speed"'
                ),
                _line("gap", learn["gap"], "estimate where walls are and at which distance bodies touch"),
            ],
            {key.removeprefix("learn."): text for key, text in said.items() if key.startswith("learn.")},
        ),
    ]
    return "\n\n".join("\n".join(table) for table in tables) + "\n"


def _remarked(lines: Iterable[str], remarks: Mapping[str, str]) -> Iterator[str]:
    """Lines with what is to be added to the comment of their key."""
    for line in lines:
        remark = remarks.get(line.removeprefix("# ").partition(" =")[0])
        yield line if remark is None else f"{line}; {remark}"


def _titled(lines: Iterable[str], remark: str | None) -> list[str]:
    """A table with a remark on the line of its name."""
    first, *others = lines
    return [first if remark is None else f"{first}  # {remark}", *others]


def _system(scene: Scene) -> Iterator[str]:
    yield "[system]"
    yield _line("bodies", scene.bodies, "number of bodies")
    yield _line("dimension", scene.dimension, "coordinates per body")
    yield _line("masses", _floats(scene.masses), "one per body; only ratios matter for the motion")
    yield _line("restitution", float(scene.restitution), "speed kept by a bounce: 0 none, 1 all")
    yield _line("friction", float(scene.friction), "Coulomb's coefficient of all contacts")
    yield _line("velocity_grid", scene.velocity_grid, '"half": second order; "sample": used as recorded')
    yield _line("projection", scene.projection, 'of overlaps: "none", "inverse_mass", "reference_point"')
    if scene.projection == "reference_point":
        yield _line("reference", [_floats(row) for row in scene.reference], "where bodies of a pair meet")


def _wall(wall: Wall) -> Iterator[str]:
    yield "[[wall]]"
    yield _line("body", wall.body + 1, "which body may touch it")
    yield _line("normal", _floats(wall.normal), "direction from the wall to the body, of length 1")
    yield _line("offset", float(wall.offset), "the gap is normal · position − offset")
    if wall.edges:
        rows = [_floats((*normal, offset)) for normal, offset in wall.edges]
        yield _line("edges", rows, "where it ends: normals and offsets of planes that it lies behind")


def _pair(pair: Pair) -> Iterator[str]:
    yield "[[pair]]"
    yield _line("first", pair.first + 1, "in one dimension, the body with the greater coordinate")
    yield _line("second", pair.second + 1, "the other body")
    yield _line("offset", float(pair.offset), "distance at contact, the sum of the radii")


def _columns(columns: Columns) -> Iterator[str]:
    yield "[columns]"
    if columns.run is not None:
        yield _line("run", columns.run, "which run a row belongs to")
    yield _line("time", columns.time, "in seconds")
    yield _line("position", list(columns.position), "coordinates of body 1, then of body 2 …")
    if columns.velocity is not None:
        yield _line("velocity", list(columns.velocity), "in the same order; [] for none")
    if columns.touch is not None:
        yield _line("touch", list(columns.touch), "one per body, 0 or 1; [] for none")


def _sampling(step_size: float | None, missing: Sequence[str], found_step: float | None) -> Iterator[str]:
    step = step_size or found_step or 0.02
    for line, stated in (
        ("[sampling]", step_size is not None or missing),
        (
            _line("step_size", float(step), "seconds between samples, if there are no times"),
            step_size is not None,
        ),
        (
            _line("missing", [*(missing or get_args(Channel))], "channels whose cells may be empty or nan"),
            missing,
        ),
    ):
        yield line if stated else f"# {line}"


def _comment(lines: Iterable[str]) -> list[str]:
    return [f"# {line}" for line in lines]


def _floats(numbers: Iterable[float]) -> list[float]:
    return [float(number) for number in numbers]


def _line(key: str, value: object, comment: str) -> str:
    return f"{key} = {_value(value)}".ljust(32) + f"  # {comment}"


def _value(value: object) -> str:
    if isinstance(value, list):  # tomlkit takes seconds for a list of some thousand values
        return f"[{', '.join(_value(member) for member in value)}]"
    return tomlkit.item(value).as_string()
