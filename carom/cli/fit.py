"""`carom fit`: a model of a recording."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from carom.cli.output import print_json, print_table, progress
from carom.data.io.described import read_described
from carom.digits import mean_and_error, to_error
from carom.estimation import LatentFit, Parameter, TouchSensor
from carom.estimation.parameters.sharing import Laws
from carom.evaluation import paper_rmse, score_held_out
from carom.fits.options import FitOptions, Learnable, ModelName, Recipe, TouchOption
from carom.fits.plan import FitPlan, plan_fit
from carom.models import forecast as forecast_model
from carom.models.impact_network import Field
from carom.models.variational_integrator_network import Scheme
from carom.training import TrainingResult, TrainingSettings

HELD_OUT = "error of forecasts of what was held out, noise included"


@dataclass(frozen=True)
class PaperSettings(TrainingSettings):
    """The paper's recipe on the command line, where `--touch` serves both recipes."""

    touch: tyro.conf.Suppress[Literal["observed", "none"]] = "observed"  # pyright: ignore


def fit(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    system: Path | None = None,
    recipe: Recipe = "carom",
    touch: TouchOption | None = None,
    sensor: TouchSensor = TouchSensor(),  # noqa: B008
    learn: tuple[Learnable, ...] | None = None,
    laws: Laws = "each",
    field: Field = "shared",
    around: float | None = None,
    blind: int = 0,
    hold_out: float = 0.0,
    model: ModelName = "cd-lagrange",
    scheme: Scheme = "velocity_verlet",
    hidden: int | None = None,
    ensemble: int = 1,
    memory: float | None = None,
    settings: Annotated[PaperSettings, tyro.conf.OmitArgPrefixes] = PaperSettings(),  # noqa: B008
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Fit a model to a recording and write a run folder.

    Example: carom fit ball.csv --touch inferred --out runs/ball

    The recipe carom estimates states, contacts, noise and physical parameters together, and says how well
    each is known. The recipe paper trains a network by gradient descent on short windows; --model, --scheme,
    --ensemble, --memory and the settings at the end are for it.

    What is done is kept in the run folder as it goes: the same command continues a killed fit.

    Args:
        recording: What was measured: .csv, .parquet or .npz.
        out: The run folder: the model, the recording, what was found, and what `carom forecast` and
            `carom report` need.
        system: The system file, by default the .toml beside the recording.
        recipe: How the model is found.
        touch: What the touch columns mean: perfect readings, readings with errors, or nothing (inferred, the
            default of the recipe carom). The recipe paper knows observed, its default, and none.
        sensor: What is known of an imperfect touch sensor; the rest is estimated (--touch imperfect).
        learn: Physical parameters to estimate, instead of those that the system file names. Of where surfaces
            are, gap has a number for every contact, radii one for every body and every plane; normals are
            those of the planes.
        laws: Whether every contact has a restitution and a friction of its own, walls have one and pairs
            another (kind), or all have the same (one).
        field: Whether all bodies move in one field and act on each other by contact alone (shared), or also
            by their distance (pairs) or in any way (joint), or move freely between impacts (none).
        around: Seconds either side of each run's collision that are used, where every run has one; all of it
            by default.
        blind: Samples either side of an impact that are not compared, for contacts that last.
        hold_out: The share of the data that the fit does not see, to try its forecasts on: whole runs where
            there are five or more, the end of each run otherwise.
        model: What is trained by the recipe paper.
        scheme: The integrator of the model vin; stormer_verlet needs positions alone.
        hidden: Units in the hidden layer: 32 in the recipe carom, 500 in the recipe paper by default.
        ensemble: Seeds that the recipe paper trains from, together and on all devices; the band of a forecast
            is what they span.
        memory: Gigabytes that an ensemble may take on one device; a quarter of what it has by default. An
            ensemble that needs more is trained in parts.
        settings: The hyperparameters of the recipe paper.
        overwrite: Replace what is in the run folder.
        seed: Seed of the start weights and of the order of minibatches.
        json: Print one JSON object instead of a table.
    """
    options = FitOptions(
        recipe=recipe,
        touch=touch,
        sensor=sensor,
        learn=learn,
        laws=laws,
        field=field,
        around=around,
        blind=blind,
        hold_out=hold_out,
        model=model,
        scheme=scheme,
        hidden=hidden,
        ensemble=ensemble,
        memory=memory,
        settings=TrainingSettings(**vars(settings)),
        seed=seed,
    )
    plan = plan_fit(options, recording, *read_described(recording, system))
    with progress("fitting" if recipe == "carom" else f"training {model}") as tell:
        result = plan.make(out, overwrite=overwrite, progress=tell)
    if isinstance(result, LatentFit):
        _show_latent(result, plan, out, json=json)
    else:
        _show_trained(result, plan, out, json=json)


def _show_trained(result: TrainingResult, plan: FitPlan, out: Path, *, json: bool) -> None:
    data, model = plan.recording, plan.options.model
    losses = {name: float(part[-1]) for name, part in result.history._asdict().items()}
    seconds = result.seconds
    error = None
    if data.has_velocity:
        run = data.runs[0]
        predicted = forecast_model(result.model, data.start, len(run) - 1)
        error = paper_rmse(predicted, run, velocities=result.model.predicts_velocity)
    held_out = _held_out_error(result, plan)
    if json:
        errors = {"forecast_error": error, "held_out_error": held_out}
        print_json({"run": str(out), "model": model, **losses, **errors, "seconds": seconds})
        return
    rows: list[tuple[str, object]] = [(f"loss: {name}", value) for name, value in losses.items()]
    if error is not None:
        rows.append(("error of a forecast of run 1 from its first sample, noise included", error))
    if held_out is not None:
        rows.append((HELD_OUT, held_out))
    print_table(f"{model} on {plan.path}", ("", "value"), [*rows, ("seconds", seconds)])
    start = "" if data.has_velocity else " --start <positions,velocities>"
    print(f"Written to {out}. Forecast with: carom forecast {out}{start} --out forecast.csv")


def _show_latent(result: LatentFit, plan: FitPlan, out: Path, *, json: bool) -> None:
    found = [int(impacts.chosen.sum()) for impacts in result.impacts]
    data, held_out = plan.recording, _held_out_error(result, plan)
    if json:
        print_json(
            {
                "run": str(out),
                "model": "impact",
                "scheme": result.model.scheme,
                "parameters": {p.name: [p.value, p.standard_error] for p in result.parameters},
                "noise": list(result.noise),
                "impacts": found,
                "held_out_error": held_out,
                "misfit": list(result.misfit.messages),
                "notes": list(plan.notes),
                "seconds": result.seconds,
            }
        )
        return
    rows: list[tuple[str, object]] = [
        ("runs, samples", f"{len(data.runs)}, {data.samples}"),
        *([("samples held out", data.samples - plan.training.samples)] if plan.options.hold_out else []),
        ("impacts found", sum(found)),
        ("noise of positions", result.noise[0]),
    ]
    if data.missing_values:
        rows.insert(1, ("values missing", data.missing_values))
    if data.has_velocity:
        rows.append(("noise of velocities", result.noise[1]))
    rows += [(p.name, _value(p)) for p in result.parameters]
    if held_out is not None:
        rows.append((HELD_OUT, held_out))
    print_table(
        f"{plan.path}: {result.model.scheme} step", ("", "value"), [*rows, ("seconds", result.seconds)]
    )
    for message in (*plan.notes, *result.misfit.messages):
        print(f"Note: {message}")
    print(f"Written to {out}. Look at it with: carom report {out}")


def _held_out_error(result: TrainingResult | LatentFit, plan: FitPlan) -> float | None:
    if not plan.split.held_out:
        return None
    noise = (result.noise[0], result.noise[1]) if isinstance(result, LatentFit) else None
    return score_held_out(result.model, plan.split.held_out, noise=noise)


def _value(parameter: Parameter) -> str:
    if parameter.value is None or parameter.standard_error is None:
        return "not determined"
    if parameter.high == 1.0 and parameter.low is not None and parameter.name.startswith("restitution"):
        value, least = (to_error(part, parameter.standard_error) for part in (parameter.value, parameter.low))
        return f"{value} (at least {least})"
    return mean_and_error(parameter.value, parameter.standard_error)
