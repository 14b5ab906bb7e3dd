"""Learn contact dynamics from noisy recordings with physically structured networks, and forecast them.

Example:
    >>> import jax, carom
    >>> truth = carom.systems.BouncingBall(restitution=0.9)
    >>> recording = carom.simulate(truth, steps=60, step_size=0.02, noise=0.1, seed=0)
    >>> model = carom.models.CDLagrangeNetwork.for_recording(recording, hidden=32, key=jax.random.key(0))
    >>> fit = carom.fit(model, recording, carom.TrainingSettings(epochs=10))
    >>> carom.forecast(fit.model, recording.start, steps=100).position.shape
    (101, 1, 1)
"""

from carom.stopping import stop_quietly_while_loading

stop_quietly_while_loading()

from carom import data, estimation, evaluation, fits, integrators, mechanics, models, systems, training
from carom.compilation import enable_compilation_cache, multiply_in_full_precision
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
from carom.training import TrainingResult, TrainingSettings, train_many
from carom.types import State
from carom.version import __version__

enable_compilation_cache()
multiply_in_full_precision()

__all__ = [
    "InputError",
    "LatentFit",
    "LatentSettings",
    "Learned",
    "Pair",
    "Recording",
    "Scene",
    "State",
    "TouchSensor",
    "TrainingResult",
    "TrainingSettings",
    "Wall",
    "__version__",
    "data",
    "estimation",
    "evaluation",
    "fit",
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
    "train_many",
    "training",
    "write_recording",
    "write_system_file",
]
