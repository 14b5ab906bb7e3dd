"""Which columns of a file are times, positions, velocities and touch."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from carom.digits import counted
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
        time: times in seconds; None where the file has none.
        run: which run a row belongs to; None uses the column `run` where the file has one.

    Example:
        >>> Columns(position=("x_a", "x_b")).time
        't'
    """

    position: tuple[str, ...]
    velocity: tuple[str, ...] | None = ()
    touch: tuple[str, ...] | None = ()
    time: str | None = STANDARD_TIME
    run: str | None = None

    def __post_init__(self):
        if not self.position:
            raise InputError("A recording needs at least one position column.")
        if twice := repeated(self.numbers if self.run is None else (*self.numbers, self.run)):
            raise InputError(f"The column {shown(twice)} is named twice; give every column one meaning.")

    @property
    def numbers(self) -> tuple[str, ...]:
        """Every column that holds numbers, time first."""
        time = () if self.time is None else (self.time,)
        return (*time, *self.position, *(self.velocity or ()), *(self.touch or ()))


def match_columns(
    path: Path, names: Sequence[str], columns: Columns | None, *, scene: Scene | None, timed: bool
) -> Columns:
    """The columns of a file that a recording consists of, all present and as many as there are bodies.

    Arguments:
        path: the file, for error messages.
        names: the columns that the file has.
        columns: the columns wanted; by default those named as Carom writes them.
        scene: gives bodies and dimension; by default every position column is a body in one dimension.
        timed: whether a time column is needed.

    In the result `time` and `run` are None where the file has no such column and does not need one.
    """
    present = set(names)
    # Where there is none at all, the message names the first that is missing.
    if columns is None:
        columns = Columns(_numbered(path, names, "q") or ("q1",), None, None)
    # Sets are made once: membership in a list of thousands of names would take quadratic time.
    taken = {*columns.numbers, columns.run}
    free = [name for name in names if name not in taken]
    columns = replace(
        columns,
        velocity=_numbered(path, free, "v") if columns.velocity is None else columns.velocity,
        touch=_numbered(path, free, "touch") if columns.touch is None else columns.touch,
        run=STANDARD_RUN if columns.run is None and STANDARD_RUN in free else columns.run,
    )
    # A time column with a name of its own was named for a reason; only the standard one may be absent.
    if columns.time == STANDARD_TIME and not timed and STANDARD_TIME not in present:
        columns = replace(columns, time=None)
    for name in (*columns.numbers, columns.run):
        if name is not None and name not in present:
            besides = " and no step size was given" if timed and name == columns.time else ""
            raise _missing(path, name, names, besides)
    # Bodies on a line are the commonest experiment.
    known = scene or Scene(bodies=len(columns.position), dimension=1)
    require_counts(path, columns, known.bodies, known.dimension)
    return columns


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


def require_distinct(path: Path, names: Sequence[str]) -> None:
    """Refuse a header that repeats a name, or in which something else than commas seems to separate names."""
    if twice := repeated(names):
        raise complaint(path, "two columns have this name; rename one", f"column {twice}")
    if len(names) == 1 and (separator := re.search(r"[;\t|]", names[0])):
        mark = "tabs" if separator[0] == "\t" else f'"{separator[0]}"'
        raise complaint(
            path, f"the columns seem to be separated by {mark}; separate them by commas", "line 1"
        )


def _numbered(path: Path, names: Sequence[str], prefix: str) -> tuple[str, ...]:
    """`q1`, `q2` … as far as the file has them; a number left out is a missing column."""
    pattern = re.compile(rf"{prefix}[1-9][0-9]*", re.ASCII)
    found = {name for name in names if pattern.fullmatch(name)}
    wanted = tuple(f"{prefix}{i}" for i in range(1, len(found) + 1))
    for name in wanted:
        if name not in found:
            raise _missing(path, name, names)
    return wanted


def require_counts(path: Path, columns: Columns, bodies: int, dimension: int) -> None:
    """Refuse columns that are more or fewer than bodies and dimension need."""
    coordinates = bodies * dimension
    scene = f"{counted(bodies, 'body', 'bodies')} in {counted(dimension, 'dimension')}"
    for kind, given, wanted in (
        ("position", columns.position, coordinates),
        ("velocity", columns.velocity, coordinates),
        ("touch", columns.touch, bodies),
    ):
        if given and len(given) != wanted:
            count = counted(wanted, f"{kind} column")
            problem = f"for {scene} there must be {count}, not {len(given)} ({shown(', '.join(given))}); "
            raise complaint(path, problem + "name other columns or correct the number of bodies")


def _missing(path: Path, name: str, names: Sequence[str], besides: str = "") -> InputError:
    problem = f"the column is missing{besides}; {suggestion(name, names)}"
    if not problem.endswith("?"):
        problem += ", so say under [columns] in the system file which is meant"
    return complaint(path, problem, f"column {name}")
