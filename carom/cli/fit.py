"""`carom fit`: a model of a recording, by the paper's recipe."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from carom.cli.arguments import require_range, require_seed
from carom.cli.output import print_json, print_table, progress
from carom.data import read_recording, read_system_file
from carom.data.files.input_file import require_file
from carom.data.files.tables import MAXIMUM_BYTES
from carom.errors import InputError
from carom.evaluation import paper_rmse
from carom.learning import WindowedSettings, fit_windowed, new_run_folder, save_run
from carom.models import MODELS
from carom.models import forecast as forecast_model
from carom.models.variational_integrator_network import Scheme


def fit(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    system: Path | None = None,
    model: Literal["cd-lagrange", "vin", "resnet", "contact-resnet"] = "cd-lagrange",
    scheme: Scheme = "velocity_verlet",
    hidden: int = 500,
    settings: Annotated[WindowedSettings, tyro.conf.OmitArgPrefixes] = WindowedSettings(),  # noqa: B008
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Train a model on a recording by the paper's recipe and write a run folder.

    Example: carom fit ball.csv --out runs/ball

    Args:
        recording: What was measured: .csv, .parquet or .npz.
        out: The run folder: model.safetensors, history.jsonl and run.json.
        system: The system file, by default the .toml beside the recording.
        model: What is trained.
        scheme: The integrator of the model vin; stormer_verlet needs positions alone.
        hidden: Units in the hidden layer of the potential or of the residual network.
        settings: The recipe's hyperparameters.
        overwrite: Replace what is in the run folder.
        seed: Seed of the start weights and of the order of minibatches.
        json: Print one JSON object instead of a table.
    """
    require_seed(seed)
    require_range("--hidden", hidden, 1, 100_000)
    if model != "vin" and scheme != "velocity_verlet":
        raise InputError(f"--scheme {scheme}: only the model vin has it; add --model vin.")
    require_file(recording, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    system_path = system or recording.with_suffix(".toml")
    if system is None and not system_path.exists():
        raise InputError(
            f"{recording}: there is no system file {system_path} beside it; name one with --system."
        )
    description = read_system_file(system_path)
    data = read_recording(
        recording, columns=description.columns, scene=description.scene, step_size=description.step_size
    )
    options: dict[str, Any] = {"hidden": hidden}
    if model == "cd-lagrange":
        options |= {"learn_inertia": description.learn.masses, "learn_damping": description.learn.damping}
    elif description.learn.masses or description.learn.damping:
        raise InputError(f"{system_path}, [learn]: only the model cd-lagrange learns masses or damping.")
    if model == "vin":
        options["scheme"] = scheme
    untrained = MODELS[model].for_recording(data, key=jax.random.key(seed), **options)
    started = time.monotonic()
    with new_run_folder(out, overwrite=overwrite) as folder, progress(f"training {model}") as tell:
        result = fit_windowed(untrained, data, settings, seed=seed, progress=tell)
        if result.failed:
            raise InputError(
                "Training ended in numbers that are not finite; choose a smaller --learning-rate."
            )
        save_run(result, folder, recording=data, recording_path=recording, seed=seed)

    losses = {name: float(part[-1]) for name, part in result.history._asdict().items()}
    seconds = time.monotonic() - started
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
