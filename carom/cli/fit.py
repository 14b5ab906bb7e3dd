"""`carom fit`: a model of a recording.

Its options are the fields of `carom.fits.options.FitOptions` and of the settings of the recipes, which are
declared in `carom.estimation.settings` and `carom.training.settings`.
"""

import sys
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from carom.cli.console import print_json, print_table, progress
from carom.data import read_described
from carom.estimation import Fit
from carom.evaluation import fit_rival, paper_rmse, score_held_out
from carom.fits.options import OPTIONS, FitOptions, Option
from carom.fits.plan import FitPlan, plan_fit
from carom.models import forecast as forecast_model
from carom.training import TrainingResult

HELD_OUT = "error of forecasts of held-out data, noise included"
BY_TEXTBOOK = "the same by the textbook (free flight, regression)"


def _argument(option: Option) -> tuple[str, Any, Any]:
    """One field of `FitArguments`."""
    # None stands for a default that depends on the recipe.
    kind = option.type if option.default is not None else option.type | None
    only = f"Recipe {option.recipes[0]}: " if option.recipes else ""
    help_text = tyro.conf.arg(help=f"{only}{option.explanation}")
    return option.name, Annotated[kind, help_text], field(default=option.default)


FitArguments: Any = make_dataclass("FitArguments", map(_argument, OPTIONS.values()), kw_only=True)
"""Every option of a fit, for the command line."""


def fit(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    system: Path | None = None,
    options: Annotated[FitArguments, tyro.conf.arg(name="")],  # pyright: ignore[reportInvalidTypeForm]
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Fit a model to a recording and write a fit directory.

    Example: carom fit ball.csv --learn restitution surfaces --out fits/ball

    The recipe carom estimates states, contacts, noise and physical parameters together, with their errors.
    The recipe paper trains a network by gradient descent on short windows.

    A fit that failed is written as well, with the likeliest cause, and the exit status is then 1.

    Progress is saved in the fit directory: the same command continues a fit that was killed.

    Args:
        recording: The recording: .csv, .parquet or .npz.
        out: The fit directory: the model, the recording, the results, and what `carom forecast` and
            `carom report` need.
        system: The system file, by default the .toml beside the recording.
        options: What is fitted, and how.
        overwrite: Replace the content of the fit directory.
        json: Print one JSON object instead of a table.
    """
    chosen = FitOptions.from_values(vars(options))
    plan = plan_fit(chosen, recording, *read_described(recording, system))
    with progress("fitting" if chosen.recipe == "carom" else f"training {options.model}") as report:
        result = plan.run(out, overwrite=overwrite, keep_failed=True, progress=report)
    found, summary, notes = _estimated(result, plan) if isinstance(result, Fit) else _trained(result, plan)
    # Scored here and by sweeps alike, never inside the fit, which must not see these data.
    held_out, scored, rival = None, [], None
    if plan.split.held_out:
        noise = (result.noise[0], result.noise[1]) if isinstance(result, Fit) else None
        held_out = score_held_out(result.model, plan.split.held_out, noise=noise)
        scored = [(HELD_OUT, held_out)]
        rival = fit_rival(plan.training, plan.split.held_out)
    if held_out is not None and rival is not None:
        scored.append((BY_TEXTBOOK, rival.error))
        verdict = rival.verdict(held_out)
        notes = notes if verdict is None else (verdict, *notes)
    failed = isinstance(result, Fit) and result.failed
    if json:
        errors = {"held_out_error": held_out, "textbook_error": None if rival is None else rival.error}
        print_json({"run": str(out), "failed": failed, **found, **errors, "seconds": result.seconds})
    else:
        title = f"{plan.path}: {found.get('stepper', found['model'])}"
        print_table(title, ("", "value"), [*summary, *scored, ("seconds", result.seconds)])
        for note in notes:
            print(f"Note: {note}")
        print(f"Written to {out}. Look at it with: carom report {out}")
        if not failed:
            start = "--end" if isinstance(result, Fit) else "--start <positions,velocities>"
            print(f"Forecast with: carom forecast {out} {start} --out forecast.csv")
    if failed:
        sys.exit(1)


Summary = tuple[dict[str, Any], list[tuple[str, object]], tuple[str, ...]]
"""What is printed of a fit: as JSON, as rows of a table, and as notes below it."""


def _trained(result: TrainingResult, plan: FitPlan) -> Summary:
    data = plan.recording
    losses = {name: float(part[-1]) for name, part in result.history._asdict().items()}
    rows: list[tuple[str, object]] = [(f"loss: {name}", value) for name, value in losses.items()]
    error = None
    if data.has_velocity:
        predicted = forecast_model(result.model, data.start, len(data.runs[0]) - 1)
        error = paper_rmse(predicted, data.runs[0], velocities=result.model.predicts_velocity)
        rows.append(("error of a forecast of run 1 from its first sample, noise included", error))
    return {"model": plan.options.settings.model, **losses, "forecast_error": error}, rows, ()  # pyright: ignore


def _estimated(result: Fit, plan: FitPlan) -> Summary:
    # Per run, so that a run without a bounce stands out.
    impacts = [int(found.chosen.sum()) for found in result.impacts]
    data, diagnostics = plan.recording, tuple(result.diagnostics.messages)
    rows: list[tuple[str, object]] = [("runs, samples", f"{len(data.runs)}, {data.samples}")]
    if data.missing_values:
        rows.append(("missing values", data.missing_values))
    if plan.split.held_out:
        rows.append(("samples held out", data.samples - plan.training.samples))
    rows += [(f"samples {name.replace('_', ' ')}", count) for name, count in result.counts._asdict().items()
             if count]  # fmt: skip
    rows += [("impacts", sum(impacts)), ("noise of positions", result.noise[0])]
    if data.has_velocity:
        rows.append(("noise of velocities", result.noise[1]))
    for parameter in result.parameters:
        # The sentence of the fit, which may speak of a bound, without the name at its beginning.
        rows.append((parameter.name, parameter.words.removeprefix(f"{parameter.name}: ").removesuffix(".")))
    found = {
        "model": "mechanism",
        "stepper": result.model.stepper.name,
        "parameters": {p.name: [p.value, p.standard_error] for p in result.parameters},
        "noise": list(result.noise),
        "impacts": impacts,
        "samples": result.counts._asdict(),
        "diagnostics": list(diagnostics),
        "notes": list(plan.notes),
    }
    return found, rows, (*plan.notes, *diagnostics)
