"""The directory that a fit leaves behind: the model, what it was fitted to, how, and what was found.

A manifest with the SHA-256 of every file is written last: a directory with a manifest is complete, and its
files belong to the same fit.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from carom.data import Recording, Split, read_recording, write_recording
from carom.data import hold_out as hold_out_share
from carom.errors import InputError
from carom.estimation.result import Fit
from carom.fits.model_file import Notes, load_posterior, read_model_file, save_model, save_posterior
from carom.models import AbstractModel
from carom.storage.atomic import folder_made, locked, make_folder, write_whole
from carom.storage.input_file import complaint, require_file
from carom.storage.tensor_file import read_tensors, write_tensors
from carom.training import TrainingResult

MODEL, POSTERIOR, TRAJECTORIES = "model.safetensors", "posterior.safetensors", "trajectories.safetensors"
SUMMARY, HISTORY, RECORDING, MANIFEST = "fit.json", "history.jsonl", "recording.parquet", "manifest.json"
FILES = (MODEL, POSTERIOR, TRAJECTORIES, SUMMARY, HISTORY, RECORDING)
"""What the manifest lists. A fit by the paper's recipe has no trajectories, a single training no posterior.
All of them are the same, byte for byte, whenever the same fit is made."""
UNFINISHED, DISCARDED = ".carom-unfinished", ".carom-finished"
"""Where a fit works until it is complete, and the name of that folder while it is being removed."""
MAXIMUM_TEXT_BYTES, MAXIMUM_BYTES = 2**25, 2**33
"""The largest history or manifest that is read, and the largest file of any kind."""


class Manifest(TypedDict):
    """The `seconds` that a fit took, and the `sha256` of its files by name."""

    seconds: float
    sha256: dict[str, str]


_MANIFEST, _LINE = TypeAdapter(Manifest), TypeAdapter(dict[str, float])


class Trajectory(NamedTuple):
    """A run of the recording as the fitted model passes through it."""

    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"]


class FitDirectory(NamedTuple):
    """The contents of a fit directory.

    Arguments:
        model: what was fitted.
        notes: how, and what was found.
        recording: everything that was measured, including what was held out.
        split: the same in two parts, as the fit had it.
        posterior: samples of the model's posterior (recipe carom) or the members of an ensemble (recipe
            paper), stacked along a leading axis; None where there are none.
        trajectories: every run of the training part as fitted; none for the paper's recipe.
        history: one mapping per round or epoch.
    """

    model: AbstractModel
    notes: Notes
    recording: Recording
    split: Split
    posterior: AbstractModel | None
    trajectories: tuple[Trajectory, ...]
    history: tuple[dict[str, float], ...]


class UnfinishedFit(NamedTuple):
    """Where a fit puts its results.

    Arguments:
        files: an empty folder to save the fit into.
        checkpoints: for intermediate states, which outlive the process.
    """

    files: Path
    checkpoints: Path

    def discard_checkpoints(self) -> None:
        """Remove the intermediate states: continuing from them would fail again."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


@contextmanager
def new_fit_directory(folder: Path, *, overwrite: bool) -> Iterator[UnfinishedFit]:
    """Yield folders to work in inside `folder`, and move the files of the fit into it at the end.

    A directory with a fit in it is refused unless `overwrite` is set, and so is one that another command is
    working in. An error inside, Ctrl-C included, leaves an older fit as it was, and keeps the checkpoints of
    this one: the same fit continues from there, as it does after the process was killed.
    """
    target = folder.resolve()
    unfinished = target / UNFINISHED
    files, complete = unfinished / "files", unfinished / "complete"
    checkpoints = unfinished / "checkpoints"
    with folder_made(target), locked(target):
        shutil.rmtree(target / DISCARDED, ignore_errors=True)
        if is_finished(target) and not overwrite:
            problem = "there is a fit in this directory; choose another or pass --overwrite"
            raise InputError(f"{folder}: {problem}.")
        shutil.rmtree(files, ignore_errors=True)  # half-saved by a killed command
        try:
            make_folder(files)
            yield UnfinishedFit(files, checkpoints)
            _move_into_place(folder, target, files, complete)
        except BaseException:
            shutil.rmtree(files, ignore_errors=True)
            for path in (checkpoints, unfinished):
                with suppress(OSError):  # checkpoints stay
                    path.rmdir()
            raise


def is_finished(folder: Path) -> bool:
    """Whether a directory holds a fit, with nothing left to do for the command that makes it."""
    # With all files ready but some not yet in place, a killed command was about to finish. A model whose
    # manifest was lost is nothing to overwrite unless it is told to either.
    there = (folder / MANIFEST).exists() or (folder / MODEL).exists()
    return there and not (folder / UNFINISHED / "complete").exists()


def _move_into_place(folder: Path, target: Path, files: Path, complete: Path) -> None:
    try:
        shutil.rmtree(complete, ignore_errors=True)
        files.rename(complete)
        # The manifest goes first and comes last: a directory with a manifest is complete.
        (target / MANIFEST).unlink(missing_ok=True)
        for name in (*FILES, MANIFEST):
            if (complete / name).exists():
                (complete / name).replace(target / name)
            else:
                (target / name).unlink(missing_ok=True)
        complete.parent.rename(target / DISCARDED)
        shutil.rmtree(target / DISCARDED)
    except OSError as error:
        reason = f"the files of the fit cannot be moved into place ({error.strerror})"
        raise InputError(f"{folder}: {reason}; the same command tries again.") from error


def save_fit(
    fit: Fit | TrainingResult,
    folder: str | os.PathLike[str],
    *,
    recording: Recording,
    recording_path: Path,
    seed: int,
    hold_out: float = 0.0,
    ensemble: AbstractModel | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write the files of a fit into a directory, which must exist.

    Arguments:
        fit: the result.
        folder: the directory.
        recording: everything that was measured, including what was held out.
        recording_path: the file it came from; its name is kept.
        seed: of the fit.
        hold_out: the share that the fit did not see.
        ensemble: the same training from other seeds; a fit by the recipe carom has its own posterior samples.
        names: the names of the position columns, for figures.
    """
    folder = Path(folder)
    notes: dict[str, Any] = {"recording": recording_path.name, "recording_sha256": recording_hash(recording)}
    notes |= {"settings": asdict(fit.settings), "seed": seed, "hold_out": hold_out, "names": list(names)}
    notes |= _notes_of_estimation(fit) if isinstance(fit, Fit) else _notes_of_training(recording)
    # Both recipes store several models; only their meaning differs.
    posterior = fit.samples if isinstance(fit, Fit) else ensemble
    if isinstance(fit, Fit):
        motions, fields = enumerate(fit.motions), Trajectory._fields
        trajectories = {f"{n}.{name}": getattr(motion, name) for n, motion in motions for name in fields}
        write_tensors(folder / TRAJECTORIES, trajectories, {"runs": len(fit.motions)})
    if posterior is not None:
        save_posterior(posterior, folder / POSTERIOR)
    write_recording(recording, folder / RECORDING)
    write_whole(folder / HISTORY, "".join(json.dumps(line) + "\n" for line in _history(fit)))
    write_whole(folder / SUMMARY, json.dumps(notes, indent=2) + "\n")
    save_model(fit.model, folder / MODEL, notes=notes)
    write_manifest(folder, seconds=fit.seconds)


def write_manifest(folder: Path, *, seconds: float) -> None:
    """Declare the files in a directory to belong to one fit, which took so long."""
    files = {name: _hash(folder / name) for name in FILES if (folder / name).exists()}
    # Times differ whenever a fit is repeated; here they change no other file.
    write_whole(folder / MANIFEST, json.dumps({"seconds": seconds, "sha256": files}, indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a fit directory."""
    path = folder / MANIFEST
    if not path.exists():
        raise _not_a_fit_directory(folder)
    require_file(path, maximum_bytes=MAXIMUM_TEXT_BYTES, kind="manifest")
    try:
        return _MANIFEST.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise complaint(path, "this is not the manifest of a fit; fit it again") from error


def _require_matching_files(folder: Path) -> None:
    """Refuse a directory in which a file is missing, damaged, or from another fit."""
    expected = read_manifest(folder)["sha256"]
    found = {name: _hash(folder / name) for name in FILES if (folder / name).exists()}
    wrong = [name for name in FILES if expected.get(name) != found.get(name)]
    if not wrong:
        return
    # Where most do not match, it is the manifest that was swapped; a recording may be the same in both fits.
    name = MANIFEST if 2 * len(wrong) > len(found) > 1 else wrong[0]
    state = "does not belong to this fit, or was changed" if (folder / name).exists() else "is missing"
    raise InputError(f"{folder}: {name} {state}; restore it or fit again.")


def _not_a_fit_directory(folder: Path) -> InputError:
    if (folder / UNFINISHED).exists():
        return InputError(f"{folder}: the fit in this directory is not finished; its command continues it.")
    return InputError(
        f"{folder}: this is not a fit directory, or not a whole one; name one that `carom fit` wrote."
    )


def load_fitted_model(path: str | os.PathLike[str]) -> tuple[AbstractModel, Notes]:
    """The model and its notes from a fit directory or a model file."""
    path = Path(path)
    if path.is_dir():
        _require_matching_files(path)
        path = path / MODEL
    return read_model_file(path)


def load_fit_directory(path: str | os.PathLike[str]) -> FitDirectory:
    """Read everything in a fit directory."""
    path = Path(path)
    if not path.is_dir():
        raise _not_a_fit_directory(path)
    model, notes = load_fitted_model(path)
    recording = read_recording(path / RECORDING, scene=model.scene, missing=("position", "velocity"))
    # The same share gives the same split: what was held out is not stored twice.
    split = hold_out_share(recording, notes.get("hold_out", 0.0))
    posterior = load_posterior(path / POSTERIOR, model) if (path / POSTERIOR).exists() else None
    trajectories = _load_trajectories(path / TRAJECTORIES, split.training)
    history = _load_history(path / HISTORY)
    return FitDirectory(model, notes, recording, split, posterior, trajectories, history)


def recording_hash(recording: Recording) -> str:
    """A hash of all samples, to identify the data that a model was fitted to."""
    digest = hashlib.sha256()
    for run in recording.runs:
        # Or two runs could be told from one only by chance.
        digest.update(repr(run.position.shape).encode())
        for channel in (run.time, run.position, run.velocity, run.touch):
            if channel is not None:
                digest.update(np.ascontiguousarray(channel).tobytes())
    return digest.hexdigest()


def _notes_of_estimation(fit: Fit) -> dict[str, Any]:
    first = fit.motions[0]
    # A hand may hold the bodies at first; the motion that was fitted begins later.
    begin = int(np.argmax(np.isfinite(first.position).all(axis=(1, 2))))
    start = (*np.ravel(first.position[begin]), *np.ravel(first.velocity[begin]))
    return {
        "parameters": [asdict(parameter) for parameter in fit.parameters],
        "noise": [None if np.isnan(value) else value for value in fit.noise],
        "diagnostics": list(fit.diagnostics.messages),
        "samples": fit.counts._asdict(),
        "impacts": [np.argwhere(found.chosen).tolist() for found in fit.impacts],
        "log_likelihood": fit.log_likelihood,
        "start": [float(x) for x in start],
    }


def _notes_of_training(recording: Recording) -> dict[str, Any]:
    if not recording.has_velocity:
        return {}
    state = recording.start
    return {"start": [float(x) for x in (*np.ravel(state.position), *np.ravel(state.velocity))]}


def _history(fit: Fit | TrainingResult) -> list[dict[str, Any]]:
    if isinstance(fit, Fit):
        return [{"round": number, "log_likelihood": x} for number, x in enumerate(fit.history, start=1)]
    names, epochs = fit.history._fields, zip(*(np.asarray(part, float) for part in fit.history), strict=True)
    return [{"epoch": n, **dict(zip(names, losses, strict=True))} for n, losses in enumerate(epochs, start=1)]


def _load_trajectories(file: Path, training: Recording) -> tuple[Trajectory, ...]:
    if not file.exists():
        return ()
    _, tensors = read_tensors(file, kind="set of trajectories")
    trajectories = []
    for number, run in enumerate(training.runs):
        position, velocity = (tensors.get(f"{number}.{channel}") for channel in Trajectory._fields)
        if position is None or velocity is None or {position.shape, velocity.shape} != {run.position.shape}:
            raise complaint(file, "the trajectories are not those of the recording beside them; fit it again")
        trajectories.append(Trajectory(position.astype(float), velocity.astype(float)))
    return tuple(trajectories)


def _load_history(file: Path) -> tuple[dict[str, float], ...]:
    require_file(file, maximum_bytes=MAXIMUM_TEXT_BYTES, kind="history")
    try:
        return tuple(map(_LINE.validate_json, file.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise complaint(file, "the lines are not objects of numbers; fit it again") from error


def _hash(path: Path) -> str:
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="file of a fit")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
