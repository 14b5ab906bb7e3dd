"""`carom reproduce`: every figure and table of the paper."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import tyro

from carom.cli.output import print_json, print_table, progress
from carom.digits import mean_and_error
from carom.errors import InputError, require_range, require_seed
from carom.execution.workers import available_cores
from carom.reproduction.bodies.figures import write_bodies_figures
from carom.reproduction.bodies.run import run_bodies, write_bodies
from carom.reproduction.formatting import spread_mean
from carom.reproduction.measured.figures import write_measured_figures
from carom.reproduction.measured.recordings import measured_folder
from carom.reproduction.measured.run import run_measured, write_measured
from carom.reproduction.measured.tables import ratios
from carom.reproduction.paper.ablations import ABLATIONS
from carom.reproduction.paper.animation import write_animations
from carom.reproduction.paper.experiments import PROTOCOLS, REPORTED_SEED, find_experiments
from carom.reproduction.paper.figures import write_figures
from carom.reproduction.paper.report import write_report
from carom.reproduction.paper.results import add_oracle, write_results
from carom.reproduction.paper.run import plan, run_units
from carom.reproduction.paper.statistics import score, spread
from carom.reproduction.recipe.classifier import CASES, run_cases
from carom.reproduction.recipe.classifier_tables import HEADER, case_lines, write_classifier
from carom.reproduction.recipe.grid import plan_grid, run_grid
from carom.reproduction.recipe.grid_figure import write_grid_figure
from carom.reproduction.recipe.grid_tables import grid_table, write_grid
from carom.reproduction.recipe.rows import find_rows, run_rows
from carom.reproduction.recipe.rows_tables import write_learning
from carom.storage.atomic import make_folder, remove_leftovers
from carom.storage.lock import locked

CLASSIFIER, MEASURED, BODIES = "classifier", "measured", "bodies"
"""The experiments of the recipe carom that are not rows of its table."""
FIGURES = "figures"


def reproduce(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    *,
    out: Path = Path("reproduction"),
    recipe: Literal["paper", "carom"] = "paper",
    data: Path | None = None,
    runs: int = 5,
    first_seed: int | None = None,
    workers: int | None = None,
    protocol: Literal["text", "published", "both"] = "both",
    ablations: bool = False,
    grid: bool = False,
    quick: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Run the paper's experiments, put its numbers beside ours, and draw its figures.

    Example: carom reproduce ball cradle --runs 5 --protocol published

    With --recipe carom: what latent states and contacts make of the same systems, without touch too; it
    writes learning.json and prints a table. Three names stand for other experiments there. classifier: the
    paper's contact classifier against a learned gap, in classifier.json. measured: what the recipe makes of
    measured recordings (carom reproduce measured --recipe carom --data FOLDER), in measured.json and figures.
    bodies: many bodies in one to three dimensions, in bodies.json and figures.
    With --grid: the ball over noise, number of bounces and touch, with the paper's models and the oracle, in
    grid.json and a heat map.

    What is finished stays in the folder: the same command continues a killed run.

    Args:
        names: Experiments, by the beginning of their names (pendulum, ball, cradle, …), or with --grid
            learners (carom, cd-lagrange, resnet, oracle); all by default.
        out: Folder for units, figures, the page, and paper.json, learning.json, grid.json, classifier.json,
            measured.json or bodies.json.
        recipe: The paper's, or the one that estimates states, contacts and parameters together.
        data: Folder of measured recordings, by default that of the environment variable CAROM_DATA.
        runs: Seeds per model, trained together; of measured recordings, random crops.
        first_seed: The first of them. Reported numbers use 200 (recipe paper) or 0 (recipe carom), the
            defaults; tuning uses 100.
        workers: Processes to share the work; as many as there are cores, but at most 8, by default.
        protocol: What the paper's text says, what the authors' code does, or both.
        ablations: Also run the ablations (under the published protocol).
        grid: With --recipe carom: noise, number of bounces and touch, each learner in every cell.
        quick: Two per cent of the training, with --grid few cells too, to see that everything works.
        seed: Added to the first seed; every command takes it.
        json: Print one JSON object instead of a table.
    """
    require_range("--runs", runs, 1, 1000)
    if workers is None:
        workers = min(8, available_cores())
    require_range("--workers", workers, 1, 64)
    if first_seed is None:
        first_seed = REPORTED_SEED if recipe == "paper" else 0
    require_seed(seed)
    require_seed(first_seed, "--first-seed")
    require_seed(first_seed + seed + runs - 1, "The last seed")
    seeds = range(first_seed + seed, first_seed + seed + runs)
    if grid and recipe != "carom":
        raise InputError("--grid is an option of --recipe carom.")
    if recipe == "carom":
        if ablations or protocol != "both":
            raise InputError("--ablations and --protocol are options of --recipe paper.")
        if quick and not grid:
            raise InputError("--quick is an option of --recipe paper or of --grid.")
        if MEASURED in names and len(names) > 1:
            raise InputError("Measured recordings are reproduced by themselves; leave the other names out.")
        if data is not None and MEASURED not in names:
            raise InputError("--data is for measured recordings; add the name measured.")
        if grid:
            _reproduce_grid(names, seeds, out, workers=workers, quick=quick, json=json)
        elif names == (MEASURED,):
            _reproduce_measured(measured_folder(data), seeds, out, workers=workers, json=json)
        elif names == (BODIES,):
            _reproduce_bodies(seeds, out, workers=workers, json=json)
        elif names == (CLASSIFIER,):
            _reproduce_classifier(seeds, out, workers=workers, json=json)
        else:
            _reproduce_learning(names, seeds, out, workers=workers, json=json)
        return
    if data is not None:
        raise InputError("--data is for measured recordings; add the name measured and --recipe carom.")
    experiments = find_experiments(names)
    protocols = PROTOCOLS if protocol == "both" else (protocol,)
    units = plan(experiments, protocols, seeds)
    if ablations:
        units += plan(ABLATIONS, ("published",), seeds)
    if quick:
        units = [unit.shortened(0.02) for unit in units]
    options = [f"--runs {runs}", f"--protocol {protocol}"]
    options += [f"--first-seed {seeds[0]}"] * (seeds[0] != REPORTED_SEED)
    options += ["--ablations"] * ablations + ["--quick"] * quick
    command = " ".join(["carom reproduce", *names, *options])
    started = time.monotonic()
    with _folder(out, "units") as folder:
        with progress("reproducing") as tell:
            summaries = run_units(units, folder, workers=workers, progress=tell)
        with progress("asking the oracle") as tell:
            oracle = add_oracle(units, folder, workers=workers, progress=tell)
        write_results(summaries, oracle, out / "paper.json", command=command)
        make_folder(figures := out / FIGURES)
        write_figures(folder, figures)
        write_animations(folder, figures)
        write_report(folder, figures, out / "paper.html", command=command)
    if json:
        print_json({"out": str(out), "units": len(units), "seconds": time.monotonic() - started})
        return
    print_table(
        f"Error over {runs} runs: mean ± standard error, and median",
        ("experiment", "protocol", "model", "paper", "ours", "median"),
        [_line(summary) for summary in summaries],
    )
    print(f"Written to {out}: paper.html has every figure and table, paper.json every number.")


def _reproduce_classifier(seeds: range, out: Path, *, workers: int, json: bool) -> None:
    started = time.monotonic()
    command = f"carom reproduce {CLASSIFIER} --recipe carom {_seed_options(seeds)}"
    with _folder(out, "cases") as folder:
        with progress("fitting") as tell:
            results = run_cases(CASES, seeds, folder, workers=workers, progress=tell)
        write_classifier(results, out / "classifier.json", command=command)
    if json:
        print_json({"out": str(out), "cases": len(results), "seconds": time.monotonic() - started})
        return
    print_table(
        f"Forecasts of {len(seeds)} runs, contacts decided by the gap or by the classifier",
        HEADER,
        case_lines(results),
    )
    print(f"Written to {out}: classifier.json has every number.")


def _reproduce_learning(names: tuple[str, ...], seeds: range, out: Path, *, workers: int, json: bool) -> None:
    rows = find_rows(names)
    started = time.monotonic()
    command = " ".join(["carom reproduce", *names, "--recipe carom", _seed_options(seeds)])
    with _folder(out, "rows") as folder:
        with progress("fitting") as tell:
            results = run_rows(rows, seeds, folder, workers=workers, progress=tell)
        write_learning(results, out / "learning.json", command=command)
    if json:
        print_json({"out": str(out), "rows": len(rows), "seconds": time.monotonic() - started})
        return
    lines = []
    for name, result in results.items():
        errors = [line["paper_rmse"] for line in result["rows"]]
        oracle = [line["oracle"] for line in result["rows"] if "oracle" in line]
        wrong = sum(line.get("mistimed", 0) + line.get("missed", 0) for line in result["rows"])
        bound = "" if result["bound"] is None else result["bound"]
        mean = sum(oracle) / len(oracle) if oracle else ""
        lines.append((name, sum(errors) / len(errors), bound, mean, wrong, result["paper"]))
    print_table(
        f"Error over {len(seeds)} runs: mean",
        ("row", "ours", "asked", "oracle", "impacts off", "paper, with touch"),
        lines,
    )
    print(f"Written to {out}: learning.json has every number.")


def _reproduce_grid(
    names: tuple[str, ...], seeds: range, out: Path, *, workers: int, quick: bool, json: bool
) -> None:
    cells = plan_grid(names, quick=quick)
    started = time.monotonic()
    options = ["--recipe carom --grid", f"--runs {len(seeds)}"]
    options += [f"--first-seed {seeds[0]}"] * (seeds[0] != 0) + ["--quick"] * quick
    command = " ".join(["carom reproduce", *names, *options])
    with _folder(out, "cells") as folder:
        with progress("fitting") as tell:
            results = run_grid(cells, seeds, folder, workers=workers, progress=tell)
        document = write_grid(cells, results, out / "grid.json", command=command)
        write_grid_figure(document, out / FIGURES / "grid")
    if json:
        print_json({"out": str(out), "cells": len(cells), "seconds": time.monotonic() - started})
        return
    table = grid_table(document)
    print_table(table.caption, table.header, table.rows)
    print(f"Written to {out}: grid.json has every number, figures/grid.png shows them.")


def _reproduce_measured(data: Path, seeds: range, out: Path, *, workers: int, json: bool) -> None:
    started = time.monotonic()
    command = f"carom reproduce {MEASURED} --recipe carom {_seed_options(seeds)}"
    with _folder(out, "measured") as folder:
        with progress("fitting") as tell:
            results = run_measured(data, seeds, folder, workers=workers, progress=tell)
        document = write_measured(results, out / "measured.json", data=data, seeds=seeds, command=command)
        write_measured_figures(document, folder, out / FIGURES)
    if json:
        print_json({"out": str(out), "crops": len(seeds), "seconds": time.monotonic() - started})
        return
    lines = []
    for units in document["air_track"].values():
        law, constant = (spread(unit["errors"][name] for unit in units) for name in ("law", "constant"))
        ratio = spread(ratios(units, "constant"))
        lines.append((units[0]["title"], law.mean, constant.mean, ratio.mean, units[0]["bound"]))
    print_table(
        f"Velocities after collisions left out, over {len(seeds)} crops: mean error in m/s",
        ("bumper", "law", "best constant e", "ratio", "asked: at most"),
        lines,
    )
    errors = spread(line["energy_mse"] for line in document["pendulum"]["rows"])
    print(f"Pendulum, energy error on the last fifth: {errors.mean:.4g}; published: 0.0145 ± 0.0047.")
    print(f"Written to {out}: measured.json has every number, figures the pictures.")


def _reproduce_bodies(seeds: range, out: Path, *, workers: int, json: bool) -> None:
    started = time.monotonic()
    command = f"carom reproduce {BODIES} --recipe carom {_seed_options(seeds)}"
    with _folder(out, "bodies") as folder:
        with progress("measuring") as tell:
            results = run_bodies(seeds, folder, workers=workers, progress=tell)
        document = write_bodies(results, out / "bodies.json", seeds=seeds, command=command)
        write_bodies_figures(document, out / FIGURES)
    if json:
        print_json({"out": str(out), "seconds": time.monotonic() - started})
        return
    kept = document["mechanics"]["conservation"]
    print_table(
        f"Elastic balls over {kept['steps']} steps, the worst of {len(seeds)} scenes",
        ("dimension", "gravity", "energy strays by", "overlap / m"),
        [
            (row["dimension"], "yes" if row["gravity"] else "no", max(row["drift"]), max(row["overlap"]))
            for row in kept["rows"]
        ],
    )
    print(f"Written to {out}: bodies.json has every number, figures the pictures.")


def _seed_options(seeds: range) -> str:
    """The options of the recipe carom that give these seeds."""
    return f"--runs {len(seeds)}" + (f" --first-seed {seeds[0]}" if seeds[0] else "")


@contextmanager
def _folder(out: Path, name: str) -> Iterator[Path]:
    """A folder for what is finished; all of `out` is this command's alone as long as it writes there."""
    folder = out / name
    make_folder(folder)
    with locked(out):
        for place in (out, folder, out / FIGURES):
            remove_leftovers(place)
        yield folder


def _line(summary: dict) -> tuple[object, ...]:
    result = score(summary)
    paper = "" if result.paper is None else mean_and_error(*result.paper)
    names = summary["experiment"], summary["protocol"], summary["model"]
    return *names, paper, spread_mean(result.spread), result.spread.median
