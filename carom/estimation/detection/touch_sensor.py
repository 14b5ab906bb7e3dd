"""What a touch reading says of impacts."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from jaxtyping import Bool, Float, Int

from carom.validation import require_valid

Touch = Literal["observed", "inferred", "imperfect"]
STRONGEST = 12.0
"""Log-odds that touch readings can add at most."""
LONGEST_DELAY = 100


@dataclass(frozen=True)
class TouchSensor:
    """How the touch reading of a body relates to its impacts. What is None is estimated from the recording.

    Arguments:
        missed: share of impacts without a reading.
        false: share of other samples with one.
        delay: greatest shift of a reading, in samples either way; all shifts are equally likely.

    Example:
        >>> sensor = TouchSensor(missed=0.1, false=0.01, delay=0)
        >>> [round(float(x), 2) for x in sensor.log_odds(np.array([False, True]))]
        [-2.3, 4.5]
    """

    missed: Annotated[float | None, Interval(ge=0, le=1)] = None
    false: Annotated[float | None, Interval(ge=0, le=1)] = None
    delay: Annotated[int | None, Interval(ge=0, le=LONGEST_DELAY)] = None

    def __post_init__(self):
        require_valid(self, within="sensor")

    @property
    def known(self) -> bool:
        """Whether nothing is left to estimate."""
        return None not in (self.missed, self.false, self.delay)

    def log_odds(self, reading: Bool[np.ndarray, "samples"]) -> Float[np.ndarray, "samples"]:
        """Log-likelihood ratio of the readings around each sample, with an impact there and without."""
        assert self.missed is not None
        assert self.false is not None
        assert self.delay is not None
        near = readings_near(reading, self.delay)
        return np.log(np.maximum(likelihood_ratio(near, self.missed, self.false, self.delay), 1e-12))


PERFECT = TouchSensor(missed=0.0, false=0.0, delay=0)


def readings_near(reading: Bool[np.ndarray, "samples"], delay: int) -> Int[np.ndarray, "samples"]:
    """How many samples within `delay` of each have a reading."""
    padded = np.pad(reading, delay)
    return np.sum([padded[shift : shift + len(reading)] for shift in range(2 * delay + 1)], axis=0)


def likelihood_ratio(near, missed, false, delay: int):
    """p(readings | impact) / p(readings | none), where `near` readings lie within the delay.

    One of the readings nearby belongs to the impact unless it was missed; the rest are false alarms.
    """
    missed, false = np.clip(missed, 1e-9, 1 - 1e-9), np.clip(false, 1e-9, 1 - 1e-9)
    return (1 - missed) * near / (2 * delay + 1) / false + missed
