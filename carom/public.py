"""The public names of the package, which `carom` loads when one of them is first used."""

from carom import data, estimation, evaluation, fits, integrators, mechanics, models, systems, training
from carom.data import (
    Recording,
    read_recording,
    read_system_file,
    simulate,
    write_recording,
    write_system_file,
)
from carom.errors import InputError
from carom.estimation import LatentFit, LatentSettings, Learned, TouchSensor
from carom.fits import fit, load_model, save_model
from carom.mechanics import Pair, Scene, Wall
from carom.models import forecast
from carom.storage.compilation_cache import configure
from carom.training import Fit, WindowedSettings, fit_many
from carom.types import State
from carom.version import __version__

__all__ = [
    "Fit",
    "InputError",
    "LatentFit",
    "LatentSettings",
    "Learned",
    "Pair",
    "Recording",
    "Scene",
    "State",
    "TouchSensor",
    "Wall",
    "WindowedSettings",
    "__version__",
    "configure",
    "data",
    "estimation",
    "evaluation",
    "fit",
    "fit_many",
    "fits",
    "forecast",
    "integrators",
    "load_model",
    "mechanics",
    "models",
    "read_recording",
    "read_system_file",
    "save_model",
    "simulate",
    "systems",
    "training",
    "write_recording",
    "write_system_file",
]
