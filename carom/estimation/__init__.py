"""Our recipe: states, contacts and parameters estimated together from noisy recordings."""

from carom.estimation.detection.touch_sensor import Touch, TouchSensor
from carom.estimation.forecast import BandedForecast, forecast_after, forecast_from, forecast_runs
from carom.estimation.parameters.report import Parameter
from carom.estimation.result import Fit
from carom.estimation.settings import Settings
from carom.estimation.stages import fit_recording, fit_recordings
from carom.estimation.trimming import around_impact

__all__ = [
    "BandedForecast",
    "Fit",
    "Parameter",
    "Settings",
    "Touch",
    "TouchSensor",
    "around_impact",
    "fit_recording",
    "fit_recordings",
    "forecast_after",
    "forecast_from",
    "forecast_runs",
]
