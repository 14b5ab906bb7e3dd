"""Estimating the unknowns of a model from recordings, and keeping the result."""

from carom.learning.banded_forecast import BandedForecast, forecast_after, forecast_from
from carom.learning.fit import fit
from carom.learning.latent import fit_latent, fit_latent_many
from carom.learning.latent_fit import LatentFit
from carom.learning.latent_settings import LatentSettings
from carom.learning.model_file import load_model, read_notes, save_model
from carom.learning.new_run import NewRun, new_run_folder
from carom.learning.parameters import Parameter
from carom.learning.run_folder import (
    FinishedRun,
    load_alternatives_of,
    load_finished_run,
    load_recording_of,
    load_run,
    noise_in,
    recording_hash,
    save_run,
)
from carom.learning.touch_sensor import Touch, TouchSensor
from carom.learning.trimming import around_impact
from carom.learning.unknowns import Learned
from carom.learning.window_loss import Losses, WindowedSettings
from carom.learning.windowed import Fit, fit_many, fit_windowed, together

__all__ = [
    "BandedForecast",
    "FinishedRun",
    "Fit",
    "LatentFit",
    "LatentSettings",
    "Learned",
    "Losses",
    "NewRun",
    "Parameter",
    "Touch",
    "TouchSensor",
    "WindowedSettings",
    "around_impact",
    "fit",
    "fit_latent",
    "fit_latent_many",
    "fit_many",
    "fit_windowed",
    "forecast_after",
    "forecast_from",
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
    "together",
]
