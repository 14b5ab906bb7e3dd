"""One entry for both recipes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

from carom.data import Recording
from carom.errors import InputError
from carom.estimation.detection.touch_sensor import Touch
from carom.estimation.parameters.unknowns import Learned
from carom.estimation.result import LatentFit
from carom.estimation.settings import LatentSettings
from carom.estimation.stages import fit_latent
from carom.models import AbstractModel
from carom.training import TrainingResult, TrainingSettings, train
from carom.types import State


@overload
def fit(
    subject: Recording,
    *,
    settings: LatentSettings | None = None,
    touch: Touch | None = None,
    learned: Learned | None = None,
    starts: Sequence[State] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> LatentFit: ...


@overload
def fit(
    subject: AbstractModel,
    recording: Recording,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> TrainingResult: ...


def fit(
    subject: Recording | AbstractModel,
    recording: Recording | None = None,
    settings: LatentSettings | TrainingSettings | None = None,
    *,
    touch: Touch | None = None,
    learned: Learned | None = None,
    starts: Sequence[State] | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> LatentFit | TrainingResult:
    """Fit a recording by the recipe `carom`, or train a given model on one by the paper's recipe.

    Arguments:
        subject: a recording; or a model to train by the paper's recipe.
        recording: what that model is trained on.
        settings: hyperparameters of the recipe.
        touch: what touch readings mean, instead of what `settings` say; "inferred" by default.
        learned: physical parameters to estimate, instead of what `settings` say.
        starts: start states of the runs where they are known exactly.
        seed: of initial weights and minibatches.
        progress: called with the share of the work done; by the recipe `carom`, that seems done.
        checkpoints: a folder where what is done is kept: the same call continues there after the process was
            killed, and gives the same result to the last bit. It is the caller's to remove.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.9)
        >>> recording = carom.simulate(ball, steps=150, step_size=0.02, noise=0.1, seed=1)
        >>> fit = carom.fit(recording, learned=carom.Learned(restitution="constant"))
        >>> abs(fit.parameters[0].value - 0.9) < 0.02
        True
    """
    if isinstance(subject, AbstractModel):
        if recording is None or isinstance(settings, LatentSettings):
            raise InputError("To train a model, pass a recording and settings of the paper's recipe.")
        return train(subject, recording, settings, seed=seed, progress=progress, checkpoints=checkpoints)
    if recording is not None or isinstance(settings, TrainingSettings):
        raise InputError("To fit a recording by the recipe carom, pass it alone, with its own settings.")
    chosen = settings or LatentSettings()
    if touch is not None:
        chosen = replace(chosen, touch=touch)
    if learned is not None:
        chosen = replace(chosen, learned=learned)
    return fit_latent(subject, chosen, starts=starts, seed=seed, progress=progress, checkpoints=checkpoints)
