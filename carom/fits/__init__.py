"""One entry for both recipes, and fits on disk."""

from carom.fits.fit import fit
from carom.fits.fit_directory import (
    FitDirectory,
    UnfinishedFit,
    load_fit_directory,
    load_fitted_model,
    new_fit_directory,
    recording_hash,
    save_fit,
)
from carom.fits.model_file import load_model, noise_from_notes, save_model
