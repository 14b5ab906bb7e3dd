"""The folder that a fit leaves behind: the model, its history, and what made it."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from carom.data import Recording, Split, read_recording, write_recording
from carom.data import hold_out as hold_out_share
from carom.errors import InputError
from carom.estimation.result import LatentFit
from carom.fits.model_file import load_model, read_notes, save_model
from carom.fits.posterior_file import load_alternatives, save_alternatives
from carom.models import AbstractModel
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file
from carom.storage.tensor_file import read_tensors, write_tensors
from carom.training import TrainingResult

MODEL, HISTORY, SUMMARY = "model.safetensors", "history.jsonl", "run.json"
ALTERNATIVES, MOTIONS, RECORDING = "alternatives.safetensors", "motions.safetensors", "recording.parquet"
TIMING = "timing.json"
UNFINISHED = ".carom-unfinished"
"""Where a fit works until its run is whole."""
MAXIMUM_HISTORY_BYTES = 2**25
OTHERS = (HISTORY, SUMMARY, TIMING, ALTERNATIVES, MOTIONS, RECORDING)
"""What a run folder holds besides the model; a fit by the paper's recipe has no motions, one alone no
alternatives. All but the timing are the same, byte for byte, whenever the same fit is made."""


def save_run(
    fit: TrainingResult | LatentFit,
    folder: str | os.PathLike[str],
    *,
    recording: Recording,
    recording_path: Path,
    seed: int,
    hold_out: float = 0.0,
    alternatives: AbstractModel | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write the files of a run into a folder, which must exist.

    Arguments:
        fit: the result.
        folder: where to.
        recording: all that was measured, with what was held out.
        recording_path: the file it came from; its name is kept.
        seed: of the fit.
        hold_out: the share that the fit did not see.
        alternatives: the same training from other seeds; a fit by the recipe carom brings its own.
        names: what the position columns were called, for figures.
    """
    folder = Path(folder)
    notes: dict[str, Any] = {
        "recording": recording_path.name,
        "recording_sha256": recording_hash(recording),
        "settings": asdict(fit.settings),
        "seed": seed,
        "hold_out": hold_out,
        "names": list(names),
    }
    if isinstance(fit, LatentFit):
        first = fit.motions[0]
        start = (*np.ravel(first.position[0]), *np.ravel(first.velocity[0]))
        notes |= _findings(fit)
        alternatives = fit.draws
        write_tensors(
            folder / MOTIONS,
            {
                f"{number}.{channel}": getattr(motion, channel)
                for number, motion in enumerate(fit.motions)
                for channel in Retraced._fields
            },
            {"runs": len(fit.motions)},
        )
        history = [
            {"round": number, "log_likelihood": value} for number, value in enumerate(fit.history, start=1)
        ]
    else:
        start = None
        if recording.has_velocity:
            state = recording.start
            start = (*np.ravel(state.position), *np.ravel(state.velocity))
        epochs = zip(*(np.asarray(part, float) for part in fit.history), strict=True)
        history = [
            {"epoch": epoch, **dict(zip(fit.history._fields, losses, strict=True))}
            for epoch, losses in enumerate(epochs, start=1)
        ]
    if start is not None:
        notes["start"] = [float(x) for x in start]
    with atomic_write(folder / HISTORY) as temporary:
        temporary.write_text("\n".join(json.dumps(line) for line in history) + "\n")
    with atomic_write(folder / SUMMARY) as temporary:
        temporary.write_text(json.dumps(notes, indent=2) + "\n")
    with atomic_write(folder / TIMING) as temporary:
        temporary.write_text(json.dumps({"seconds": fit.seconds}) + "\n")
    write_recording(recording, folder / RECORDING)
    if alternatives is not None:
        save_alternatives(alternatives, folder / ALTERNATIVES)
    save_model(fit.model, folder / MODEL, notes=notes)


def _findings(fit: LatentFit) -> dict[str, Any]:
    """Parameters, noise, impacts and doubts, as the run folder keeps them."""
    return {
        "parameters": [asdict(parameter) for parameter in fit.parameters],
        "noise": [None if np.isnan(value) else value for value in fit.noise],
        "misfit": list(fit.misfit.messages),
        "impacts": [np.argwhere(found.chosen).tolist() for found in fit.impacts],
        "log_likelihood": fit.log_likelihood,
    }


def load_run(path: str | os.PathLike[str]) -> tuple[AbstractModel, dict[str, Any]]:
    """The model of a run folder, or of a model file, and its notes."""
    path = Path(path)
    model_path = path / MODEL if path.is_dir() else path
    if path.is_dir() and not model_path.exists():
        if (path / UNFINISHED).exists():
            raise InputError(f"{path}: the fit in this folder is not finished; its command continues it.")
        raise InputError(f"{path}: this folder has no {MODEL}; name one that `carom fit` wrote.")
    return load_model(model_path), read_notes(model_path)


class Retraced(NamedTuple):
    """A run as a fit retraces it."""

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]


class FinishedRun(NamedTuple):
    """All that a run folder holds.

    Arguments:
        model: what was fitted.
        notes: how, and what was found.
        recording: all that was measured, with what was held out.
        split: the same in two parts, as the fit had it.
        alternatives: models that the data do not tell from this one; None where there are none.
        motions: every run of the training part as the fit retraces it; none for the paper's recipe.
        history: one mapping per round or epoch.
    """

    model: AbstractModel
    notes: dict[str, Any]
    recording: Recording
    split: Split
    alternatives: AbstractModel | None
    motions: tuple[Retraced, ...]
    history: tuple[dict[str, float], ...]


def load_alternatives_of(path: Path, model: AbstractModel) -> AbstractModel | None:
    """The alternatives in a run folder; None where it has none, or where a model file was named."""
    file = path / ALTERNATIVES
    return load_alternatives(file, model) if path.is_dir() and file.exists() else None


def load_recording_of(path: Path, model: AbstractModel) -> Recording:
    """The recording that a run folder keeps."""
    file = path / RECORDING
    if not (path.is_dir() and file.exists()):
        raise InputError(f"{path}: there is no {RECORDING} in it; name a run folder that `carom fit` wrote.")
    return read_recording(file, scene=model.scene, missing=("position", "velocity"))


def load_finished_run(path: str | os.PathLike[str]) -> FinishedRun:
    """Read a run folder whole."""
    path = Path(path)
    model, notes = load_run(path)
    recording = load_recording_of(path, model)
    share = notes.get("hold_out", 0.0)
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise InputError(f"{path / MODEL}: the share that was held out is not a number; fit it again.")
    split = hold_out_share(recording, float(share))
    return FinishedRun(
        model,
        notes,
        recording,
        split,
        load_alternatives_of(path, model),
        _load_motions(path / MOTIONS, split.training) if (path / MOTIONS).exists() else (),
        _load_history(path / HISTORY),
    )


def noise_in(notes: Mapping[str, Any]) -> tuple[float, float] | None:
    """Standard deviations of positions and velocities, where a fit has noted any that make sense."""
    noise = notes.get("noise")
    if not isinstance(noise, list) or len(noise) != 2:
        return None
    values = [value if type(value) is float and 0 < value < np.inf else float("nan") for value in noise]
    return None if np.isnan(values[0]) else (values[0], values[1])


def _load_motions(file: Path, training: Recording) -> tuple[Retraced, ...]:
    _, tensors = read_tensors(file, kind="set of motions")
    motions = []
    for number, run in enumerate(training.runs):
        position, velocity = (tensors.get(f"{number}.{channel}") for channel in Retraced._fields)
        if position is None or velocity is None or {position.shape, velocity.shape} != {run.position.shape}:
            raise complaint(file, "the motions are not those of the recording beside them; fit it again")
        motions.append(Retraced(position.astype(float), velocity.astype(float)))
    return tuple(motions)


def _load_history(file: Path) -> tuple[dict[str, float], ...]:
    require_file(file, maximum_bytes=MAXIMUM_HISTORY_BYTES, kind="history")
    try:
        lines = tuple(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError, RecursionError) as error:
        raise complaint(file, "the lines are not JSON; fit it again") from error
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, dict) or not all(type(value) in (int, float) for value in line.values()):
            raise complaint(file, "this is not an object of numbers; fit it again", f"line {number}")
    return tuple({key: float(value) for key, value in line.items()} for line in lines)


def recording_hash(recording: Recording) -> str:
    """A hash of all samples, to tell which data a model was trained on."""
    digest = hashlib.sha256()
    for run in recording.runs:
        digest.update(repr(run.position.shape).encode())
        for channel in (run.time, run.position, run.velocity, run.touch):
            if channel is not None:
                digest.update(np.ascontiguousarray(channel).tobytes())
    return digest.hexdigest()
