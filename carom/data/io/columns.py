"""Which columns of a file are times, positions, velocities and touch."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from carom.errors import InputError
from carom.mechanics import Scene
from carom.storage.input_file import complaint, shown, suggestion

STANDARD_TIME, STANDARD_RUN = "t", "run"


@dataclass(frozen=True)
class Columns:
    """The names of a recording's columns.

    Arguments:
        position: body-major, the d coordinates of body 1, then those of body 2 …
        velocity: in the same order, or none; None uses v1, v2 … where the file has them.
        touch: one per body, or none; None uses touch1, touch2 … where the file has them.
        time: times in seconds.
        run: which run a row belongs to; None uses the column `run` where the file has one.

    Example:
        >>> Columns(position=("x_a", "x_b")).time
        't'
    """

    position: tuple[str, ...]
    velocity: tuple[str, ...] | None = ()
    touch: tuple[str, ...] | None = ()
    time: str = STANDARD_TIME
    run: str | None = None

    def __post_init__(self):
        if not self.position:
            raise InputError("A recording needs at least one position column.")
        names = self.numbers if self.run is None else (*self.numbers, self.run)
        if twice := repeated(names):
            raise InputError(f"The column {shown(twice)} is named twice; give every column one meaning.")

    @property
    def numbers(self) -> tuple[str, ...]:
        """Every column that is named as one that holds numbers, time first."""
        return (self.time, *self.position, *(self.velocity or ()), *(self.touch or ()))


@dataclass(frozen=True)
class Layout:
    """What a file's columns mean: their names, present for certain, and the shape of the coordinates.

    `time` and `run` are None where the file has no such column and does not need one.
    """

    position: tuple[str, ...]
    velocity: tuple[str, ...]
    touch: tuple[str, ...]
    time: str | None
    run: str | None
    bodies: int
    dimension: int

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers to load."""
        time = () if self.time is None else (self.time,)
        return (*time, *self.position, *self.velocity, *self.touch)

    @property
    def channels(self) -> dict[str, str]:
        """Which channel a column belongs to, touch being one here; times and runs belong to none."""
        return (
            dict.fromkeys(self.position, "position")
            | dict.fromkeys(self.velocity, "velocity")
            | dict.fromkeys(self.touch, "touch")
        )


def find_layout(
    path: Path, names: Sequence[str], *, columns: Columns | None, scene: Scene | None, timed: bool
) -> Layout:
    """Match the columns of a file with what is wanted, or complain.

    Arguments:
        path: the file, for complaints.
        names: the columns that the file has.
        columns: the columns wanted; by default those named as Carom writes them.
        scene: gives bodies and dimension; by default every position column is a body in one dimension.
        timed: whether a time column is needed.
    """
    present = set(names)
    if twice := repeated(names):
        raise complaint(path, "two columns have this name; rename one", f"column {twice}")
    if columns is None:
        position, velocity, touch = (_numbered(path, names, prefix) for prefix in ("q", "v", "touch"))
        if not position:
            raise _missing(path, "q1", names)
        columns = Columns(position, velocity, touch)
    free = [name for name in names if name not in {*columns.numbers, columns.run}]
    velocity, touch = (
        _numbered(path, free, prefix) if stated is None else stated
        for stated, prefix in ((columns.velocity, "v"), (columns.touch, "touch"))
    )
    for name in (*columns.position, *velocity, *touch):
        if name not in present:
            raise _missing(path, name, names)

    bodies, dimension = (len(columns.position), 1) if scene is None else (scene.bodies, scene.dimension)
    columns = replace(columns, velocity=velocity, touch=touch)
    _require_counts(path, columns, bodies, dimension)

    # A time column with a name of its own was asked for; only the standard one may silently be absent.
    if columns.time not in present and (timed or columns.time != STANDARD_TIME):
        raise _missing(path, columns.time, names, " and no step size was given" if timed else "")
    if columns.run is not None and columns.run not in present:
        raise _missing(path, columns.run, names)
    used = {*columns.numbers}
    standard_run = STANDARD_RUN if STANDARD_RUN in present - used else None
    return Layout(
        columns.position,
        velocity,
        touch,
        time=columns.time if columns.time in present else None,
        run=columns.run or standard_run,
        bodies=bodies,
        dimension=dimension,
    )


def repeated(names: Sequence[str]) -> str | None:
    """The first name that comes more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def standard_columns(bodies: int, dimension: int, *, velocity: bool = True, touch: bool = True) -> Columns:
    """The names that Carom writes: q1…, v1…, touch1…"""
    coordinates = range(1, bodies * dimension + 1)
    return Columns(
        position=tuple(f"q{i}" for i in coordinates),
        velocity=tuple(f"v{i}" for i in coordinates) if velocity else (),
        touch=tuple(f"touch{i}" for i in range(1, bodies + 1)) if touch else (),
    )


def require_separated(path: Path, names: Sequence[str]) -> None:
    """Refuse a header that other marks than commas seem to separate."""
    if separated := _wrong_separator(path, names, "line 1"):
        raise separated


def _wrong_separator(path: Path, names: Sequence[str], place: str) -> InputError | None:
    if len(names) != 1 or not (separator := re.search(r"[;\t|]", names[0])):
        return None
    mark = "a tab" if separator[0] == "\t" else f'"{separator[0]}"'
    return complaint(path, f"the columns seem to be separated by {mark}; separate them by commas", place)


def _numbered(path: Path, names: Sequence[str], prefix: str) -> tuple[str, ...]:
    """`q1`, `q2` … as far as the file has them; a number left out is a missing column."""
    pattern = re.compile(rf"{prefix}[1-9][0-9]*", re.ASCII)
    found = {name for name in names if pattern.fullmatch(name)}
    wanted = tuple(f"{prefix}{i}" for i in range(1, len(found) + 1))
    for name in wanted:
        if name not in found:
            raise _missing(path, name, names)
    return wanted


def _require_counts(path: Path, columns: Columns, bodies: int, dimension: int) -> None:
    coordinates = bodies * dimension
    scene = f"{_count(bodies, 'body', 'bodies')} in {_count(dimension, 'dimension', 'dimensions')}"
    for kind, given, wanted in (
        ("position", columns.position, coordinates),
        ("velocity", columns.velocity or (), coordinates),
        ("touch", columns.touch or (), bodies),
    ):
        if len(given) != wanted and (given or kind == "position"):
            count = _count(wanted, f"{kind} column", f"{kind} columns")
            raise complaint(
                path,
                f"for {scene} there must be {count}, not {len(given)} ({shown(', '.join(given))}); "
                "name other columns or correct the number of bodies",
            )


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _missing(path: Path, name: str, names: Sequence[str], besides: str = "") -> InputError:
    if separated := _wrong_separator(path, names, f"column {name}"):
        return separated
    problem = f"the column is missing{besides}; {suggestion(name, names)}"
    if not problem.endswith("?"):
        problem += ", so say under [columns] in the system file which is meant"
    return complaint(path, problem, f"column {name}")
