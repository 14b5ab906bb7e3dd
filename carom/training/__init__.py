"""The paper's recipe: minibatch training over short windows, of one model or of many at once."""

from carom.training.loss import Losses, WindowedSettings
from carom.training.recipe import Fit, fit_many, fit_windowed, together

__all__ = ["Fit", "Losses", "WindowedSettings", "fit_many", "fit_windowed", "together"]
