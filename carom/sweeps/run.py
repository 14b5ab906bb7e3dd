"""A sweep from its file to its table; what is done already is not done again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from carom.storage.atomic import folder_made, remove_leftovers
from carom.storage.lock import locked
from carom.sweeps.cells import Cell, Cells
from carom.sweeps.crew import AbstractCrew
from carom.sweeps.one_fit import ROWS, Row, read_row, row_path
from carom.sweeps.study import RunningStudy, Trial
from carom.sweeps.sweep_file import SweepFile

Hire = Callable[[], AbstractContextManager[AbstractCrew]]


@dataclass(frozen=True)
class Line:
    """A line of a sweep's table: a fit, its row, and its trial in a study."""

    cell: Cell
    row: Row
    trial: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What a sweep leaves.

    Arguments:
        lines: in the order of the sweep file, or of the trials; whoever ended first.
        trials: of a study.
        made: fits that were made now; the others were there.
    """

    lines: tuple[Line, ...]
    trials: tuple[Trial, ...]
    made: int

    @property
    def failed(self) -> int:
        """Fits with a reason instead of a score: refused, failed, or with a forecast beyond all bounds."""
        return sum(bool(line.row["reason"]) for line in self.lines)

    @property
    def best(self) -> tuple[Line, ...]:
        """Lines with a score, the best first."""
        scored = [line for line in self.lines if line.row["error"] is not None]
        return tuple(sorted(scored, key=lambda line: line.row["error"]))

    @property
    def best_trial(self) -> Trial | None:
        """The trial of a study with the least mean of errors."""
        known = [(trial.value, trial.number) for trial in self.trials if trial.value is not None]
        return self.trials[min(known)[1]] if known else None


@contextmanager
def swept(
    sweep: SweepFile, out: Path, hire: Hire, *, again: bool, tell: Callable[[int, int], None]
) -> Iterator[Outcome]:
    """Make all fits of a sweep that are not there yet, and keep its folder while their table is written.

    Everything that can be refused is refused before the first fit, and before the folder is made.

    Arguments:
        sweep: what to make.
        out: the folder of the sweep.
        hire: starts those who make fits; not called where nothing is left to make.
        again: make fits again that ended without a score.
        tell: called with the number of fits that are there and of all, at the beginning and after every fit.
    """
    cells = Cells(sweep)
    if sweep.study is None:
        grid, study = cells.grid(), None
        total = len(grid)
    else:
        cells.require_ranges()
        grid, study = [], RunningStudy(sweep.study)
        total = sweep.study.trials * len(sweep.recordings) * len(sweep.seeds)
    with folder_made(out / ROWS), locked(out):
        with ExitStack() as hired:
            rows = {row["fingerprint"]: row for row in map(read_row, sorted((out / ROWS).glob("*.json")))}
            work = _Work(out, rows, again, total, tell, lambda: hired.enter_context(hire()))
            if study is not None:
                outcome = _study(study, cells, work)
            else:
                outcome = Outcome(tuple(map(Line, grid, work.rows_of(grid))), (), work.made)
        for place in (out, out / ROWS):
            remove_leftovers(place)
        yield outcome


@dataclass
class _Work:
    """What is there of a sweep, and how to get the rest."""

    out: Path
    rows: dict[str, Row]
    again: bool
    total: int
    tell: Callable[[int, int], None]
    hire: Callable[[], AbstractCrew]
    made: int = 0
    done: int = 0
    crew: AbstractCrew | None = None
    renewed: set[str] = field(default_factory=set)
    """Fingerprints of what was made now: a fit that fails again is not made a third time."""

    def rows_of(self, cells: Sequence[Cell]) -> list[Row]:
        """The rows of some cells in their order; those that are missing are made."""
        missing = {cell.fingerprint: cell for cell in cells if not self._is_there(cell)}
        self._tell(len(cells) - len(missing))
        if missing:
            self.crew = self.crew or self.hire()
            for cell in missing.values():
                row_path(self.out, cell.name).unlink(missing_ok=True)
            for _ in self.crew.make(list(missing.values()), self.out):
                self.made += 1
                self._tell(1)
        for cell in missing.values():
            self.rows[cell.fingerprint] = read_row(row_path(self.out, cell.name))
        self.renewed |= missing.keys()
        return [self.rows[cell.fingerprint] for cell in cells]

    def _is_there(self, cell: Cell) -> bool:
        """With a score, or without one where that was known and nothing is made again."""
        row = self.rows.get(cell.fingerprint)
        return row is not None and not (self.again and row["reason"] and cell.fingerprint not in self.renewed)

    def _tell(self, more: int) -> None:
        self.done += more
        self.tell(self.done, self.total)


def _study(study: RunningStudy, cells: Cells, work: _Work) -> Outcome:
    lines: list[Line] = []
    trials: list[Trial] = []
    for batch in study.batches():
        of_batch = [(trial, cell) for trial in batch for cell in cells.of(trial.varied)]
        rows = work.rows_of([cell for _, cell in of_batch])
        new = [Line(cell, row, trial.number) for (trial, cell), row in zip(of_batch, rows, strict=True)]
        for trial in batch:
            errors = [line.row["error"] for line in new if line.trial == trial.number]
            trials.append(study.tell(trial, errors))
        lines += new
    return Outcome(tuple(lines), tuple(trials), work.made)
