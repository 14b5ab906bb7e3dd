"""Estimating the unknowns of a model from recordings, and keeping the result."""

from carom.learning.fit import fit
from carom.learning.latent import fit_latent, fit_latent_many
from carom.learning.latent_fit import LatentFit
from carom.learning.latent_settings import LatentSettings
from carom.learning.model_file import load_model, read_notes, save_model
from carom.learning.parameters import Parameter
from carom.learning.run_folder import load_run, new_run_folder, save_run
from carom.learning.touch_sensor import Touch, TouchSensor
from carom.learning.trimming import around_impact
from carom.learning.unknowns import Learned
from carom.learning.window_loss import Losses, WindowedSettings
from carom.learning.windowed import Fit, fit_many, fit_windowed

__all__ = [
    "Fit",
    "LatentFit",
    "LatentSettings",
    "Learned",
    "Losses",
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
    "load_model",
    "load_run",
    "new_run_folder",
    "read_notes",
    "save_model",
    "save_run",
]
