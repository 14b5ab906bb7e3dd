"""`carom forecast`: what a trained model expects."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from carom.cli.arguments import MAXIMUM_STEPS, parse_state, require_output, state_from_numbers
from carom.cli.output import print_json
from carom.data import Recording, Run, read_described, read_recording, write_recording
from carom.data.io.columns import standard_columns
from carom.errors import InputError, require_range, require_seed
from carom.estimation import BandedForecast, forecast_after, forecast_from
from carom.estimation.parameters.sharing import contact_name
from carom.fits import load_alternatives_of, load_recording_of, load_run, noise_in
from carom.models import AbstractModel
from carom.models.contact_signal import GapContact


def forecast(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    start: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    end: bool = False,
    recording: Path | None = None,
    system: Path | None = None,
    steps: int = 500,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Roll a trained model out and write positions, velocities and touch, with a band around them.

    Example: carom forecast runs/ball --start 10,0 --steps 500 --out forecast.csv

    The columns q1_low, q1_high and so on hold what nine of ten models expect that the data do not tell from
    this one: draws from the covariance of a fit by the recipe carom, other seeds of the recipe paper (fit
    with --ensemble). From the end of a recording, the band holds the doubt about its last state too.

    Args:
        run: A run folder that `carom fit` wrote, or a model file.
        out: The forecast to write: .csv, .parquet or .npz.
        start: Positions then velocities, separated by commas; repeat it for more runs. By default the first
            state of the recording.
        end: Start from the end of every run of the recording that was fitted instead.
        recording: Start from the end of every run of this recording.
        system: The system file of that recording, by default the .toml beside it if there is one.
        steps: Steps to forecast.
        overwrite: Replace the forecast if it exists.
        seed: Seed of the draws of last states.
        json: Print one JSON object instead of a sentence.
    """
    require_seed(seed)
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    require_output(out, overwrite=overwrite)
    if bool(start) + end + (recording is not None) > 1:
        raise InputError("--start, --end and --recording: a forecast has one beginning; keep one.")
    if system is not None and recording is None:
        raise InputError("--system: it is for the recording to start from; add --recording.")
    model, notes = load_run(run)
    alternatives = load_alternatives_of(run, model)
    scene = model.scene
    if end or recording is not None:
        data = load_recording_of(run, model) if recording is None else _read(recording, system, model)
        noise = noise_in(notes) if end else None
        forecasts = [
            forecast_after(model, past, steps, alternatives=alternatives, noise=noise, seed=seed)
            for past in data.runs
        ]
        begins = [float(past.time[-1]) for past in data.runs]
        labels: Sequence[str | None] = data.labels
    else:
        shape: dict[str, int] = {"bodies": scene.bodies, "dimension": scene.dimension}
        states = [parse_state(text, **shape, option="--start") for text in start]
        states = states or [state_from_numbers(notes.get("start"), **shape)]
        if None in states:
            raise InputError(f"{run}: the model does not say where its recording starts; give --start.")
        forecasts = [
            forecast_from(model, state, steps, alternatives=alternatives)
            for state in states
            if state is not None
        ]
        begins, labels = [0.0] * len(forecasts), [None] * len(forecasts)
    if not all(one.finite for one in forecasts):
        raise InputError(f"{run}: the forecast leaves all bounds; forecast fewer steps or train again.")
    motions = tuple(
        _motion(one, model, begin, label) for one, begin, label in zip(forecasts, begins, labels, strict=True)
    )
    write_recording(Recording(motions, model.step_size, scene), out, further=_band(forecasts))
    touching = sum(int(motion.touch.any(axis=1).sum()) for motion in motions if motion.touch is not None)
    members = min(one.members for one in forecasts)
    if json:
        print_json(
            {"forecast": str(out), "steps": steps, "touching_samples": touching, "members": members}
            | ({"runs": len(motions)} if len(motions) > 1 else {})
        )
        return
    for number, one in enumerate(forecasts if not (end or recording is not None) else []):
        for contact, gap in _overlaps(model, one.position[0]):
            print(f"Note: start {number + 1} lies {-gap:.3g} inside the surface {contact}.")
    band = f"band of {members} models" if members > 1 else "no band: the run has one model alone"
    print(f"{out}: {steps} steps of {model.step_size:g} s; {touching} samples in contact; {band}.")


def _read(path: Path, system: Path | None, model: AbstractModel) -> Recording:
    """A recording to start from, of the bodies that the model knows."""
    if system is None and not path.with_suffix(".toml").exists():
        return read_recording(path, scene=model.scene, missing=("position", "velocity"))
    data, description = read_described(path, system)
    described = description.scene.bodies, description.scene.dimension
    if described != (model.scene.bodies, model.scene.dimension):
        raise InputError(
            f"{path}: it has {described[0]} bodies in {described[1]} dimensions, but the model has "
            f"{model.scene.bodies} in {model.scene.dimension}."
        )
    return data


def _overlaps(model: AbstractModel, position: np.ndarray) -> list[tuple[str, float]]:
    """Contacts whose surfaces a state is inside of by more than rounding, and their gaps."""
    where = model.contact if isinstance(model.contact, GapContact) else model.scene.geometry
    gaps = np.asarray(where.gap(jnp.asarray(position, jnp.float32)))
    slack = 1e-5 * np.abs(position).max()
    return [(contact_name(model.scene, j), float(gap)) for j, gap in enumerate(gaps) if gap < -slack]


def _motion(forecast: BandedForecast, model: AbstractModel, begin: float, label: str | None) -> Run:
    steps = len(forecast.position) - 1
    touch = None
    if model.contact.size:
        touch = np.asarray(jax.vmap(model.contact.to_touch)(jnp.asarray(forecast.contact)))
    return Run(
        time=begin + np.arange(steps + 1) * model.step_size,
        position=np.asarray(forecast.position, float),
        velocity=np.asarray(forecast.velocity, float),
        touch=touch,
        label=label,
    )


def _band(forecasts: Sequence[BandedForecast]) -> dict[str, np.ndarray]:
    """The columns q1_low, q1_high …, v1_low …, where every forecast has a band."""
    bodies, dimension = forecasts[0].position.shape[1:]
    names = standard_columns(bodies, dimension)
    columns: dict[str, np.ndarray] = {}
    for (channel, of_channel), bound in product(
        enumerate((names.position, names.velocity or ())), ("low", "high")
    ):
        parts = [getattr(one, bound) for one in forecasts]
        if any(part is None for part in parts):
            return {}
        values = np.concatenate([part[channel].reshape(len(part[channel]), -1) for part in parts])
        columns |= {f"{name}_{bound}": column for name, column in zip(of_channel, values.T, strict=True)}
    return columns
