"""The folder that a fit leaves behind: the model, its history, and what made it."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from carom.atomic import atomic_write
from carom.data import Recording
from carom.errors import InputError
from carom.learning.model_file import load_model, read_notes, save_model
from carom.learning.windowed import Fit
from carom.models import AbstractModel

MODEL, HISTORY, SUMMARY = "model.safetensors", "history.jsonl", "run.json"


def save_run(
    fit: Fit,
    folder: str | os.PathLike[str],
    *,
    recording: Recording,
    recording_path: Path,
    seed: int,
) -> None:
    """Fill a run folder, which must exist. The model comes last, so a folder with a model is whole."""
    folder = Path(folder)
    # An older model beside a newer history would pass for the result of this run.
    (folder / MODEL).unlink(missing_ok=True)
    notes: dict[str, Any] = {
        "recording": recording_path.name,
        "recording_sha256": recording_hash(recording),
        "settings": asdict(fit.settings),
        "seed": seed,
        "seconds": fit.seconds,
    }
    if recording.has_velocity:
        start = recording.start
        notes["start"] = [float(x) for x in (*np.ravel(start.position), *np.ravel(start.velocity))]
    epochs = zip(*(np.asarray(part, float) for part in fit.history), strict=True)
    lines = [
        json.dumps({"epoch": epoch, **dict(zip(fit.history._fields, losses, strict=True))})
        for epoch, losses in enumerate(epochs, start=1)
    ]
    with atomic_write(folder / HISTORY) as temporary:
        temporary.write_text("\n".join(lines) + "\n")
    with atomic_write(folder / SUMMARY) as temporary:
        temporary.write_text(json.dumps(notes, indent=2) + "\n")
    save_model(fit.model, folder / MODEL, notes=notes)


def load_run(path: str | os.PathLike[str]) -> tuple[AbstractModel, dict[str, Any]]:
    """The model of a run folder, or of a model file, and its notes."""
    path = Path(path)
    model_path = path / MODEL if path.is_dir() else path
    if path.is_dir() and not model_path.exists():
        raise InputError(f"{path}: this folder has no {MODEL}; name one that `carom fit` wrote.")
    return load_model(model_path), read_notes(model_path)


@contextmanager
def new_run_folder(folder: Path, *, overwrite: bool) -> Iterator[None]:
    """Make a folder for a run before the work begins; an error inside removes what was made.

    A folder with a run in it is refused unless `overwrite` is set; the old run stays until the new is saved.
    """
    if (folder / MODEL).exists() and not overwrite:
        raise InputError(f"{folder}: there is a run in this folder; choose another or pass --overwrite.")
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: the folder cannot be made ({error.strerror}); choose another."
        ) from error
    try:
        yield
    except BaseException:
        for place in missing:
            with suppress(OSError):  # somebody else has put something there
                place.rmdir()
        raise


def recording_hash(recording: Recording) -> str:
    """A hash of all samples, to tell which data a model was trained on."""
    digest = hashlib.sha256()
    for run in recording.runs:
        for channel in (run.time, run.position, run.velocity, run.touch):
            if channel is not None:
                digest.update(np.ascontiguousarray(channel).tobytes())
    return digest.hexdigest()
