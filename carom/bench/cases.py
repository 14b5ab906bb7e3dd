"""What is measured, and what was measured for the authors' published code on the same kind of machine."""

from dataclasses import dataclass, field
from typing import Any

import jax

from carom.data import Recording, simulate
from carom.errors import InputError
from carom.models import MODELS, AbstractModel
from carom.systems import AbstractSystem, BouncingBall, NewtonsCradle, Pendulum
from carom.training import TrainingSettings

PUBLISHED_FORECAST_SECONDS, FORECAST_STEPS = 2.3, 500
"""Duration of a forecast of one ball over that many steps by the published code."""
PUBLISHED_FIT_CPU_SECONDS, PUBLISHED_EPOCHS = 300, 3000
"""Duration of its training of the ball's CD-Lagrange network, and the number of epochs."""
SETTINGS = TrainingSettings(
    learning_rate=1e-2, schedule="constant", reduction="sum", contact_inputs="predicted", l2=5e-3
)
"""The training of the published code, batch 32 and horizon 10."""


@dataclass(frozen=True)
class ModelCase:
    """A model to train on a recording and to forecast with.

    Arguments:
        title: for tables.
        system: what is recorded.
        model: its name in `carom.models.MODELS`.
        options: of its constructor.
        reference: training steps per CPU-second of the published code, lowest and highest measured.
        trained: whether the paper's recipe trains it.
    """

    title: str
    system: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    reference: tuple[int, int] | None = None
    trained: bool = True

    def build(self) -> tuple[AbstractModel, Recording]:
        """The model with random weights, and its recording."""
        recording = record(self.system)
        model = MODELS[self.model].for_recording(recording, key=jax.random.key(0), **self.options)
        return model, recording


SYSTEMS: dict[str, AbstractSystem] = {
    # The radius of the published code's ball: its centre bounces at 0.01.
    "ball": BouncingBall(radius=0.01),
    "cradle": NewtonsCradle(),
    "pendulum": Pendulum(),
}
_SOFTPLUS = {"activation": "softplus"}
_STORMER = {**_SOFTPLUS, "scheme": "stormer_verlet"}
MODEL_CASES: dict[str, ModelCase] = {
    "ball-cd-lagrange": ModelCase("ball, CD-Lagrange", "ball", "cd-lagrange", _SOFTPLUS, (160, 200)),
    "ball-resnet": ModelCase("ball, ResNet", "ball", "resnet", {}, (250, 275)),
    "ball-contact-resnet": ModelCase("ball, ResNetContact", "ball", "contact-resnet", {}, (185, 230)),
    "cradle-cd-lagrange": ModelCase("cradle, CD-Lagrange", "cradle", "cd-lagrange", _SOFTPLUS, (125, 125)),
    "pendulum-velocity-verlet": ModelCase(
        "pendulum, VIN velocity Verlet", "pendulum", "vin", _SOFTPLUS, (118, 118)
    ),
    "pendulum-stormer-verlet": ModelCase("pendulum, VIN Störmer–Verlet", "pendulum", "vin", _STORMER),
    # Fitted by Gauss–Newton, not trained by gradient descent: only its forecasts are measured.
    "ball-impact": ModelCase("ball, network of the recipe carom", "ball", "mechanism", trained=False),
}
FIT_CASES = {"fit-carom": "ball, recipe carom", "fit-paper": "ball, recipe paper"}
NAMES = (*MODEL_CASES, *FIT_CASES)


def record(system: str) -> Recording:
    """The published code's recordings: 501, 541 and 201 samples."""
    truth = SYSTEMS[system]
    if system == "pendulum":
        return simulate(truth, steps=200, step_size=0.02, noise=0.2, velocity_grid="sample")
    ball = system == "ball"
    return simulate(
        truth,
        steps=500 if ball else 540,
        step_size=0.02 if ball else 0.01,
        noise=0.2 if ball else 0.02,
        truth="scheme",
        velocity_grid="sample",
        projection="none" if ball else "reference_point",
    )


def select_cases(names: tuple[str, ...]) -> tuple[str, ...]:
    """The cases whose names begin with one of `names`, all where none is given.

    Example:
        >>> select_cases(("fit",))
        ('fit-carom', 'fit-paper')
    """
    # A misspelt case would otherwise measure nothing, after minutes.
    for name in names:
        if not any(case.startswith(name) for case in NAMES):
            raise InputError(f"There is no case {name}; the cases are {', '.join(NAMES)}.")
    return tuple(case for case in NAMES if not names or case.startswith(names))
