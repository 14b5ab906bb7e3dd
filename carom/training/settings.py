"""Hyperparameters of the paper's recipe."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt

from carom.validation import require_valid


@dataclass(frozen=True)
class TrainingSettings:
    """Hyperparameters of the paper's recipe.

    The defaults are good general choices; those of the paper and of its code are in
    `carom.reproduction.paper.experiments`.

    Arguments:
        horizon: steps per window.
        stride: samples between window starts; 1 gives overlapping windows, horizon + 1 disjoint ones.
        batch_size: windows per gradient step.
        epochs: passes over all windows.
        learning_rate: of Adam.
        schedule: whether the rate stays constant or falls to zero along a cosine.
        l2: strength of ℓ² on the potential's kernels.
        reduction: whether errors are averaged ("mean", the text) or summed ("sum", the published code) over
            the horizon.
        contact_inputs: whether the contact signal's cross-entropy is evaluated on observed states and their
            drift (the text) or on predicted ones (the published code).
        touch: whether the recorded touch drives the impulses, or the model's own soft contact signal.
    """

    horizon: Annotated[int, Ge(1)] = 10
    stride: Annotated[int, Ge(1)] = 1
    batch_size: Annotated[int, Ge(1)] = 32
    epochs: Annotated[int, Ge(1)] = 600
    learning_rate: Annotated[float, Gt(0)] = 1e-2
    schedule: Literal["constant", "cosine"] = "cosine"
    l2: Annotated[float, Ge(0)] = 1e-4
    reduction: Literal["mean", "sum"] = "sum"
    contact_inputs: Literal["observed", "predicted"] = "observed"
    touch: Literal["observed", "none"] = "observed"

    def __post_init__(self):
        require_valid(self)
