"""Our recipe: states, contacts and parameters estimated together from noisy recordings."""

from carom.estimation.detection.touch_sensor import Touch, TouchSensor
from carom.estimation.detection.trimming import around_impact
from carom.estimation.forecast import BandedForecast, forecast_after, forecast_from
from carom.estimation.parameters.table import Parameter
from carom.estimation.parameters.unknowns import Learned
from carom.estimation.result import LatentFit
from carom.estimation.settings import LatentSettings
from carom.estimation.stages import fit_latent, fit_latent_many

__all__ = [
    "BandedForecast",
    "LatentFit",
    "LatentSettings",
    "Learned",
    "Parameter",
    "Touch",
    "TouchSensor",
    "around_impact",
    "fit_latent",
    "fit_latent_many",
    "forecast_after",
    "forecast_from",
]
