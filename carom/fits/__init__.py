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
from carom.fits.model_file import load_model, save_model
from carom.fits.notes import noise_from_notes
