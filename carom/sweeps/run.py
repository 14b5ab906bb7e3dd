"""A sweep from its file to its table; what is done already is not done again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from carom.atomic import make_folder, remove_leftovers
from carom.lock import locked
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
        """Fits without a score: refused, failed, or with a forecast that left all bounds."""
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
    make_folder(out / ROWS)
    with locked(out):
        with ExitStack() as hired:
            work = _Work(out, _rows(out, again=again), total, tell, lambda: hired.enter_context(hire()))
            if study is not None:
                outcome = _study(study, cells, work)
            else:
                rows = work.rows_of(grid)
                outcome = Outcome(tuple(map(Line, grid, rows)), (), work.made)
        remove_leftovers(out / ROWS)
        yield outcome


@dataclass
class _Work:
    """What is there of a sweep, and how to get the rest."""

    out: Path
    rows: dict[str, Row]
    total: int
    tell: Callable[[int, int], None]
    hire: Callable[[], AbstractCrew]
    made: int = 0
    done: int = 0
    crew: AbstractCrew | None = field(default=None)

    def rows_of(self, cells: Sequence[Cell]) -> list[Row]:
        """The rows of some cells in their order; those that are missing are made."""
        missing = {cell.fingerprint: cell for cell in cells if cell.fingerprint not in self.rows}
        self._tell(len(cells) - len(missing))
        if missing:
            self.crew = self.crew or self.hire()
            for _ in self.crew.make(list(missing.values()), self.out):
                self.made += 1
                self._tell(1)
        for cell in missing.values():
            self.rows[cell.fingerprint] = read_row(row_path(self.out, cell.name))
        return [self.rows[cell.fingerprint] for cell in cells]

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


def _rows(out: Path, *, again: bool) -> dict[str, Row]:
    """Rows on disk by fingerprint; those to make again are removed."""
    found = {}
    for path in sorted((out / ROWS).glob("*.json")):
        row = read_row(path)
        if again and row["reason"]:
            path.unlink()
        else:
            found[row["fingerprint"]] = row
    return found
