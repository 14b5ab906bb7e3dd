"""One entry for both recipes, and fits on disk."""

from carom.fits.fit import fit
from carom.fits.fit_directory import (
    FitDirectory,
    UnfinishedFit,
    load_fit_directory,
    load_fitted_model,
    new_fit_directory,
    noise_from_notes,
    recording_hash,
    save_fit,
)
from carom.fits.model_file import load_model, save_model

__all__ = [
    "FitDirectory",
    "UnfinishedFit",
    "fit",
    "load_fit_directory",
    "load_fitted_model",
    "load_model",
    "new_fit_directory",
    "noise_from_notes",
    "recording_hash",
    "save_fit",
    "save_model",
]
