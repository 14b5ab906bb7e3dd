"""What a touch reading says of impacts."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

Touch = Literal["observed", "inferred", "imperfect"]
STRONGEST = 12.0
"""Log-odds that a touch reading can add at most."""


@dataclass(frozen=True)
class TouchSensor:
    """How a touch reading relates to impacts.

    Arguments:
        missed: share of impacts without a reading.
        false: share of other samples with one.
        delay: greatest shift of a reading, in samples either way; all shifts are equally likely.
    """

    missed: float = 0.1
    false: float = 0.01
    delay: int = 1

    def log_odds(self, reading: Bool[np.ndarray, "samples"]) -> Float[np.ndarray, "samples"]:
        """Log-likelihood ratio of the readings around each sample, with an impact there and without."""
        shifts = range(-self.delay, self.delay + 1)
        padded = np.pad(reading, self.delay)
        near = np.mean(
            [padded[self.delay + shift : self.delay + shift + len(reading)] for shift in shifts], axis=0
        )
        count = near * len(shifts)
        # One of the readings nearby belongs to the impact unless it was missed; the rest are false alarms.
        false, missed = np.clip([self.false, self.missed], 1e-9, 1 - 1e-9)
        seen = (1 - missed) * count / len(shifts) / false + missed
        # However good the sensor, a touch without any kink in the motion is no impact to learn from.
        return np.clip(np.log(np.maximum(seen, 1e-12)), None, STRONGEST)


PERFECT = TouchSensor(missed=0.0, false=0.0, delay=0)
