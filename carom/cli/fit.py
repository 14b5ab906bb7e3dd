"""`carom fit`: a model of a recording."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from carom.cli.arguments import require_range, require_seed
from carom.cli.output import print_json, print_table, progress
from carom.data import Recording
from carom.data import hold_out as hold_out_share
from carom.data.files.described import read_described
from carom.data.files.system_file import Learn
from carom.errors import InputError
from carom.evaluation import paper_rmse
from carom.learning import (
    LatentSettings,
    Learned,
    Parameter,
    TouchSensor,
    WindowedSettings,
    around_impact,
    fit_latent,
    fit_many,
    new_run_folder,
    save_run,
    together,
)
from carom.learning.ties import Laws
from carom.models import MODELS
from carom.models import forecast as forecast_model
from carom.models.impact_network import Field
from carom.models.variational_integrator_network import Scheme

Learnable = Literal[
    "restitution",
    "restitution-speed",
    "restitution-per-run",
    "gap",
    "gap-per-run",
    "masses",
    "masses-per-run",
    "damping",
    "friction",
    "radii",
    "normals",
]


@dataclass(frozen=True)
class PaperSettings(WindowedSettings):
    """The paper's recipe on the command line, where `--touch` serves both recipes."""

    touch: tyro.conf.Suppress[Literal["observed", "none"]] = "observed"  # pyright: ignore


def fit(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    system: Path | None = None,
    recipe: Literal["carom", "paper"] = "carom",
    touch: Literal["observed", "inferred", "imperfect", "none"] | None = None,
    sensor: TouchSensor = TouchSensor(),  # noqa: B008
    learn: tuple[Learnable, ...] | None = None,
    laws: Laws = "each",
    field: Field = "shared",
    around: float | None = None,
    blind: int = 0,
    hold_out: float = 0.0,
    model: Literal["cd-lagrange", "vin", "resnet", "contact-resnet"] = "cd-lagrange",
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
    each is known. The recipe paper trains a network by gradient descent on short windows; the options below
    --model are for it.

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
    require_seed(seed)
    hidden = hidden if hidden is not None else 32 if recipe == "carom" else 500
    require_range("--hidden", hidden, 1, 100_000)
    if sensor != TouchSensor() and touch != "imperfect":
        raise InputError(
            "--sensor: only an imperfect touch sensor has rates and a delay; add --touch imperfect."
        )
    if model != "vin" and scheme != "velocity_verlet":
        raise InputError(f"--scheme {scheme}: only the model vin has it; add --model vin.")
    data, description = read_described(recording, system)
    names = description.columns.position if description.columns else ()
    if recipe == "carom":
        if model != "cd-lagrange":
            raise InputError(f"--model {model} needs the paper's recipe; add --recipe paper.")
        if settings != PaperSettings():
            raise InputError(
                "Options of the paper's recipe were given; add --recipe paper, or leave them out."
            )
        if touch == "none":
            raise InputError("--touch none: the recipe carom has --touch inferred for that.")
        require_range("--hidden", hidden, 1, 256)
        require_range("--blind", blind, 0, (max(len(run) for run in data.runs) - 1) // 4)
        chosen = LatentSettings(
            touch=touch or "inferred",
            sensor=sensor,
            learned=learned_from(description.learn, learn, laws),
            field=field,
            hidden=hidden,
            blind=blind,
        )
        if ensemble != 1 or memory is not None:
            raise InputError(
                "--ensemble and --memory: the recipe carom has a band without; they are for --recipe paper."
            )
        if around is not None:
            data = around_impact(data, around, blind=blind)
        kept: dict[str, Any] = {"hold_out": hold_out, "names": names}
        _fit_latent(recording, data, chosen, out, **kept, overwrite=overwrite, seed=seed, json=json)
        return
    if touch in ("inferred", "imperfect"):
        raise InputError(f"--touch {touch}: the paper's recipe knows observed and none.")
    if field != "shared" or around is not None or blind or laws != "each":
        raise InputError("--field, --laws, --around and --blind: only the recipe carom has them.")
    if learn is not None:
        raise InputError("--learn: the paper's recipe takes this from the system file's table [learn].")
    settings = replace(settings, touch=touch or "observed")
    options: dict[str, Any] = {"hidden": hidden}
    if model == "cd-lagrange":
        options |= {"learn_inertia": description.learn.masses, "learn_damping": description.learn.damping}
    elif description.learn.masses or description.learn.damping:
        path = system or recording.with_suffix(".toml")
        raise InputError(f"{path}, [learn]: only the model cd-lagrange learns masses or damping.")
    if model == "vin":
        options["scheme"] = scheme
    require_range("--ensemble", ensemble, 1, 10_000)
    if memory is not None and not 0 < memory < math.inf:
        raise InputError(f"--memory must be a positive number of gigabytes, but it is {memory:g}.")
    training = hold_out_share(data, hold_out).training
    require_seed(seed + ensemble - 1)
    seeds = range(seed, seed + ensemble)
    untrained = [MODELS[model].for_recording(data, key=jax.random.key(number), **options) for number in seeds]
    with new_run_folder(out, overwrite=overwrite) as new, progress(f"training {model}") as tell:
        results = fit_many(
            untrained,
            [training],
            settings,
            seeds=seeds,
            memory=None if memory is None else 1e9 * memory,
            progress=tell,
            checkpoints=new.checkpoints,
        )
        finished = [one for one in results if not one.failed]
        if not finished:
            new.give_up()
            raise InputError(
                "Training ended in numbers that are not finite; choose a smaller --learning-rate."
            )
        result = finished[0]
        others = together([one.model for one in finished]) if ensemble > 1 else None
        save_run(
            result,
            new.files,
            recording=data,
            recording_path=recording,
            seed=seed,
            hold_out=hold_out,
            alternatives=others,
            names=names,
        )

    losses = {name: float(part[-1]) for name, part in result.history._asdict().items()}
    seconds = result.seconds
    error = None
    if data.has_velocity:
        run = data.runs[0]
        predicted = forecast_model(result.model, data.start, len(run) - 1)
        error = paper_rmse(predicted, run, velocities=result.model.predicts_velocity)
    if json:
        print_json({"run": str(out), "model": model, **losses, "forecast_error": error, "seconds": seconds})
        return
    rows: list[tuple[str, object]] = [(f"loss: {name}", value) for name, value in losses.items()]
    if error is not None:
        rows.append(("error of a forecast of run 1 from its first sample, noise included", error))
    print_table(f"{model} on {recording}", ("", "value"), [*rows, ("seconds", seconds)])
    start = "" if data.has_velocity else " --start <positions,velocities>"
    print(f"Written to {out}. Forecast with: carom forecast {out}{start} --out forecast.csv")


def learned_from(stated: Learn, chosen: tuple[str, ...] | None, laws: Laws = "each") -> Learned:
    """What to estimate: as on the command line, else as in the system file."""
    if chosen is None:
        return Learned(
            restitution=stated.restitution,
            laws=laws,
            gap=stated.gap,
            masses=stated.masses,
            damping=stated.damping,
        )
    if "gap" in chosen and "radii" in chosen:
        raise InputError("--learn: gap and radii are two ways to say where surfaces are; choose one.")
    speed, constant = "restitution-speed" in chosen, "restitution" in chosen
    if speed and constant:
        raise InputError("--learn: restitution is constant or restitution-speed; choose one.")
    return Learned(
        restitution="speed" if speed else "constant" if constant else "fixed",
        laws=laws,
        gap="gap" in chosen or "radii" in chosen,
        surfaces="bodies" if "radii" in chosen else "each",
        normals="normals" in chosen,
        friction="friction" in chosen,
        masses="masses" in chosen,
        damping="damping" in chosen,
        gap_per_run="gap-per-run" in chosen,
        restitution_per_run="restitution-per-run" in chosen,
        masses_per_run="masses-per-run" in chosen,
    )


def _fit_latent(
    path: Path,
    data: Recording,
    settings: LatentSettings,
    out: Path,
    *,
    hold_out: float,
    names: tuple[str, ...],
    overwrite: bool,
    seed: int,
    json: bool,
) -> None:
    training = hold_out_share(data, hold_out).training
    with new_run_folder(out, overwrite=overwrite) as new, progress("fitting") as tell:
        result = fit_latent(training, settings, seed=seed, progress=tell, checkpoints=new.checkpoints)
        tell(1.0)
        if result.failed:
            new.give_up()
            raise InputError(
                f"{path}: the fit failed: its residuals are {result.misfit.excess:.0f} times the noise of "
                "the data; check the candidate contacts in the system file, or try another --seed."
            )
        save_run(
            result,
            new.files,
            recording=data,
            recording_path=path,
            seed=seed,
            hold_out=hold_out,
            names=names,
        )
    found = [int(impacts.chosen.sum()) for impacts in result.impacts]
    if json:
        print_json(
            {
                "run": str(out),
                "model": "impact",
                "scheme": result.model.scheme,
                "parameters": {p.name: [p.value, p.standard_error] for p in result.parameters},
                "noise": list(result.noise),
                "impacts": found,
                "misfit": list(result.misfit.messages),
                "seconds": result.seconds,
            }
        )
        return
    rows: list[tuple[str, object]] = [
        ("runs, samples", f"{len(data.runs)}, {data.samples}"),
        *([("samples held out", data.samples - training.samples)] if hold_out else []),
        ("impacts found", sum(found)),
        ("noise of positions", result.noise[0]),
    ]
    if data.missing_values:
        rows.insert(1, ("values missing", data.missing_values))
    if data.has_velocity:
        rows.append(("noise of velocities", result.noise[1]))
    rows += [(p.name, _value(p)) for p in result.parameters]
    print_table(f"{path}: {result.model.scheme} step", ("", "value"), [*rows, ("seconds", result.seconds)])
    for message in result.misfit.messages:
        print(f"Note: {message}")
    print(f"Written to {out}. Look at it with: carom report {out}")


def _value(parameter: Parameter) -> str:
    if parameter.value is None or parameter.standard_error is None:
        return "not determined"
    if parameter.high == 1.0 and parameter.low is not None and parameter.name.startswith("restitution"):
        return f"{parameter.value:.4g} (at least {parameter.low:.4g})"
    return f"{parameter.value:.4g} ± {parameter.standard_error:.2g}"
