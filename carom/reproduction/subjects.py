"""What `carom reproduce` can run: for each subject its tasks, its file of results, its table and figures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from carom.errors import InputError, find_names
from carom.evaluation.results import Results, write_results
from carom.evaluation.tables import Table
from carom.execution.executor import AbstractExecutor, ProgressCallback, Task, local_executor, run_tasks
from carom.reproduction.bodies.run import bodies_tasks
from carom.reproduction.bodies.tables import restitution_table
from carom.reproduction.measured import tables as measured
from carom.reproduction.measured.figures import write_measured_figures
from carom.reproduction.measured.recordings import data_hash, measured_directory
from carom.reproduction.measured.run import measured_tasks
from carom.reproduction.paper.experiments import ALL, EXPERIMENTS, PROTOCOLS, REPORTED_SEED, Protocol
from carom.reproduction.paper.figures import write_figure
from carom.reproduction.paper.run import paper_tasks, plan
from carom.reproduction.paper.tables import fits_of, overview_table, paper_page
from carom.reproduction.recipe.configuration import plan_grid
from carom.reproduction.recipe.run import experiment_tasks, grid_tasks
from carom.reproduction.recipe.tables import errors_table, grid_table, write_grid_figure
from carom.storage.atomic import locked, make_folder, remove_leftovers, write_whole

FIGURES = "figures"
QUICK_SHARE = 0.02
"""Of the epochs, in a quick run."""


class Request(NamedTuple):
    """What to run of a subject.

    Arguments:
        names: beginnings of names of experiments or models; all where there are none.
        seeds: of noise, initial weights and minibatches; of measured recordings, of random crops.
        protocol: of the paper's experiments.
        ablations: whether ablations and claims are run too, where no names are given.
        quick: whether training is shortened, to see that everything works.
        data: the folder of measured recordings.
        workers: processes to share the work.
    """

    names: tuple[str, ...] = ()
    seeds: Sequence[int] = range(REPORTED_SEED, REPORTED_SEED + 5)
    protocol: Protocol | Literal["all"] = "all"
    ablations: bool = False
    quick: bool = False
    data: Path | None = None
    workers: int = 1


@dataclass(frozen=True)
class Subject:
    """Something that can be reproduced.

    Arguments:
        file: name of the file of results.
        tasks: given a request and the folder of finished tasks; each returns {"rows": tidy rows}.
        table: what the terminal shows.
        draw: figures and a page, from results, the folder of finished tasks and that of figures, by the
            executor that has run the tasks.
        first_seed: of reported numbers.
        named: whether it can be restricted to names.
        options: the options that not every subject has.
    """

    file: str
    tasks: Callable[[Request, Path], Sequence[Task]]
    table: Callable[[pl.DataFrame], Table]
    draw: Callable[[Results, Path, Path, AbstractExecutor], object] | None = None
    first_seed: int = 0
    named: bool = False
    options: tuple[str, ...] = ()


def reproduce(
    name: str, request: Request, out: Path, *, progress: ProgressCallback = lambda fraction: None
) -> Results:
    """Run what is not yet finished of a subject, write its results, and draw its figures.

    Arguments:
        name: of the subject, in `SUBJECTS`.
        request: what to run.
        out: where results and figures go; finished tasks lie in a folder named after the subject, so that the
            same call continues a killed one.
        progress: called with the fraction of the work done.
    """
    subject = SUBJECTS[name]
    _require_possible(name, request)
    # Planned before anything is written: a wrong name leaves no folder behind.
    tasks = subject.tasks(request, out / name)
    # The same processes draw: new ones would import everything, and start a GPU, once more.
    workers = local_executor(request.workers, len(tasks))
    with output_folder(out, name) as folder, workers as executor:
        finished = run_tasks(tasks, executor=executor, progress=progress)
        results = write_results(
            out / subject.file,
            [row for result in finished for row in result["rows"]],
            command=command_line(name, request),
            # Finished tasks may come from several devices, some of an earlier call.
            machine=", ".join(sorted({result["device"] for result in finished})),
            jax_version=", ".join(sorted({result["versions"]["jax"] for result in finished})),
            data_sha256=data_hash(measured_directory(request.data)) if "--data" in subject.options else None,
        )
        if subject.draw is not None:
            make_folder(out / FIGURES)
            subject.draw(results, folder, out / FIGURES, executor)
    return results


@contextmanager
def output_folder(out: Path, name: str) -> Iterator[Path]:
    """A folder for finished tasks; all of `out` is this process's alone as long as it writes there."""
    folder = out / name
    make_folder(folder)
    with locked(out):
        # A killed process leaves temporary files; nobody else writes here while the lock is held.
        for place in (out, folder, out / FIGURES):
            remove_leftovers(place)
        yield folder


def _paper_tasks(request: Request, folder: Path) -> Sequence[Task]:
    # Ablations and claims take as long as all else; without names they are run on request only.
    known = ALL if request.names or request.ablations else EXPERIMENTS
    protocols = PROTOCOLS if request.protocol == "all" else (request.protocol,)
    share = QUICK_SHARE if request.quick else 1.0
    trials = plan(find_names(request.names, known), protocols, request.seeds, share=share)
    if not trials:
        raise InputError("These experiments are not run under this protocol; leave --protocol out.")
    return paper_tasks(trials, folder)


def _draw_paper(results: Results, folder: Path, figures: Path, executor: AbstractExecutor) -> None:
    fits = fits_of(results.rows).filter(pl.col("experiment").is_in(list(EXPERIMENTS)))
    # Drawing takes as long as some trainings: pictures are shared out too.
    parts = fits.partition_by("experiment", "protocol")
    run_tasks([Task(write_figure, (part, folder, figures)) for part in parts], executor=executor)
    write_whole(figures.parent / "paper.md", paper_page(results))


SUBJECTS: dict[str, Subject] = {
    "paper": Subject(
        "paper.json",
        _paper_tasks,
        lambda rows: overview_table(fits_of(rows)),
        _draw_paper,
        first_seed=REPORTED_SEED,
        named=True,
        options=("--protocol", "--ablations", "--quick"),
    ),
    "recipe": Subject(
        "learning.json",
        lambda request, folder: experiment_tasks(request.names, request.seeds, folder),
        errors_table,
        named=True,
    ),
    "grid": Subject(
        "grid.json",
        lambda request, folder: grid_tasks(
            plan_grid(request.names, quick=request.quick), request.seeds, folder
        ),
        grid_table,
        lambda results, folder, figures, executor: write_grid_figure(results.rows, figures),
        named=True,
        options=("--quick",),
    ),
    "bodies": Subject(
        "bodies.json",
        lambda request, folder: bodies_tasks(request.seeds, folder),
        restitution_table,
    ),
    "measured": Subject(
        "measured.json",
        lambda request, folder: measured_tasks(measured_directory(request.data), request.seeds, folder),
        measured.errors_table,
        lambda results, folder, figures, executor: write_measured_figures(results.rows, folder, figures),
        options=("--data",),
    ),
}
"""By the name that `carom reproduce` takes."""


def _require_possible(name: str, request: Request) -> None:
    """Refuse names and options that a subject does not have."""
    if request.names and not SUBJECTS[name].named:
        raise InputError(f"The subject {name} is always run whole; leave the name {request.names[0]} out.")
    for option in _given(request):
        if option.split()[0] not in SUBJECTS[name].options:
            raise InputError(f"{option.split()[0]} is not an option of the subject {name}; leave it out.")


def command_line(name: str, request: Request) -> str:
    """The command that gives these results.

    Example:
        >>> command_line("paper", Request(("ball",), range(300, 320), ablations=True))
        'carom reproduce paper ball --runs 20 --ablations'
    """
    first = request.seeds[0]
    options = [f"--runs {len(request.seeds)}"]
    # Defaults are left out, so that the same run has the same command.
    options += [f"--first-seed {first}"] * (first != SUBJECTS[name].first_seed)
    return " ".join(["carom reproduce", name, *request.names, *options, *_given(request)])


def _given(request: Request) -> list[str]:
    """The options of a request that not every subject has, as they are typed."""
    options = {
        f"--protocol {request.protocol}": request.protocol != "all",
        "--ablations": request.ablations,
        "--quick": request.quick,
        "--data FOLDER": request.data is not None,
    }
    return [option for option, is_given in options.items() if is_given]
