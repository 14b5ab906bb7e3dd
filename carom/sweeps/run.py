"""A sweep from its file to its table; stored fits are not made again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carom.execution.executor import AbstractExecutor, ProgressCallback
from carom.execution.tasks import run_tasks, stored_result
from carom.storage.atomic import folder_made, remove_leftovers
from carom.storage.lock import locked
from carom.sweeps.one_fit import ROWS, Row, fit_task
from carom.sweeps.planning import Planner, SweepFit
from carom.sweeps.results import Line, SweepResult
from carom.sweeps.study import OptunaStudy, Trial
from carom.sweeps.sweep_file import Sweep


def run_sweep(
    sweep: Sweep,
    out: Path,
    executor: AbstractExecutor,
    *,
    again: bool = False,
    progress: ProgressCallback = lambda fraction: None,
) -> SweepResult:
    """Make all fits of a sweep that are not stored yet, and write its table.

    Everything that can be refused is refused before the first fit, and before the directory is made.

    Arguments:
        sweep: what to make.
        out: the directory of the sweep.
        executor: what makes the fits; not started where all are stored.
        again: repeat fits that ended without an error.
        progress: called with the fraction of all fits that is done.
    """
    planner = Planner(sweep)
    if sweep.study is None:
        grid, study = planner.grid(), None
        total = len(grid)
    else:
        planner.require_search_space()
        grid, study = [], OptunaStudy(sweep.study)
        total = sweep.study.trials * len(sweep.recordings) * len(sweep.seeds)
    with folder_made(out / ROWS), locked(out):
        work = _Work(out, executor, again, total, progress)
        if study is None:
            result = SweepResult(tuple(map(Line, grid, work.rows(grid))), (), work.made)
        else:
            result = _run_study(study, planner, work)
        # Temporary files of workers that were killed; none is running any more.
        for directory in (out, out / ROWS):
            remove_leftovers(directory)
        result.write(out)
        return result


@dataclass
class _Work:
    """The rows of a sweep, stored or to be made."""

    out: Path
    executor: AbstractExecutor
    again: bool
    total: int
    progress: ProgressCallback
    made: int = 0
    done: int = 0
    seen: set[str] = field(default_factory=set)
    """Fingerprints of fits: a study may suggest the same one twice, and one repetition is enough."""

    def rows(self, fits: Sequence[SweepFit]) -> list[Row]:
        """The rows of some fits in their order; a fit that is there twice is made once."""
        # By fingerprint, as a study may suggest the same values twice in a batch.
        tasks = {fit.fingerprint: fit_task(fit, self.out) for fit in fits}
        stored = {mark: row for mark, task in tasks.items() if (row := stored_result(task)) is not None}
        if self.again:
            for mark in [m for m, row in stored.items() if row["reason"] and m not in self.seen]:
                del stored[mark]
                (self.out / ROWS / f"{mark[:20]}.json").unlink()
        missing = [task for mark, task in tasks.items() if mark not in stored]
        begin = self.done + len(fits) - len(missing)

        def report(fraction: float) -> None:
            self.progress((begin + fraction * len(missing)) / self.total)

        report(0.0)
        for task, row in zip(
            missing, run_tasks(missing, executor=self.executor, progress=report), strict=True
        ):
            stored[task.fingerprint] = row
        self.made += len(missing)
        self.done += len(fits)
        self.seen |= tasks.keys()
        return [stored[fit.fingerprint] for fit in fits]


def _run_study(study: OptunaStudy, planner: Planner, work: _Work) -> SweepResult:
    lines: list[Line] = []
    trials: list[Trial] = []
    for batch in study.batches():
        fits = [(trial, fit) for trial in batch for fit in planner.fits(trial.varied)]
        rows = work.rows([fit for _, fit in fits])
        new = [Line(fit, row, trial.number) for (trial, fit), row in zip(fits, rows, strict=True)]
        for trial in batch:
            errors = [line.row["error"] for line in new if line.trial == trial.number]
            trials.append(study.report(trial, errors))
        lines += new
    return SweepResult(tuple(lines), tuple(trials), work.made)
