"""The public names of the package, which `carom` loads when one of them is first used."""

from carom import (
    contact_laws,
    data,
    estimation,
    evaluation,
    fits,
    forces,
    integrators,
    mechanics,
    models,
    networks,
    systems,
    training,
)
from carom.data import (
    Recording,
    read_recording,
    read_system_file,
    simulate,
    write_recording,
    write_system_file,
)
from carom.errors import InputError
from carom.estimation import Fit, Settings, TouchSensor
from carom.fits import fit, load_model, save_model
from carom.mechanics import Pair, Scene, Wall
from carom.models import Mechanism, forecast
from carom.storage.program_cache import configure
from carom.training import TrainingResult, TrainingSettings, train, train_many
from carom.types import State
