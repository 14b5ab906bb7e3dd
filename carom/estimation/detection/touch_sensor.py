"""The likelihood of touch readings given an impact."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from jaxtyping import Bool, Float, Int

from carom.validation import require_valid

Touch = Literal["observed", "inferred", "imperfect"]
STRONGEST = 12.0
"""Upper bound on the log-odds contributed by touch readings."""
LONGEST_DELAY = 100


@dataclass(frozen=True)
class TouchSensor:
    """Error rates of a touch sensor; those that are None are estimated from the recording.

    Arguments:
        missed: fraction of impacts without a reading.
        false: fraction of other samples with a reading.
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
        """Whether all rates are given."""
        return None not in (self.missed, self.false, self.delay)

    def log_odds(self, reading: Bool[np.ndarray, "samples"]) -> Float[np.ndarray, "samples"]:
        """Log-likelihood ratio of the readings around each sample, with and without an impact there."""
        assert self.missed is not None
        assert self.false is not None
        assert self.delay is not None
        near = readings_near(reading, self.delay)
        return np.log(np.maximum(likelihood_ratio(near, self.missed, self.false, self.delay), 1e-12))


PERFECT = TouchSensor(missed=0.0, false=0.0, delay=0)


def readings_near(reading: Bool[np.ndarray, "samples"], delay: int) -> Int[np.ndarray, "samples"]:
    """Number of readings within `delay` of each sample."""
    padded = np.pad(reading, delay)
    return np.sum([padded[shift : shift + len(reading)] for shift in range(2 * delay + 1)], axis=0)


def likelihood_ratio(near, missed, false, delay: int):
    """p(readings | impact) / p(readings | no impact), with `near` readings within the delay.

    One of these readings belongs to the impact unless it was missed; the others are false alarms.
    """
    missed, false = np.clip(missed, 1e-9, 1 - 1e-9), np.clip(false, 1e-9, 1 - 1e-9)
    return (1 - missed) * near / (2 * delay + 1) / false + missed
