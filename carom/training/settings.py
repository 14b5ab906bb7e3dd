"""Hyperparameters of the paper's recipe."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from carom.errors import InputError, require_choice

Touch = Literal["observed", "none"]
Schedule = Literal["constant", "cosine"]
Reduction = Literal["mean", "sum"]
ContactInputs = Literal["observed", "predicted"]


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

    # Horizon, stride and batch size are those of the published code; the paper does not state them.
    horizon: int = 10
    stride: int = 1
    batch_size: int = 32
    epochs: int = 600
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    l2: float = 1e-4
    reduction: Reduction = "sum"
    contact_inputs: ContactInputs = "observed"
    touch: Touch = "observed"

    def __post_init__(self):
        for name in ("horizon", "stride", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, but it is {getattr(self, name)}.")
        if not (np.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate must be positive, but it is {self.learning_rate}.")
        # Zero is allowed here, unlike above: it switches the penalty off.
        if not (np.isfinite(self.l2) and self.l2 >= 0):
            raise InputError(f"l2 must not be negative, but it is {self.l2}.")
        require_choice("schedule", self.schedule, Schedule)
        require_choice("reduction", self.reduction, Reduction)
        require_choice("contact_inputs", self.contact_inputs, ContactInputs)
        require_choice("touch", self.touch, Touch)
