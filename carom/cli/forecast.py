"""`carom forecast`: the future motion by a fitted model."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.console import MAXIMUM_STEPS, WriterCommon, parse_state, print_json, require_output, state_of
from carom.data import write_recording
from carom.errors import InputError, require_range
from carom.evaluation.forecasts import forecast_ends, forecast_states, read_past
from carom.fits import load_fit_directory, load_fitted_model, noise_from_notes


def forecast(
    fit: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    start: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    end: bool = False,
    recording: Path | None = None,
    system: Path | None = None,
    steps: int = 500,
    common: WriterCommon,
) -> None:
    """Forecast positions, velocities and touch with a fitted model, and write them with credible bands.

    Example: carom forecast fits/ball --start 10,0 --steps 500 --out forecast.csv

    The columns q1_low, q1_high and so on are pointwise 90 % credible bands: from posterior samples of a fit
    by the recipe carom, or from the ensemble of the recipe paper (fit with --ensemble). From the end of a
    recording, they include the uncertainty of its last state.

    Args:
        fit: A fit directory written by `carom fit`, or a model file.
        out: The forecast to write: .csv, .parquet or .npz.
        start: Positions then velocities, separated by commas; repeat it for more runs. By default the first
            state of the recording.
        end: Start from the end of every run of the fitted recording instead.
        recording: Start from the end of every run of this recording.
        system: The system file of that recording, by default the .toml beside it if there is one.
        steps: Steps to forecast.
    """
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    require_output(out, overwrite=common.overwrite)
    if bool(start) + end + (recording is not None) > 1:
        raise InputError("--start, --end and --recording exclude each other; keep one.")
    if system is not None and recording is None:
        raise InputError("--system describes the recording to start from; add --recording.")
    # A model file alone has no recording to end and no posterior.
    saved = load_fit_directory(fit) if end or fit.is_dir() else None
    model, notes = (saved.model, saved.notes) if saved else load_fitted_model(fit)
    posterior = saved.posterior if saved else None
    if end or recording is not None:
        past = saved.recording if recording is None else read_past(recording, system, model)  # pyright: ignore
        # Another recording may come from another sensor; its noise is estimated anew.
        noise = noise_from_notes(notes) if end else None
        ahead = forecast_ends(model, past, steps, posterior=posterior, noise=noise, seed=common.seed)
    else:
        states = [parse_state(text, model.scene, option="--start") for text in start]
        if not states:
            noted = notes.get("start", ())
            if len(noted) != 2 * model.scene.coordinates:
                raise InputError(f"{fit}: the initial state of the recording is not known; give --start.")
            states = [state_of(noted, model.scene)]
        ahead = forecast_states(model, states, steps, posterior=posterior)
    # A file of infinities would be read by nothing, and drawn by nothing.
    if not ahead.finite:
        raise InputError(f"{fit}: the forecast diverges; forecast fewer steps or fit again.")
    write_recording(ahead.recording, out, further=ahead.bands)
    touching, members, runs = ahead.touching_samples, ahead.members, len(ahead.recording.runs)
    if common.json:
        values = {"forecast": str(out), "steps": steps, "touching_samples": touching, "members": members}
        print_json(values | ({"runs": runs} if runs > 1 else {}))
        return
    band = f"90 % band from {members} models" if members > 1 else "no band, as the fit has a single model"
    print(f"{out}: {steps} steps of {model.step_size:g} s; {touching} samples in contact; {band}.")
