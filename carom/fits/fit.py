"""One entry for both recipes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from carom.data import Recording
from carom.errors import InputError
from carom.estimation import Fit, Settings, fit_recording
from carom.models import AbstractModel
from carom.training import TrainingResult, TrainingSettings, train
from carom.types import State

Progress = Callable[[float], None]


@overload
def fit(
    subject: Recording,
    *,
    settings: Settings | None = None,
    learn: Sequence[str] | None = None,
    touch: str | None = None,
    starts: Sequence[State] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> Fit: ...


@overload
def fit(
    subject: AbstractModel,
    recording: Recording,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> TrainingResult: ...


def fit(
    subject: Recording | AbstractModel,
    recording: Recording | None = None,
    settings: Settings | TrainingSettings | None = None,
    *,
    learn: Sequence[str] | None = None,
    touch: str | None = None,
    starts: Sequence[State] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
) -> Fit | TrainingResult:
    """Fit a recording by our recipe, or train a given model on one by the paper's recipe.

    Arguments:
        subject: a recording; or a model to train by the paper's recipe.
        recording: what that model is trained on.
        settings: those of the recipe.
        learn: parameters to estimate, instead of those in `settings`. Surfaces are always estimated along
            unless `settings` say otherwise.
        touch: what touch readings mean, instead of what `settings` say; "inferred" by default.
        starts: start states of the runs where they are known exactly.
        seed: of initial weights and minibatches.
        progress: called with the share of the work done, as far as is known.
        checkpoints: a folder where intermediate states are kept: the same call continues there after the
            process was killed, and gives the same result to the last bit. It is the caller's to remove.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.9)
        >>> recording = carom.simulate(ball, steps=250, step_size=0.02, noise=0.05, seed=1)
        >>> fit = carom.fit(recording, learn=["restitution"])
        >>> abs(fit.parameters[0].value - 0.9) < 0.02
        True
    """
    if isinstance(subject, Recording):
        if recording is not None or isinstance(settings, TrainingSettings):
            raise InputError(
                "To train a model by the paper's recipe, pass the model first: fit(model, recording)."
            )
        changes: dict[str, Any] = {} if touch is None else {"touch": touch}
        if learn is not None:
            # A surface that is fixed and slightly wrong would bias everything else.
            placed = {"surfaces", "surfaces-per-run", "radii"} & set(learn)
            changes["learn"] = tuple(learn) if placed or settings is not None else (*learn, "surfaces")
        ours = replace(settings or Settings(), **changes)
        return fit_recording(
            subject, ours, starts=starts, seed=seed, progress=progress, checkpoints=checkpoints
        )
    if recording is None:
        raise InputError("To train a model, pass the recording after it: fit(model, recording).")
    if isinstance(settings, Settings) or learn is not None or touch is not None or starts is not None:
        raise InputError("learn, touch and starts are for our recipe: fit(recording, learn=…).")
    return train(subject, recording, settings, seed=seed, progress=progress, checkpoints=checkpoints)
