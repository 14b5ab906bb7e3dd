"""The folder that a fit leaves behind: the model, its history, and what made it."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from carom.atomic import atomic_write
from carom.data import Recording
from carom.errors import InputError
from carom.learning.latent_fit import LatentFit
from carom.learning.model_file import load_model, read_notes, save_model
from carom.learning.windowed import Fit
from carom.models import AbstractModel

MODEL, HISTORY, SUMMARY = "model.safetensors", "history.jsonl", "run.json"


def save_run(
    fit: Fit | LatentFit,
    folder: str | os.PathLike[str],
    *,
    recording: Recording,
    recording_path: Path,
    seed: int,
) -> None:
    """Write the files of a run into a folder, which must exist."""
    folder = Path(folder)
    notes: dict[str, Any] = {
        "recording": recording_path.name,
        "recording_sha256": recording_hash(recording),
        "settings": asdict(fit.settings),
        "seed": seed,
        "seconds": fit.seconds,
    }
    if isinstance(fit, LatentFit):
        first = fit.motions[0]
        start = (*np.ravel(first.position[0]), *np.ravel(first.velocity[0]))
        notes |= _findings(fit)
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
        raise InputError(f"{path}: this folder has no {MODEL}; name one that `carom fit` wrote.")
    return load_model(model_path), read_notes(model_path)


@contextmanager
def new_run_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a temporary folder beside `folder` to save a run into, and move its files there at the end.

    A folder with a run in it is refused unless `overwrite` is set. An error inside, Ctrl-C included, removes
    what was made and leaves an older run as it was.
    """
    if (folder / MODEL).exists() and not overwrite:
        raise InputError(f"{folder}: there is a run in this folder; choose another or pass --overwrite.")
    target = folder.resolve()
    made = [place for place in (target, *target.parents) if not place.exists()]
    temporary = target.parent / f".carom-{secrets.token_hex(8)}"
    try:
        try:
            target.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
        except OSError as error:
            reason = f"the folder cannot be made ({error.strerror}); choose another"
            raise InputError(f"{folder}: {reason}.") from error
        yield temporary
        # The model comes last: a folder with a model is whole.
        for name in (HISTORY, SUMMARY, MODEL):
            (temporary / name).replace(target / name)
        temporary.rmdir()
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for place in made:
            with suppress(OSError):  # not made yet, or somebody else has put something there
                place.rmdir()
        raise


def recording_hash(recording: Recording) -> str:
    """A hash of all samples, to tell which data a model was trained on."""
    digest = hashlib.sha256()
    for run in recording.runs:
        digest.update(repr(run.position.shape).encode())
        for channel in (run.time, run.position, run.velocity, run.touch):
            if channel is not None:
                digest.update(np.ascontiguousarray(channel).tobytes())
    return digest.hexdigest()
