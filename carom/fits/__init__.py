"""One entry for both recipes, and fits on disk."""

from carom.fits.fit import fit
from carom.fits.fit_directory import (
    FinishedRun,
    load_alternatives_of,
    load_finished_run,
    load_recording_of,
    load_run,
    noise_in,
    recording_hash,
    save_run,
)
from carom.fits.model_file import load_model, read_notes, save_model
from carom.fits.new_fit_directory import NewRun, new_run_folder

__all__ = [
    "FinishedRun",
    "NewRun",
    "fit",
    "load_alternatives_of",
    "load_finished_run",
    "load_model",
    "load_recording_of",
    "load_run",
    "new_run_folder",
    "noise_in",
    "read_notes",
    "recording_hash",
    "save_model",
    "save_run",
]
